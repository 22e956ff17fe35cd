"""Megatron's own context parallelism: T tensor-parallel times C context-parallel ranks compute one sequence.

Each of the C ranks holds s/C tokens of every sequence and each tensor-parallel group computes them as `tp_sp` does;
attention alone needs the others' tokens (megatron-core 0.19, `cp_comm_type`):

- `p2p`: keys and values travel round a ring; every rank gets an equal share of the causal pairs.
- `a2a`: queries, keys, values and output are exchanged for heads (Ulysses); C divides the key/value heads of a rank.
- `all_gather`: keys and values are gathered whole before attention.

Counted as our own strategies are (`costmodel.volumes`), in its favour where it is not known: attention by a flash
kernel, hops hidden beside compute as ours, gradients of keys and values travel in the model's own precision,
context-parallel ranks reduce gradients hidden behind backward. The combination `a2a+p2p` is left out.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from dataclasses import dataclass

from paradyse_megatron.costmodel.first_principles import estimate
from paradyse_megatron.costmodel.model import CostModel
from paradyse_megatron.costmodel.shape import ModelShape
from paradyse_megatron.costmodel.support import excluded_options
from paradyse_megatron.planner.memory import peak_bytes
from paradyse_megatron.simulation.choice import longest_fitting
from paradyse_megatron.simulation.network import Network, static_bytes

FLASH_BACKWARD = 2.5  # backward of flash attention over its forward (arXiv 2307.08691)
COMMUNICATION = ("p2p", "a2a", "all_gather")
LAYER_OPTIONS = ("tp_sp", "tp_sp+full")


@dataclass(frozen=True)
class ContextParallel:
    """A static choice of Megatron.

    Attributes:
        costs: of `LAYER_OPTIONS` on T ranks without context parallelism, see `tensor_parallel_costs`.
        network: where it runs.
        context_ranks: C.
        communication: one of `COMMUNICATION`.
        option: of each layer, one of `LAYER_OPTIONS`.
        budget_bytes: of a GPU; None for no limit.
    """

    costs: CostModel
    network: Network
    context_ranks: int
    communication: str = "p2p"
    option: str = "tp_sp"
    budget_bytes: int | None = None

    kind = "megatron"

    @property
    def shape(self) -> ModelShape:
        """The model; layers all alike."""
        return self.costs.shape

    @property
    def tensor_ranks(self) -> int:
        """T."""
        return self.costs.group_size

    @property
    def group_size(self) -> int:
        """T C."""
        return self.tensor_ranks * self.context_ranks

    @property
    def name(self) -> str:
        """Such as "TP2 CP4 p2p +full"."""
        recompute = "" if self.option == "tp_sp" else " +full"
        return f"TP{self.tensor_ranks} CP{self.context_ranks} {self.communication}{recompute}"

    def milliseconds(self, seq_length: int) -> float:
        """See `Choice`."""
        local = self._local(seq_length)
        layer = self.costs.predict(self.option, local).milliseconds
        forwards = 2 if self.option.endswith("+full") else 1
        passes = forwards + FLASH_BACKWARD
        more_pairs = self._pairs_ms(local * self.context_ranks) / self.context_ranks - self._pairs_ms(local)
        layer += passes * more_pairs + self._exchange_ms(local, forwards)
        return self.shape.num_layers * layer + self.costs.predict_head(local).milliseconds

    def longest(self, limit: int) -> int:
        """See `Choice`."""
        return limit if self.budget_bytes is None else longest_fitting(self.fits, limit)

    def fits(self, seq_length: int) -> bool:
        """Whether the peak of a GPU is within the budget."""
        return self.budget_bytes is None or self.peak_bytes(seq_length) <= self.budget_bytes

    def peak_bytes(self, seq_length: int) -> int:
        """Of a GPU: what `tp_sp` holds of s/C tokens, and the travelling keys and values (received and sent)."""
        local = self._local(seq_length)
        cost = self.costs.predict(self.option, local)
        in_flight = 4 if self.communication == "p2p" else 2 * self.context_ranks
        travelling = 0 if self.context_ranks == 1 else in_flight * self._key_value_bytes(local)
        layer = dataclasses.replace(cost, workspace_bytes=cost.workspace_bytes + travelling)
        head = self.costs.predict_head(local)
        static = static_bytes(self.shape, self.tensor_ranks, self.network.num_gpus)
        return static + peak_bytes(
            [layer] * self.shape.num_layers, head.saved_bytes, head_buffer_bytes=head.buffer_bytes
        )

    def _local(self, seq_length: int) -> int:
        """Tokens of a context-parallel rank, padded so that its two halves are dealt evenly to T ranks."""
        multiple = 2 * self.tensor_ranks if self.context_ranks > 1 else self.tensor_ranks
        return -(-seq_length // (self.context_ranks * multiple)) * multiple

    def _pairs_ms(self, tokens: int) -> float:
        """Causal attention of so many tokens on T ranks, forward."""
        flops = 2 * self.shape.query_size * tokens * tokens / self.tensor_ranks
        return flops / self.network.cluster.flops_per_ms(self.shape.dtype)

    def _key_value_bytes(self, local: int) -> int:
        """Keys and values of a rank's tokens and heads; shared key/value heads are there once on each rank."""
        groups = max(1, self.shape.num_query_groups // self.tensor_ranks)
        return 2 * groups * self.shape.head_dim * local * self.shape.bytes_per_element

    def _exchange_ms(self, local: int, forwards: int) -> float:
        """What attention sends in a layer, forward and backward, less what hides beside compute."""
        others = self.context_ranks - 1
        if not others:
            return 0.0
        key_values = self._key_value_bytes(local) * others
        if self.communication == "p2p":
            exposed = 1 - self.network.cluster.hop_overlap_fraction
            return exposed * self._sending_ms((forwards + 2) * key_values, (forwards + 2) * others)
        if self.communication == "all_gather":
            return self._sending_ms((forwards + 2) * key_values, forwards + 2)
        queries = 2 * self.shape.query_size // self.tensor_ranks * local * self.shape.bytes_per_element
        once = (queries * others + 2 * self._key_value_bytes(local) * others) // self.context_ranks
        return self._sending_ms((forwards + 1) * once, 2 * (forwards + 1))

    def _sending_ms(self, num_bytes: float, calls: int) -> float:
        link = self.network.link(self.group_size)
        return 1000 * num_bytes / link.bandwidth_bytes_per_s + calls * link.latency_us / 1000


def context_parallel_choices(
    shape: ModelShape, network: Network, budget_bytes: int | None
) -> Iterator[ContextParallel]:
    """Every T (within a node) and C in powers of two, with every way to communicate that the heads allow."""
    for tensor_ranks in tensor_degrees(shape, network):
        costs = tensor_parallel_costs(shape, network, tensor_ranks)
        for context_ranks in _powers_of_two(network.num_gpus // tensor_ranks):
            for communication in COMMUNICATION if context_ranks > 1 else COMMUNICATION[:1]:
                if communication == "a2a" and (shape.num_query_groups // tensor_ranks) % context_ranks:
                    continue
                for option in LAYER_OPTIONS:
                    yield ContextParallel(costs, network, context_ranks, communication, option, budget_bytes)


def tensor_degrees(shape: ModelShape, network: Network) -> list[int]:
    """Powers of two within a node that the model's heads allow."""
    degrees = _powers_of_two(min(network.num_gpus, network.gpus_per_node))
    return [degree for degree in degrees if not set(LAYER_OPTIONS) & set(excluded_options(shape, degree))]


def _powers_of_two(most: int) -> list[int]:
    return [1 << exponent for exponent in range(most.bit_length())]


def tensor_parallel_costs(shape: ModelShape, network: Network, tensor_ranks: int) -> CostModel:
    """Of Megatron's layers on T ranks, with attention by a flash kernel."""
    return estimate(shape, network.fused().cluster, tensor_ranks, LAYER_OPTIONS)
