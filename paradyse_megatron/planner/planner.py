"""From a sequence length to a plan."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import SupportsIndex

from paradyse_megatron.layouts.padding import pad_to_multiple, padding_multiple, positive_whole
from paradyse_megatron.planner.backends import backend, make_stage
from paradyse_megatron.planner.cost import CostSource
from paradyse_megatron.planner.plan import HEADS, Plan
from paradyse_megatron.planner.sources import find_sources

__all__ = ["Planner", "backend", "grid_length"]
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
        cost_model: costs of a layer by option and length (`costmodel.model.CostModel`), also with several kinds of
            layers; or one for each kind, by its name. Options that a kind has no costs of are not for its layers.
        num_layers: layers on this rank.
        memory_budget_bytes: bound on a rank's peak of `static_bytes` and activations.
        options: texts of the options that may be used; None means all that the cost model knows.
        layer_kinds: name of each layer's kind, such as "dense" or "moe"; None means that all are alike. The loss head's
            costs are those in the cost model of the last layer.
        hysteresis: accepted share of additional predicted time, 0.05 is 5 %.
        microbatches_in_flight: micro-batches whose activations are there at once (pipeline schedule).
        with_head: whether this rank runs the loss head (the last pipeline stage does).
        static_bytes: what is there whatever the plan: weights, gradients, optimizer state.
        chunked_head: whether plans may have the loss head computed in chunks, where the cost model knows that (`head`).
        backend: "cpp", "python", or "auto" for the former where it is built; they give the same plans.

    Raises:
        ValueError: an argument out of range, or an option that the cost model does not know.
    """

    def __init__(
        self,
        cost_model: CostSource | Mapping[str, CostSource],
        num_layers: int,
        memory_budget_bytes: int,
        *,
        options: Sequence[str] | None = None,
        layer_kinds: Sequence[str] | None = None,
        hysteresis: float = 0.05,
        microbatches_in_flight: int = 1,
        with_head: bool = True,
        static_bytes: int = 0,
        chunked_head: bool = True,
        backend: str = "auto",
    ):
        if not 0 <= hysteresis < math.inf:
            raise ValueError(f"The hysteresis must be a share of at least 0, such as 0.05, but it is {hysteresis}.")
        if static_bytes < 0:
            raise ValueError(f"The static bytes must not be negative, but they are {static_bytes}.")
        self.num_layers = positive_whole(num_layers, "The number of layers", "layer")
        self.memory_budget_bytes = positive_whole(memory_budget_bytes, "The memory budget", "byte")
        num_in_flight = positive_whole(microbatches_in_flight, "The micro-batches in flight", "micro-batch")
        sources = find_sources(
            cost_model, self.num_layers, layer_kinds, options, with_head=with_head, chunked_head=chunked_head
        )
        self.options = tuple(dict.fromkeys(option for of_kind in sources.options for option in of_kind))
        self.heads = sources.heads or HEADS[:1]
        self._options_by_layer = [sources.options[kind] for kind in sources.layers]
        self._group_size = sources.models[0].group_size
        self._hysteresis = hysteresis
        self.static_bytes = static_bytes
        self._stage = make_stage(backend, sources, self.memory_budget_bytes - static_bytes, num_in_flight)
        self._plan_of_length = lru_cache(MAX_CACHED_LENGTHS)(self._plan)
        self._plan_of_padded = lru_cache(MAX_CACHED_LENGTHS)(self._choose)
        self._best_at_grid = lru_cache(MAX_CACHED_LENGTHS)(self._stage.best)

    def plan(self, seq_length: SupportsIndex) -> Plan:
        """The plan for sequences of `seq_length` tokens, planned for the length they are padded to.

        Where no plan fits, the one with the lowest peak, with `fits` False.

        Raises:
            ValueError: `seq_length` is not a whole number of at least 1.
        """
        if type(seq_length) is int:  # others, such as tensors, may change
            return self._plan_of_length(seq_length)
        return self._plan(seq_length)

    def _plan(self, seq_length: SupportsIndex) -> Plan:
        return self._plan_of_padded(pad_to_multiple(seq_length, self._group_size))

    def largest_length(self, limit: SupportsIndex) -> int:
        """The longest length of at most `limit` tokens for which some plan fits; 0 when there is none. By bisection."""
        limit = positive_whole(limit, "The limit of the length", "token")
        if self._stage.some_fits(pad_to_multiple(limit, self._group_size)):
            return limit
        multiple = padding_multiple(self._group_size)
        fitting, too_long = 0, -(-limit // multiple)
        while too_long - fitting > 1:
            middle = (fitting + too_long) // 2
            if self._stage.some_fits(middle * multiple):
                fitting = middle
            else:
                too_long = middle
        return fitting * multiple

    def _choose(self, padded_length: int) -> Plan:
        best = self._stage.best(padded_length)
        preferred = self._best_at_grid(grid_length(padded_length, padding_multiple(self._group_size)))
        if (preferred.head, preferred.choice) != (best.head, best.choice):
            here = self._stage.weigh(padded_length, preferred.head, preferred.choice)
            if here.fits and here.milliseconds <= (1 + self._hysteresis) * best.milliseconds:
                best = here
        return Plan(
            tuple([options[index] for options, index in zip(self._options_by_layer, best.choice, strict=True)]),
            predicted_ms=best.milliseconds,
            predicted_bytes=best.peak_bytes + self.static_bytes,
            fits=best.fits,
            head=best.head,
        )


def grid_length(seq_length: int, multiple: int) -> int:
    """The smallest length of the geometric grid that is at least `seq_length`, in tokens.

    The grid is `multiple` times floor(2 ** (k / 4)), k = 0, 1, 2 and so on. Worked out in integers, so that no two
    machines differ. With n multiples in `seq_length`, floor(2 ** (k / 4)) >= n exactly when 2 ** k >= n ** 4.
    """
    num_multiples = -(-seq_length // multiple)
    steps = (num_multiples**GRID_STEPS_PER_OCTAVE - 1).bit_length()  # smallest k with 2 ** k >= n ** 4
    return multiple * math.isqrt(math.isqrt(2**steps))
