"""A launcher whose rank 1 has a fault: `python -m tests.training.tampered --fault NAME ARGUMENTS`."""

from __future__ import annotations

import os
import sys
import time
from dataclasses import replace
from typing import Any

from paradyse_megatron.costmodel import first_principles
from paradyse_megatron.costmodel.model import CostModel
from paradyse_megatron.integration import launch, pretrain
from paradyse_megatron.planner.option import Option
from paradyse_megatron.planner.plan import Plan
from paradyse_megatron.runtime.decision import FixedPlan
from paradyse_megatron.runtime.feedback import corrected

FAULTY_RANK = "1"


def main() -> int:
    """Exit status of the launcher, or of a rank."""
    if "RANK" not in os.environ:
        launch.choose_program = lambda: ["-m", "tests.training.tampered"]
        return launch.main(sys.argv[1:])
    place = sys.argv.index("--fault")
    fault = FAULTS[sys.argv[place + 1]]
    del sys.argv[place : place + 2]
    if os.environ["RANK"] == FAULTY_RANK:
        fault()
    return pretrain.main()


def cut_file() -> None:
    """The cost model's file ends in the middle."""
    path = os.path.join(os.environ["PARADYSE_OUT"], "cut.json")
    with open(path, "w") as file:
        file.write('{"schema": 1, "options"')
    sys.argv += ["--paradyse-cost-model", path]


def other_costs() -> None:
    """A whole and valid file of this model, in which one option takes three times as long."""
    estimate = first_principles.estimate

    def estimate_otherwise(*args: Any, **arguments: Any) -> CostModel:
        path = os.path.join(os.environ["PARADYSE_OUT"], "other.json")
        corrected(estimate(*args, **arguments), {"tp_sp": 3.0}).save(path)
        return CostModel.load(path)

    first_principles.estimate = estimate_otherwise


def other_budget() -> None:
    """Less memory than the others have."""
    sys.argv += ["--paradyse-memory-budget", "1GiB"]


def other_plan() -> None:
    """Long sequences are recomputed, which sends nothing: without a comparison nobody would ever know."""
    decide = FixedPlan.decide

    def decide_otherwise(self: FixedPlan, padded_length: int) -> Plan:
        plan = decide(self, padded_length)
        options = (Option.parse("tp_sp+selective"), *plan.layer_options[1:])
        return replace(plan, layer_options=options) if padded_length > 100 else plan

    FixedPlan.decide = decide_otherwise  # type: ignore[method-assign]


def skewed_clock() -> None:
    """A clock that goes a thousand times too fast, and a date that is months ahead."""
    original, date = time.perf_counter, time.time
    time.perf_counter = lambda: 1000 * original()
    time.time = lambda: 1e7 + date()


FAULTS = {fault.__name__: fault for fault in (cut_file, other_costs, other_budget, other_plan, skewed_clock)}

if __name__ == "__main__":
    sys.exit(main())
