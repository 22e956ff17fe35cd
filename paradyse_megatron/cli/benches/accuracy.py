"""A measured cost model against the machine, at lengths that it was not fitted to: time and memory."""

from __future__ import annotations

import argparse
import tempfile
import warnings
from pathlib import Path
from typing import Any

from paradyse_megatron.cli.answer import Answer
from paradyse_megatron.costmodel.model_sources import read_shape

EXAMPLE = "paradyse bench accuracy --group-sizes 2,4 --out accuracy.json --picture accuracy.svg"
BARS = {
    ("time", "held_out"): 0.15,
    ("time", "beyond_4x"): 0.20,
    ("memory", "traced"): 0.10,
    ("memory", "corrected_by_other_lengths"): 0.05,
}
"""The largest mean absolute error of each that is good."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Flags of this benchmark."""
    parser.add_argument("--model", default="tiny", metavar="F", help="as of `paradyse profile` (default: tiny)")
    parser.add_argument("--group-sizes", default="2,4", metavar="LIST", help="CPU ranks (default: 2,4)")
    parser.add_argument(
        "--budget-seconds", type=float, default=300, metavar="T", help="for timing, of each group (default: 300)"
    )
    parser.add_argument(
        "--only",
        choices=("time", "memory"),
        help="one of the two: memory takes most of the time where ranks share cores, and no quiet machine",
    )
    parser.add_argument("--picture", metavar="FILE", help="draw predicted against measured, as SVG or PNG")


def run(asked: argparse.Namespace) -> dict[str, Any]:
    """The figures."""
    warnings.simplefilter("ignore")
    sizes = [int(text) if text.strip().isdecimal() else 0 for text in asked.group_sizes.split(",")]
    if min(sizes) < 1 or not asked.budget_seconds > 0:
        raise ValueError(
            f"--group-sizes {asked.group_sizes} must be whole numbers from 1 with commas between, "
            f"--budget-seconds {asked.budget_seconds} above 0."
        )
    shape = read_shape(asked.model)
    from paradyse_megatron.bench.accuracy import bench

    with tempfile.TemporaryDirectory() as folder:
        kinds = ("time", "memory") if asked.only is None else (asked.only,)
        found = bench(shape, sizes, asked.budget_seconds, Path(folder), kinds)
    if asked.picture:
        from paradyse_megatron.report.accuracy import draw

        draw(found, asked.picture)
    return found


def answer(content: dict[str, Any]) -> Answer:
    """A row a kind of prediction; the answer is no where one misses its bar."""
    rows, good = [], True
    for name, groups in content.items():
        if not name.startswith("group_size_"):
            continue
        for what in ("time", "memory"):
            for kind, found in groups.get(what, {}).items():
                if not isinstance(found, dict):
                    continue
                bar = BARS.get((what, kind))
                good = good and (bar is None or (found["mape"] is not None and found["mape"] <= bar))
                rows.append((name.removeprefix("group_size_"), what, kind.replace("_", " "), str(found["num_points"]),
                             _share(found["mape"]), _share(bar), _share(found["furthest_under"]),
                             _share(found["furthest_over"])))  # fmt: skip
    noises = [
        f"P = {name.removeprefix('group_size_')}: a point measured again differs by {_share(groups['time']['noise'])}"
        for name, groups in content.items()
        if name.startswith("group_size_") and "time" in groups
    ]
    columns = ("P", "of", "predicted", "points", "mean error", "bar", "furthest under", "furthest over")
    return Answer(content, "Predicted against measured", columns, rows, noises, yes=good)


def _share(value: float | None) -> str:
    return "-" if value is None else f"{value:.1%}"
