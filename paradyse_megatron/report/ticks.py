"""Numbers along the axes of figures, as people write them."""

from __future__ import annotations

import math
from typing import Any


def short_number(value: float) -> str:
    """4096 as '4K', in powers of two where it is one, else rounded."""
    for unit, factor in (("M", 2**20), ("K", 2**10)):
        if value >= factor:
            return f"{value / factor:.3g}{unit}"
    return f"{value:.3g}"


def token_ticks(axes: Any) -> None:
    """Powers of two along x, at most eight."""
    from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator

    octaves = math.log2(axes.get_xlim()[1] / axes.get_xlim()[0])
    axes.xaxis.set_major_locator(LogLocator(2.0 ** max(1, math.ceil(octaves / 7))))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: short_number(value)))


def readable_scale(axis: Any) -> None:
    """Logarithmic where the values differ by much, and then with 1, 3, 10 rather than powers in small letters."""
    from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullFormatter

    low, high = axis.get_view_interval()
    if low <= 0 or high / low < 6:
        axis.set_major_locator(MaxNLocator(6))
    else:
        {"x": axis.axes.set_xscale, "y": axis.axes.set_yscale}[axis.axis_name]("log")
        decades = math.log10(high / low)
        subs = (1.0, 2.0, 5.0) if decades < 1.5 else (1.0, 3.0) if decades < 3 else (1.0,)
        axis.set_major_locator(LogLocator(10, subs=subs))
        axis.set_minor_formatter(NullFormatter())
    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.6g}"))


def whole_ticks(axis: Any) -> None:
    """At most eight whole numbers."""
    from matplotlib.ticker import MaxNLocator

    axis.set_major_locator(MaxNLocator(7, integer=True))
