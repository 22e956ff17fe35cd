"""From a micro-batch's length to its plan: a fixed one, or the planner's."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Protocol

from paradyse_megatron.costmodel.model import CostModel
from paradyse_megatron.layouts.padding import pad_to_multiple, padding_multiple
from paradyse_megatron.planner.plan import Plan
from paradyse_megatron.planner.stages import PipelinePlanner


class Decider(Protocol):
    """A function of the padded length alone, so that all ranks and pipeline stages agree without talking."""

    def decide(self, padded_length: int) -> Plan:
        """The plan of the whole model for a micro-batch of `padded_length` tokens; raises ValueError on a misfit."""

    def predicted_peak_bytes(self, plan: Plan, resident_bytes: int) -> int | None:
        """Peak of memory during a micro-batch that begins with `resident_bytes` in use; None without costs."""

    def longest_fitting(self, limit: int) -> int | None:
        """The longest sequence of at most `limit` tokens that some plan fits, 0 if none does; None without costs."""

    def misfit(self, padded_length: int) -> str:
        """Why a sequence of `padded_length` tokens, which no plan fits, cannot be trained on, and what would help."""

    def describe(self) -> dict[str, object]:
        """All that decisions depend on; equal on every rank, or ranks would part ways."""

    def save_costs(self, path: Path) -> None:
        """Keep what was planned by, for `paradyse plan` and for the next run; nothing without costs."""


@dataclass(frozen=True)
class FixedPlan:
    """The same plan whatever the length.

    Attributes:
        plan: options of all layers.
        group_size: ranks P of the model-parallel group.
        longest_whole_head: tokens above which the loss head is chunked even if the plan does not say so; None: never.
    """

    plan: Plan
    group_size: int
    longest_whole_head: int | None = None

    def decide(self, padded_length: int) -> Plan:
        """The plan; a length that some strategy cannot take is refused before anything is sent."""
        _check_length(padded_length, self.group_size, str(self.plan))
        if self.longest_whole_head is None or padded_length <= self.longest_whole_head:
            return self.plan
        return replace(self.plan, head="chunked")

    def predicted_peak_bytes(self, plan: Plan, resident_bytes: int) -> int | None:
        """See `Decider`."""
        return None

    def longest_fitting(self, limit: int) -> int | None:
        """See `Decider`."""
        return None

    def misfit(self, padded_length: int) -> str:
        """See `Decider`."""
        raise AssertionError("a fixed plan is followed whatever the length")

    def describe(self) -> dict[str, object]:
        """See `Decider`."""
        return {
            "plan": str(self.plan),
            "group size": self.group_size,
            "tokens of a whole loss head": self.longest_whole_head,
        }

    def save_costs(self, path: Path) -> None:
        """See `Decider`."""


@dataclass(frozen=True)
class PlannedByLength:
    """The planner's choice for every pipeline stage; all stages know all of it.

    Attributes:
        planner: plans the layers of all stages.
        cost_model: what the planner's costs come from.
        longest: `--seq-length`, the length at which ranks compare their costs.
        positions_a_layer: positions of the model that follow each planned layer's option.
    """

    planner: PipelinePlanner
    cost_model: CostModel
    longest: int
    positions_a_layer: int = 1

    def decide(self, padded_length: int) -> Plan:
        """The plan of all stages; a length that no plan fits is refused by name."""
        _check_length(padded_length, self.cost_model.group_size, "auto")
        plan = self.planner.plan(padded_length)
        if not plan.fits:
            raise ValueError(self.misfit(padded_length))
        return self.of_all_positions(plan)

    def predicted_peak_bytes(self, plan: Plan, resident_bytes: int) -> int | None:
        """What is resident (weights and all) with the plan's activations on top."""
        if plan.predicted_bytes is None:
            return None
        return resident_bytes + plan.predicted_bytes - self.planner.own_static_bytes

    def longest_fitting(self, limit: int) -> int | None:
        """See `Decider`."""
        return self.planner.largest_length(limit)

    def misfit(self, padded_length: int) -> str:
        """See `Decider`."""
        stage, longest = self.planner.plan(padded_length), self.planner.largest_length(padded_length)
        helps = ["a larger budget", "more tensor-parallel ranks", *self._options_that_help()]
        ways = (
            "--paradyse-on-misfit skip leaves longer documents out, truncate (or a smaller --seq-length) cuts them."
            if longest
            else f"Weights, gradients and optimizer alone take {self.static_bytes:,}."
        )
        return (
            f"No plan fits a sequence of {padded_length} tokens: the least that one needs ('{stage}') is "
            f"{stage.predicted_bytes:,} bytes a rank, and --paradyse-memory-budget allows "
            f"{self.planner.memory_budget_bytes:,}. The longest sequence that fits has {longest} tokens. "
            f"What would help: {', '.join(helps)}. {ways}"
        )

    def describe(self) -> dict[str, object]:
        """See `Decider`."""
        costs = self.cost_model
        return {
            "budget bytes": self.planner.memory_budget_bytes,
            "strategies": [str(o) for o in self.planner.options],
            "layers a stage": [stage.num_layers for stage in self.planner.stages],
            "static bytes a stage": [stage.static_bytes for stage in self.planner.stages],
            "chunks a stage": self.planner.num_chunks,
            "positions a layer": self.positions_a_layer,
            "kinds of layers": costs.shape.layer_kinds,
            "costs at --seq-length": [
                repr(costs.predict(option, self.longest, kind))
                for kind in costs.kinds
                for option in map(str, self.planner.options)
                if option in costs.options_of(kind)
            ],
            "costs of the loss head": [repr(costs.predict_head(self.longest, head)) for head in self.planner.heads],
        }

    def save_costs(self, path: Path) -> None:
        """See `Decider`."""
        self.cost_model.save(path)

    @property
    def static_bytes(self) -> int:
        """Weights, gradients and optimizer on the stage that has most."""
        return max(stage.static_bytes for stage in self.planner.stages)

    def of_all_positions(self, plan: Plan) -> Plan:
        """A plan of layers with one option a position of the model."""
        if self.positions_a_layer == 1:
            return plan
        positions = tuple(option for option in plan.layer_options for _ in range(self.positions_a_layer))
        return replace(plan, layer_options=positions)

    def _options_that_help(self) -> list[str]:
        """What saves memory and is not among the options of plans yet."""
        missing = []
        if not any(option.recompute == "full" for option in self.planner.options):
            missing.append("options with +full in --paradyse-strategies (recompute)")
        if "chunked" not in self.planner.heads:
            missing.append("a chunked loss head (megatron-core 0.18 or later, 0.19 for hybrid models)")
        return missing


def _check_length(padded_length: int, group_size: int, plan: str) -> None:
    if padded_length != pad_to_multiple(padded_length, group_size):
        raise ValueError(
            f"The plan '{plan}' was given {padded_length} tokens, but with {group_size} tensor-parallel ranks "
            f"a sequence must be a multiple of {padding_multiple(group_size)}: pad it to "
            f"{pad_to_multiple(padded_length, group_size)}."
        )
