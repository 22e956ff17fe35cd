"""Predicted against measured, point by point: for each group size a panel each for time and memory."""

from __future__ import annotations

import os
from itertools import product
from typing import Any

from paradyse_megatron.planner.jsonfile import Json
from paradyse_megatron.report.figures import STYLE
from paradyse_megatron.report.looks import look
from paradyse_megatron.report.ticks import readable_scale

_MARKERS = {"none": "o", "selective": "^", "full": "s"}
_BAND = {"time": 0.15, "memory": 0.10}
_KINDS = {"time": ("held_out", "beyond_4x"), "memory": ("traced",)}
_LABELS = {"time": "milliseconds of a layer", "memory": "MiB of the stack"}
_UNITS = {"time": 1.0, "memory": 2**20}


def draw(found: Json, path: str | os.PathLike[str]) -> None:
    """Write the figure of what `bench.accuracy.bench` found, in the format of the path's ending.

    Raises:
        ValueError: matplotlib is not installed, or the file cannot be written.
    """
    try:
        import matplotlib
        from matplotlib.figure import Figure
    except ImportError as error:
        raise ValueError("--picture needs matplotlib: pip install 'paradyse-megatron[report]'.") from error
    groups = {name.removeprefix("group_size_"): value for name, value in found.items() if name.startswith("group_size")}
    kinds = [what for what in _KINDS if any(what in values for values in groups.values())]
    with matplotlib.rc_context(STYLE):
        shape = (len(groups), len(kinds)) if len(kinds) > 1 else (1, len(groups))
        figure = Figure(figsize=(1.0 + 4.0 * max(2, shape[1]), 4.2 * shape[0]), layout="constrained")
        panels = figure.subplots(*shape, squeeze=False)
        for axes, (num_ranks, what) in zip(panels.flat, product(groups, kinds), strict=True):
            values = groups[num_ranks][what]
            _draw_panel(axes, what, values)
            axes.set_title(f"P = {num_ranks}: {what}, {_errors(what, values)}", fontsize="medium")
        drawn = [axes.get_legend_handles_labels() for axes in panels.flat]
        shown = {label: handle for handles, labels in drawn for handle, label in zip(handles, labels, strict=True)}
        figure.legend(shown.values(), shown.keys(), loc="outside lower center", ncols=4)
        try:
            figure.savefig(path)
        except (OSError, ValueError) as error:
            raise ValueError(f"--picture {path} cannot be written: {error}") from error


def _errors(what: str, values: Json) -> str:
    shown = {"held_out": "held out", "beyond_4x": "4x beyond", "traced": "traced"}
    return ", ".join(f"{shown[kind]} {values[kind]['mape']:.1%}" for kind in _KINDS[what] if values[kind]["points"])


def _draw_panel(axes: Any, what: str, values: Json) -> None:
    """Filled marks for lengths between fitted ones, and for memory; hollow ones beyond."""
    everything = []
    for kind in _KINDS[what]:
        for label, points in _by_strategy(values[kind]["points"]).items():
            colour, marker = label
            x, y = ([point[key] / _UNITS[what] for point in points] for key in ("measured", "predicted"))
            everything += x + y
            face = "none" if kind == "beyond_4x" else colour[1]
            name = f"{colour[0]}{'' if marker == 'none' else '+' + marker}"
            seen = name in axes.get_legend_handles_labels()[1]
            axes.plot(x, y, _MARKERS[marker], mfc=face, mec=colour[1], ms=4.5, label=None if seen else name)
    if not everything:
        return
    ends = [min(everything) * 0.8, max(everything) * 1.25]
    axes.plot(ends, ends, color="#444444", lw=0.8)
    band = _BAND[what]
    axes.fill_between(ends, *([end * (1 + sign * band) for end in ends] for sign in (-1, 1)), color="#dddddd", lw=0)
    axes.set(xscale="log", yscale="log", xlabel=f"measured {_LABELS[what]}", ylabel="predicted")
    for axis in (axes.xaxis, axes.yaxis):
        readable_scale(axis)


def _by_strategy(points: list[Json]) -> dict[tuple[tuple[str, str], str], list[Json]]:
    """By attention, with its colour, and recompute."""
    found: dict[tuple[tuple[str, str], str], list[Json]] = {}
    for point in points:
        rest, _, recompute = point["target"].partition("+")
        attention = "loss head" if rest.startswith("head:") else rest.partition("/")[0]
        colour = "#000000" if attention == "loss head" else look(attention).colour
        found.setdefault(((attention, colour), recompute or "none"), []).append(point)
    return found
