"""Plans for a whole pipeline: each stage by its own planner, with its layers, budget and micro-batches in flight."""

from __future__ import annotations

from collections.abc import Sequence
from typing import SupportsIndex

from paradyse_megatron.planner.plan import Plan
from paradyse_megatron.planner.planner import Planner


class PipelinePlanner:
    """Plans stage by stage; like `Planner`, a function of the length and of its arguments only.

    Early stages hold more micro-batches (`in_flight`), the last one the loss head, and layers of different kinds may
    lie in each: so each stage gives up as much time for memory as it must itself.

    Args:
        stages: planners of the stages, first stage first.
    """

    def __init__(self, stages: Sequence[Planner]):
        if not stages:
            raise ValueError("A pipeline needs at least one stage.")
        self.stages = tuple(stages)

    def plan(self, seq_length: SupportsIndex) -> Plan:
        """The plan of all layers: time and memory are those of the stage that needs most, the head's is the last's."""
        plans = [stage.plan(seq_length) for stage in self.stages]
        return Plan(
            tuple(option for plan in plans for option in plan.layer_options),
            predicted_ms=max(plan.predicted_ms or 0.0 for plan in plans),
            predicted_bytes=max(plan.predicted_bytes or 0 for plan in plans),
            fits=all(plan.fits for plan in plans),
            head=plans[-1].head,
        )

    def largest_length(self, limit: SupportsIndex) -> int:
        """The longest length of at most `limit` tokens that fits on every stage; 0 when there is none."""
        return min(stage.largest_length(limit) for stage in self.stages)


def in_flight(stage: int, num_stages: int) -> int:
    """Micro-batches that a stage holds at once under one-forward-one-backward; stage 0 is the first (PipeDream)."""
    if not 0 <= stage < num_stages:
        raise ValueError(f"The stage must be from 0 to {num_stages - 1}, but it is {stage}.")
    return num_stages - stage
