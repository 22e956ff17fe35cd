"""Measure a part of this package side by side with its alternatives, on this machine.

Each benchmark is a module with `EXAMPLE`, `add_arguments(parser)` and `run(asked)`, which gives figures by name; one
with a table of its own has `answer(content)` too. Those that measure with torch import it when they run.
"""

from __future__ import annotations

import argparse
from typing import Any

from paradyse_megatron.bench import planner
from paradyse_megatron.bench.conditions import conditions
from paradyse_megatron.cli.answer import Answer
from paradyse_megatron.cli.benches import (
    accuracy,
    batches,
    convergence,
    conversions,
    decisions,
    dynamic,
    gpu,
    overlap,
    peers,
)
from paradyse_megatron.cli.verbs import add_verb
from paradyse_megatron.planner.jsonfile import write_object

EXAMPLE = planner.EXAMPLE
BENCHMARKS: dict[str, Any] = {
    "accuracy": accuracy,
    "batches": batches,
    "convergence": convergence,
    "conversions": conversions,
    "decisions": decisions,
    "dynamic": dynamic,
    "gpu": gpu,
    "overlap": overlap,
    "peers": peers,
    "planner": planner,
}
SCHEMA = 1


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """One sub-verb for each benchmark."""
    names = parser.add_subparsers(dest="benchmark", required=True, metavar="BENCHMARK")
    for name, module in BENCHMARKS.items():
        benchmark = add_verb(names, name, module)
        helped = "print the result as JSON"
        benchmark.add_argument("--json", action="store_true", default=argparse.SUPPRESS, help=helped)
        benchmark.add_argument("--out", metavar="FILE", help="write the result to a JSON file as well")
        module.add_arguments(benchmark)


def run(asked: argparse.Namespace) -> Answer:
    """The figures with machine, versions, command and date."""
    circumstances = conditions()
    figures = BENCHMARKS[asked.benchmark].run(asked)
    content = {**circumstances, **figures}
    if asked.out:
        try:
            write_object(asked.out, SCHEMA, content)
        except OSError as error:
            raise ValueError(f"--out {asked.out} cannot be written: {error.strerror}.") from error
    if hasattr(BENCHMARKS[asked.benchmark], "answer"):
        return BENCHMARKS[asked.benchmark].answer(content)
    rows = [(name.replace("_", " "), _shown(figure)) for name, figure in figures.items()]
    notes = [f"{circumstances['machine']}, {circumstances['date']}"]
    return Answer(content, f"Benchmark of {asked.benchmark}", ("figure", "value"), rows, notes)


def _shown(figure: object) -> str:
    return f"{figure:,.6g}" if isinstance(figure, float) else str(figure)
