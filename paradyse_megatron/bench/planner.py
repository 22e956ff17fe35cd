"""How long the planner takes for a decision, and how near its searches are to the exact one."""

from __future__ import annotations

import argparse
import random
import statistics
import time
from collections.abc import Callable
from typing import Any

from paradyse_megatron.bench.deep_stacks import DeepStack, random_deep_stack
from paradyse_megatron.bench.problems import random_problems
from paradyse_megatron.bench.schedule import schedule_peak
from paradyse_megatron.planner import exact, native, search
from paradyse_megatron.planner.backends import BACKENDS, backend
from paradyse_megatron.planner.planner import Planner

EXAMPLE = "paradyse bench planner --out configs/results/planner.json"
NUM_TWIN = 20  # decisions that are timed in Python too
NUM_LENGTHS = {"cpp": 5, "python": 1}
LOOPS = 2000


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Flags of this benchmark."""
    parser.add_argument("--instances", type=int, default=20_000, metavar="N", help="random problems to solve exactly")
    parser.add_argument("--decisions", type=int, default=300, metavar="N", help="decisions to time")
    parser.add_argument("--backend", choices=BACKENDS, default="auto", help="the search to measure (default: auto)")


def run(asked: argparse.Namespace) -> dict[str, Any]:
    """Speed and quality. Raises ValueError for a backend that is not built here, or for too few to tell."""
    for flag, number, least in (("--instances", asked.instances, 1), ("--decisions", asked.decisions, 2)):
        if number < least:
            raise ValueError(f"{flag} must be at least {least}, but it is {number}.")
    chosen = backend() if asked.backend == "auto" else asked.backend
    return {"backend": chosen, **speed(chosen, asked.decisions), **quality(chosen, asked.instances)}


def speed(chosen: str, num_decisions: int) -> dict[str, Any]:
    """Microseconds for a decision at 96 layers of one to three kinds with 40 options each, under memory pressure.

    Costs are the curves of shipped cost models, times as if profiled. Cold is a length never seen before: curves
    evaluated, both loss heads considered. `planner_cold_us_median` is the
    whole of `Planner.plan` for such a length, with the neighbouring length for hysteresis.
    """
    chooser = random.Random(0)
    stacks = [random_deep_stack(chooser, num_kinds=1 + case % 3) for case in range(num_decisions)]
    cold_us = [_cold_us(stack, chosen) for stack in stacks]
    twin_us = [_cold_us(stack, "python") for stack in stacks[:NUM_TWIN]]
    planner_us = [_planner_us(stack, chosen) for stack in stacks[:NUM_TWIN]]
    ratios = [slow / fast for slow, fast in zip(twin_us, cold_us, strict=False)]
    return {
        "num_layers": len(stacks[0].sources.layers),
        "num_options": len(stacks[0].sources.options[0]),
        "num_decisions": len(stacks),
        "cold_us_median": statistics.median(cold_us),
        "cold_us_p90": statistics.quantiles(cold_us, n=10)[-1],
        "planner_cold_us_median": statistics.median(cold for cold, _ in planner_us),
        "cached_us_median": statistics.median(cached for _, cached in planner_us),
        "twin_us_median": statistics.median(twin_us),
        "speedup_over_twin": statistics.median(ratios),
    }


def quality(chosen: str, num_instances: int) -> dict[str, Any]:
    """Greedy over exact in time, on random problems; and on how many the two disagree whether anything fits.

    The predicted peak of each plan is compared with that of a schedule run event by event.
    """
    searches: Any = native if chosen == "cpp" else search
    exact_choice = native.exact_choice if chosen == "cpp" else exact.exact_choice
    gaps, num_disagreements, num_wrong_peaks = [], 0, 0
    for problem in random_problems(seed=1, num=num_instances):
        best, found = exact_choice(problem), searches.greedy_choice(problem)
        if (best is None) != (found is None) or (found is not None and not problem.fits(found)):
            num_disagreements += 1
        elif best is not None and found is not None:
            gaps.append(problem.milliseconds(found) / problem.milliseconds(best) - 1)
            held = problem.head_bytes, problem.num_in_flight, problem.head_buffer_bytes
            simulated = schedule_peak(problem.costs(found), *held)
            num_wrong_peaks += simulated != problem.peak_bytes(found)
    return {
        "num_instances": num_instances,
        "num_feasible": len(gaps),
        "num_feasibility_disagreements": num_disagreements,
        "num_peaks_unlike_the_simulated": num_wrong_peaks,
        "greedy_gap_mean": statistics.fmean(gaps) if gaps else None,
        "greedy_gap_worst": max(gaps, default=None),
    }


def _cold_us(stack: DeepStack, chosen: str) -> float:
    """Of one decision: the median over some lengths, none seen before; the stage has decided for other ones."""
    stage = stack.stage(chosen)
    stage.best(stack.tokens // 2)
    lengths = [stack.tokens - 16 * step for step in range(NUM_LENGTHS[chosen])]
    return statistics.median(_timed_us(lambda tokens=tokens: stage.best(tokens)) for tokens in lengths)  # type: ignore[misc]


def _planner_us(stack: DeepStack, chosen: str) -> tuple[float, float]:
    """Of `Planner.plan` for a new length, and for one it has seen."""
    planner: Planner = stack.planner(chosen)
    planner.plan(stack.tokens // 2)
    cold = _timed_us(lambda: planner.plan(stack.tokens))
    cached = _timed_us(lambda: [planner.plan(stack.tokens) for _ in range(LOOPS)]) / LOOPS
    return cold, cached


def _timed_us(work: Callable[[], object]) -> float:
    begin = time.perf_counter_ns()
    work()
    return (time.perf_counter_ns() - begin) / 1000
