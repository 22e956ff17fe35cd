"""From a sequence length to a plan."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache
from typing import SupportsIndex

from paradyse_megatron.layouts.padding import pad_to_multiple, padding_multiple, positive_whole
from paradyse_megatron.planner.cost import Cost, CostSource, HeadCost
from paradyse_megatron.planner.feasible import least_saved_choice
from paradyse_megatron.planner.head import Variant, best_draft
from paradyse_megatron.planner.option import Option
from paradyse_megatron.planner.plan import HEADS, Plan
from paradyse_megatron.planner.problem import Problem

MAX_CACHED_LENGTHS = 4096
GRID_STEPS_PER_OCTAVE = 4  # `grid_length` takes a fourth root


class Planner:
    """Chooses, for each length, the plan with the least predicted time whose predicted peak of memory fits.

    A plan is a function of the length and of the arguments below, and of nothing else: ranks with the same arguments
    reach the same plan without talking, and a resumed run repeats an uninterrupted one to the last bit.

    So hysteresis, which keeps plans from flickering between lengths where two of them are about as fast, must not
    depend on what was planned before. Lengths are grouped by a geometric grid (four steps an octave), and each prefers
    the best plan of the grid length at or above it: that one is kept where it fits and takes at most `hysteresis` more
    time than the best.

    Args:
        cost_model: costs of a layer by option and length (`costmodel.model.CostModel`).
        num_layers: layers on this rank, all of the same kind.
        memory_budget_bytes: bound on a rank's peak of `static_bytes` and activations.
        options: texts of the options that may be used; None means all that the cost model knows.
        hysteresis: accepted share of additional predicted time, 0.05 is 5 %.
        microbatches_in_flight: micro-batches whose activations are there at once (pipeline schedule).
        with_head: whether this rank runs the loss head (the last pipeline stage does).
        static_bytes: what is there whatever the plan: weights, gradients, optimizer state.
        chunked_head: whether plans may have the loss head computed in chunks, where the cost model knows that (`head`).

    Raises:
        ValueError: an argument out of range, or an option that the cost model does not know.
    """

    def __init__(
        self,
        cost_model: CostSource,
        num_layers: int,
        memory_budget_bytes: int,
        *,
        options: Sequence[str] | None = None,
        hysteresis: float = 0.05,
        microbatches_in_flight: int = 1,
        with_head: bool = True,
        static_bytes: int = 0,
        chunked_head: bool = True,
    ):
        if not 0 <= hysteresis < math.inf:
            raise ValueError(f"The hysteresis must be a share of at least 0, such as 0.05, but it is {hysteresis}.")
        if static_bytes < 0:
            raise ValueError(f"The static bytes must not be negative, but they are {static_bytes}.")
        self.options = _known_options(cost_model, options)
        self.num_layers = positive_whole(num_layers, "The number of layers", "layer")
        self.memory_budget_bytes = positive_whole(memory_budget_bytes, "The memory budget", "byte")
        self._cost_model = cost_model
        self._hysteresis = hysteresis
        self._num_in_flight = positive_whole(microbatches_in_flight, "The micro-batches in flight", "micro-batch")
        self._with_head = with_head
        self.heads = getattr(cost_model, "heads", HEADS[:1]) if chunked_head and with_head else HEADS[:1]
        self._static_bytes = static_bytes
        self._plan_of_padded = lru_cache(MAX_CACHED_LENGTHS)(self._choose)
        self._best_at_grid = lru_cache(MAX_CACHED_LENGTHS)(lambda length: best_draft(self._variants(length)))

    def plan(self, seq_length: SupportsIndex) -> Plan:
        """The plan for sequences of `seq_length` tokens, planned for the length they are padded to.

        Where no plan fits, the one with the lowest peak, with `fits` False.

        Raises:
            ValueError: `seq_length` is not a whole number of at least 1.
        """
        return self._plan_of_padded(pad_to_multiple(seq_length, self._cost_model.group_size))

    def largest_length(self, limit: SupportsIndex) -> int:
        """The longest length of at most `limit` tokens for which some plan fits; 0 when there is none. By bisection."""
        limit = positive_whole(limit, "The limit of the length", "token")
        if self._some_plan_fits(pad_to_multiple(limit, self._cost_model.group_size)):
            return limit
        multiple = padding_multiple(self._cost_model.group_size)
        fitting, too_long = 0, -(-limit // multiple)
        while too_long - fitting > 1:
            middle = (fitting + too_long) // 2
            if self._some_plan_fits(middle * multiple):
                fitting = middle
            else:
                too_long = middle
        return fitting * multiple

    def _some_plan_fits(self, padded_length: int) -> bool:
        variants = self._variants(padded_length).values()
        return any(least_saved_choice(variant.problem) is not None for variant in variants)

    def _choose(self, padded_length: int) -> Plan:
        variants = self._variants(padded_length)
        best = best_draft(variants)
        preferred = self._best_at_grid(grid_length(padded_length, padding_multiple(self._cost_model.group_size)))
        bound_ms = (1 + self._hysteresis) * variants[best.head].milliseconds(best.choice)
        variant = variants[preferred.head]
        if variant.problem.fits(preferred.choice) and variant.milliseconds(preferred.choice) <= bound_ms:
            best = preferred
        variant = variants[best.head]
        return Plan(
            tuple(self.options[index] for index in best.choice),
            predicted_ms=variant.milliseconds(best.choice),
            predicted_bytes=variant.problem.peak_bytes(best.choice) + self._static_bytes,
            fits=variant.problem.fits(best.choice),
            head=best.head,
        )

    def _variants(self, padded_length: int) -> dict[str, Variant]:
        """The planning problem at a length, by head."""
        costs = tuple(self._cost(option, padded_length) for option in self.options)
        return {head: self._variant(costs, self._head(head, padded_length)) for head in self.heads}

    def _variant(self, costs: tuple[Cost, ...], head: HeadCost) -> Variant:
        problem = Problem(
            layers=(costs,) * self.num_layers,
            budget_bytes=self.memory_budget_bytes - self._static_bytes,
            head_bytes=head.saved_bytes,
            num_in_flight=self._num_in_flight,
        )
        return Variant(problem, head.milliseconds)

    def _cost(self, option: Option, padded_length: int) -> Cost:
        return self._cost_model.predict(str(option), padded_length)

    def _head(self, head: str, padded_length: int) -> HeadCost:
        if not self._with_head:
            return HeadCost(0.0, 0)
        arguments = () if head == HEADS[0] else (head,)
        return self._cost_model.predict_head(padded_length, *arguments)


def grid_length(seq_length: int, multiple: int) -> int:
    """The smallest length of the geometric grid that is at least `seq_length`, in tokens.

    The grid is `multiple` times floor(2 ** (k / 4)), k = 0, 1, 2 and so on. Worked out in integers, so that no two
    machines differ. With n multiples in `seq_length`, floor(2 ** (k / 4)) >= n exactly when 2 ** k >= n ** 4.
    """
    num_multiples = -(-seq_length // multiple)
    steps = (num_multiples**GRID_STEPS_PER_OCTAVE - 1).bit_length()  # smallest k with 2 ** k >= n ** 4
    return multiple * math.isqrt(math.isqrt(2**steps))


def _known_options(cost_model: CostSource, texts: Sequence[str] | None) -> tuple[Option, ...]:
    known = cost_model.options
    chosen = tuple(dict.fromkeys(Option.parse(text) for text in (known if texts is None else texts)))
    if not chosen:
        raise ValueError(f"The planner needs at least one option; the cost model knows {', '.join(known) or 'none'}.")
    for option in chosen:
        if str(option) not in known:
            raise ValueError(f"The cost model has no costs of {str(option)!r}; it knows {', '.join(known)}.")
    return chosen
