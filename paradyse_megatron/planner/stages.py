"""Plans for a whole pipeline: each stage by its own planner, with its layers, budget and micro-batches in flight."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import SupportsIndex

from paradyse_megatron.planner.option import Option
from paradyse_megatron.planner.plan import Plan
from paradyse_megatron.planner.planner import MAX_CACHED_LENGTHS, Planner


class PipelinePlanner:
    """Plans stage by stage; like `Planner`, a function of the length and of its arguments only.

    Early stages hold more micro-batches (`in_flight`), the last one the loss head, and layers of different kinds may
    lie in each: so each stage gives up as much time for memory as it must itself.

    Args:
        stages: planners of the stages, first stage first; with several chunks all have as many layers.
        num_chunks: parts of a stage's layers that lie apart in the model (virtual pipeline stages).
        own_stage: gives this rank's stage, whose time and memory its plans note; None: those of the neediest.
    """

    def __init__(self, stages: Sequence[Planner], num_chunks: int = 1, own_stage: Callable[[], int] | None = None):
        if not stages:
            raise ValueError("A pipeline needs at least one stage.")
        self.stages = tuple(stages)
        self.num_chunks = num_chunks
        self.num_layers = sum(stage.num_layers for stage in stages)
        self.options: tuple[Option, ...] = tuple(dict.fromkeys(option for each in stages for option in each.options))
        self.heads = stages[-1].heads
        self.memory_budget_bytes = min(stage.memory_budget_bytes for stage in stages)
        self._own_stage = own_stage
        self._plan_of_length = lru_cache(MAX_CACHED_LENGTHS)(self._plan)

    @property
    def own_static_bytes(self) -> int:
        """What is there whatever the plan on this rank; on the rank that has most where `own_stage` is not known."""
        if self._own_stage is None:
            return max(stage.static_bytes for stage in self.stages)
        return self.stages[self._own_stage()].static_bytes

    def plan(self, seq_length: SupportsIndex) -> Plan:
        """The plan of all layers in the order of the model. Where none fits it notes what the neediest stage needs."""
        return self._plan_of_length(seq_length) if type(seq_length) is int else self._plan(seq_length)

    def largest_length(self, limit: SupportsIndex) -> int:
        """The longest length of at most `limit` tokens that fits on every stage; 0 when there is none."""
        return min(stage.largest_length(limit) for stage in self.stages)

    def _plan(self, seq_length: SupportsIndex) -> Plan:
        plans = [stage.plan(seq_length) for stage in self.stages]
        fits = all(plan.fits for plan in plans)
        noted = [plans[self._own_stage()]] if fits and self._own_stage is not None else plans
        return Plan(
            self._in_order([plan.layer_options for plan in plans]),
            predicted_ms=max(plan.predicted_ms or 0.0 for plan in noted),
            predicted_bytes=max(plan.predicted_bytes or 0 for plan in noted),
            fits=fits,
            head=plans[-1].head,
        )

    def _in_order(self, by_stage: list[tuple[Option, ...]]) -> tuple[Option, ...]:
        if self.num_chunks == 1:
            return tuple(option for options in by_stage for option in options)
        placed: dict[int, Option] = {}
        for stage, options in enumerate(by_stage):
            layers = layers_of_stage(stage, len(by_stage), self.num_chunks, self.num_layers)
            placed.update(zip(layers, options, strict=True))
        return tuple(placed[layer] for layer in range(self.num_layers))


def layers_of_stage(stage: int, num_stages: int, num_chunks: int, num_layers: int) -> tuple[int, ...]:
    """Which layers of the model, from 0, a stage has: every stage's first chunk, every stage's second, and so on.

    Raises:
        ValueError: layers that cannot be dealt evenly.
    """
    length, rest = divmod(num_layers, num_stages * num_chunks)
    if rest or not length:
        raise ValueError(
            f"{num_layers} layers cannot be dealt evenly to {num_stages} pipeline stages with {num_chunks} chunks each."
        )
    begins = [(chunk * num_stages + stage) * length for chunk in range(num_chunks)]
    return tuple(layer for begin in begins for layer in range(begin, begin + length))


def in_flight(stage: int, num_stages: int, num_chunks: int = 1) -> int:
    """Micro-batches that a stage holds at once under one-forward-one-backward; stage 0 is the first (PipeDream).

    Interleaved over v chunks, with p stages and r the stage: Megatron runs 2 (p - r - 1) + (v - 1) p chunks ahead, and
    each is 1 / v of a stage's layers (arXiv 2104.04473, section 2.2); rounded up.
    """
    if not 0 <= stage < num_stages:
        raise ValueError(f"The stage must be from 0 to {num_stages - 1}, but it is {stage}.")
    if num_chunks == 1:
        return num_stages - stage
    return -(-(2 * (num_stages - stage - 1) + (num_chunks - 1) * num_stages + 1) // num_chunks)
