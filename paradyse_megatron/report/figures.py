"""The figures of a report, by matplotlib: narrow and with large letters, so that they are readable on a phone."""

from __future__ import annotations

import io
import itertools
import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from paradyse_megatron.report.looks import look
from paradyse_megatron.report.numbers import Numbers
from paradyse_megatron.report.ticks import readable_scale, short_number, token_ticks, whole_ticks
from paradyse_megatron.runtime.metrics import plan_runs

SIZE_INCHES = (4.8, 3.3)
MANY_POINTS = 3000
"""Above, points go into the page as one picture, not one by one."""

STYLE: Any = {
    "font.size": 10,
    "font.family": "sans-serif",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.axisbelow": True,
    "axes.grid": True,
    "grid.color": "#e4e4e4",
    "hatch.linewidth": 0.6,
    "legend.frameon": False,
    "legend.fontsize": 9,
    "svg.fonttype": "none",
    "svg.hashsalt": "paradyse",
}
_MARKERS = "o^sDvPX*"
_TOKENS = "tokens after padding"


@dataclass(frozen=True)
class Rendered:
    """A figure as text of an SVG element, and as a PNG file's bytes."""

    svg: str
    png: bytes


def render(numbers: Numbers) -> dict[str, Rendered]:
    """Every figure by name.

    Raises:
        ValueError: matplotlib is not installed.
    """
    try:
        import matplotlib
    except ImportError as error:
        raise ValueError(
            "The report's figures need matplotlib; install it with: pip install 'paradyse-megatron[report]'."
        ) from error
    with matplotlib.rc_context(STYLE):
        return {name: _rendered(draw(numbers)) for name, draw in _FIGURES.items()}


def _rendered(figure: Any) -> Rendered:
    svg, png = io.StringIO(), io.BytesIO()
    figure.savefig(svg, format="svg", metadata={"Date": None})
    figure.savefig(png, format="png", dpi=150)
    text = svg.getvalue()
    return Rendered(text[text.index("<svg") :], png.getvalue())


@contextmanager
def _axes(x_label: str, y_label: str) -> Iterator[tuple[Any, Any]]:
    from matplotlib.figure import Figure

    figure = Figure(figsize=SIZE_INCHES, layout="constrained")
    axes = figure.add_subplot()
    axes.set_xlabel(x_label)
    axes.set_ylabel(y_label)
    yield figure, axes


def _plan_by_length(numbers: Numbers) -> Any:
    """Layers against length; a plan reaches half way, on the log scale, to the next length seen."""
    with _axes(_TOKENS, "layer, from the first") as (figure, axes):
        segments = numbers.segments
        borders = [math.sqrt(a.longest * b.shortest) for a, b in itertools.pairwise(segments)]
        lefts = [segments[0].shortest / 1.1, *borders]
        rights = [*borders, segments[-1].longest * 1.1]
        whole = math.log(rights[-1] / lefts[0])
        for segment, left, right in zip(segments, lefts, rights, strict=True):
            _column(axes, segment.plan, left, right, numbers.num_layers, math.log(right / left) / whole > 0.06)
        axes.set_xscale("log")
        axes.set_xlim(lefts[0], rights[-1])
        axes.set_ylim(0, numbers.num_layers)
        if numbers.num_layers == 1:
            axes.set_yticks([])
            axes.set_ylabel("all layers alike")
        axes.grid(False)
        token_ticks(axes)
        _option_legend(figure, numbers.options)
    return figure


def _column(axes: Any, plan: str, left: float, right: float, num_layers: int, has_room: bool) -> None:
    runs = plan_runs(plan)
    scale = num_layers / sum(count for _, count in runs)
    bottom = 0.0
    for option, count in runs:
        style, height = look(option), count * scale
        axes.bar(left, height, right - left, bottom, align="edge", color=style.colour, hatch=style.hatch,
                 edgecolor="#222222", linewidth=0.8)  # fmt: skip
        if has_room and height >= num_layers / 16:
            box = {"boxstyle": "round,pad=0.15", "facecolor": "white", "edgecolor": "none"}
            axes.text(math.sqrt(left * right), bottom + height / 2, style.name, ha="center", va="center", bbox=box)
        bottom += height


def _time(numbers: Numbers) -> Any:
    return _predicted_against_measured(numbers, "predicted_ms", "measured_ms", 1.0, "ms")


def _memory(numbers: Numbers) -> Any:
    return _predicted_against_measured(numbers, "predicted_bytes", "measured_bytes", 2.0**20, "MiB")


def _predicted_against_measured(numbers: Numbers, predicted: str, measured: str, unit: float, name: str) -> Any:
    """A point a micro-batch, marked by the option that most of its layers run; without prediction, against length."""
    lines = [line for line in numbers.lines if getattr(line, measured)]
    known = [line for line in lines if getattr(line, predicted)]
    x_of: Callable[[Any], float] = (
        (lambda line: getattr(line, predicted) / unit) if known else (lambda line: line.padded_length)
    )
    shown = known or lines
    with _axes(f"predicted {name}" if known else _TOKENS, f"measured {name}") as (figure, axes):
        if not shown:
            return _nothing(figure, axes)
        mains = {line.plan: max(plan_runs(line.plan), key=lambda run: run[1])[0] for line in shown}
        for number, option in enumerate(dict.fromkeys(o for o in numbers.options if o in mains.values())):
            members = [line for line in shown if mains[line.plan] == option]
            axes.scatter([x_of(line) for line in members], [getattr(line, measured) / unit for line in members],
                         s=22, marker=_MARKERS[number % len(_MARKERS)], facecolor=look(option).colour,
                         edgecolor="#222222", linewidth=0.6, alpha=0.85, label=f"{look(option).name}  {option}",
                         rasterized=len(shown) > MANY_POINTS)  # fmt: skip
        if known:
            _diagonal(axes)
        for axis in (axes.xaxis, axes.yaxis):
            readable_scale(axis)
        figure.legend(loc="outside upper center", ncols=2, handletextpad=0.3)
    return figure


def _diagonal(axes: Any) -> None:
    values = axes.dataLim.get_points().ravel()
    ends = [0.85 * values.min(), 1.15 * values.max()]
    axes.plot(ends, ends, color="#222222", linewidth=1, zorder=0)
    axes.fill_between(ends, [0.8 * end for end in ends], [1.25 * end for end in ends], color="#eeeeee", zorder=-1)
    axes.set_xlim(*ends)
    axes.set_ylim(*ends)


def _shares(numbers: Numbers) -> Any:
    """Stacked bars, one for each group of iterations."""
    with _axes("iteration", "share of layers, %") as (figure, axes):
        lefts = [step.first - 0.5 for step in numbers.steps]
        widths = [step.last - step.first + 1 for step in numbers.steps]
        bottoms = [0.0] * len(lefts)
        for option in numbers.options:
            heights = [100 * step.shares.get(option, 0.0) for step in numbers.steps]
            style = look(option)
            axes.bar(lefts, heights, widths, bottoms, align="edge", color=style.colour, hatch=style.hatch,
                     edgecolor="#222222", linewidth=0.4)  # fmt: skip
            bottoms = [bottom + height for bottom, height in zip(bottoms, heights, strict=True)]
        axes.set_ylim(0, 100)
        axes.set_xlim(lefts[0], lefts[-1] + widths[-1])
        axes.grid(False)
        whole_ticks(axes.xaxis)
        _option_legend(figure, numbers.options)
    return figure


def _loss(numbers: Numbers) -> Any:
    with _axes("iteration", "loss") as (figure, axes):
        by_iteration: dict[int, list[float]] = {}
        for line in numbers.lines:
            if line.loss is not None:
                by_iteration.setdefault(line.iteration, []).append(line.loss)
        if not by_iteration:
            return _nothing(figure, axes)
        points = [(iteration, loss) for iteration, losses in by_iteration.items() for loss in losses]
        axes.scatter(*zip(*points, strict=True), s=9, color="#999999", label="micro-batch",
                     rasterized=len(points) > MANY_POINTS)  # fmt: skip
        means = [sum(losses) / len(losses) for losses in by_iteration.values()]
        axes.plot(list(by_iteration), means, color="#0072b2", linewidth=1.8, label="mean of the iteration")
        whole_ticks(axes.xaxis)
        figure.legend(loc="outside upper center", ncols=2, handletextpad=0.3)
    return figure


def _lengths(numbers: Numbers) -> Any:
    """Micro-batches by octave, and the tokens in them: most sequences are short, most tokens are in long ones."""
    with _axes(_TOKENS, "share, %") as (figure, axes):
        places = range(len(numbers.buckets))
        for shift, attribute, colour, hatch, label in (
            (-0.2, "microbatches", "#56b4e9", "///", "of micro-batches"),
            (0.2, "tokens", "#e69f00", "...", "of tokens"),
        ):
            counts = [getattr(bucket, attribute) for bucket in numbers.buckets]
            axes.bar([place + shift for place in places], [100 * count / sum(counts) for count in counts], 0.4,
                     color=colour, hatch=hatch, edgecolor="#222222", linewidth=0.6, label=label)  # fmt: skip
        labels = [f"≤ {short_number(bucket.longest)}" for bucket in numbers.buckets]
        axes.set_xticks(list(places), labels, rotation=45 if len(labels) > 6 else 0)
        axes.grid(False, axis="x")
        figure.legend(loc="outside upper center", ncols=2, handletextpad=0.3)
    return figure


def _decisions(numbers: Numbers) -> Any:
    """Share of decisions that were at most so long."""
    with _axes("time of a decision, µs", "decisions up to it, %") as (figure, axes):
        times = sorted(max(line.decision_us, 0.01) for line in numbers.lines)
        axes.step(times, [100 * (place + 1) / len(times) for place in range(len(times))], where="post", color="#0072b2")
        median = numbers.headline["decision_us_median"]
        axes.axvline(median, color="#222222", linestyle="--", linewidth=1)
        axes.text(median, 8, f" median {median:,.1f} µs", ha="left")
        axes.set_ylim(0, 102)
        axes.set_xlim(times[0], times[-1] * 1.01)
        readable_scale(axes.xaxis)
    return figure


_FIGURES: dict[str, Callable[[Numbers], Any]] = {
    "plan-by-length": _plan_by_length,
    "time": _time,
    "memory": _memory,
    "shares": _shares,
    "loss": _loss,
    "lengths": _lengths,
    "decisions": _decisions,
}


def _nothing(figure: Any, axes: Any) -> Any:
    axes.text(0.5, 0.5, "not in this trace", ha="center", va="center", transform=axes.transAxes)
    return figure


def _option_legend(figure: Any, options: list[str]) -> None:
    from matplotlib.patches import Patch

    patches = [
        Patch(facecolor=look(o).colour, hatch=look(o).hatch, edgecolor="#222222", label=f"{look(o).name}  {o}")
        for o in options
    ]
    figure.legend(handles=patches, loc="outside upper center", ncols=2, handleheight=1.2)
