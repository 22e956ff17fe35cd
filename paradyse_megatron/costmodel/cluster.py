"""The machine, in the few numbers that an analytic estimate needs."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from paradyse_megatron.costmodel.described import from_yaml
from paradyse_megatron.costmodel.work import KINDS


@dataclass(frozen=True)
class Link:
    """How one rank reaches others.

    Attributes:
        bandwidth_bytes_per_s: what it can send.
        latency_us: of one collective or hop with next to no data.
    """

    bandwidth_bytes_per_s: float
    latency_us: float

    def __post_init__(self) -> None:
        _check("bandwidth_bytes_per_s", self.bandwidth_bytes_per_s, self.bandwidth_bytes_per_s > 0, "above 0")
        _check("latency_us", self.latency_us, self.latency_us >= 0, "at least 0")


@dataclass(frozen=True)
class Cluster:
    """One rank's share of a machine.

    Attributes:
        peak_flops_per_s: peak rate of matrix products by dtype name.
        achievable_fraction: share of that peak which large products reach.
        memory_bytes: device memory of a rank.
        memory_bandwidth_bytes_per_s: device memory, read or written.
        ranks_per_node: ranks that reach each other by `intra_node`.
        intra_node: within a node.
        inter_node: to another node, one rank's share of the node's network.
        layer_overhead_us: of one layer, forward and backward, with next to no tokens (launches, Python).
        hop_overlap_fraction: share of what is sent beside attention, or of attention, that hides behind the other.
        attention_materialised: whether Megatron's local layers run: the attention core of `tp_sp` stores s x s scores
            (DotProductAttention), rather than running a flash kernel, and norms are not fused.
        links: within a node, by kind of message (`work.KINDS`), where more is known than `intra_node` says.
    """

    peak_flops_per_s: Mapping[str, float]
    achievable_fraction: float
    memory_bytes: int
    memory_bandwidth_bytes_per_s: float
    ranks_per_node: int
    intra_node: Link
    inter_node: Link
    layer_overhead_us: float
    hop_overlap_fraction: float
    attention_materialised: bool
    links: Mapping[str, Link] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for name in ("memory_bytes", "memory_bandwidth_bytes_per_s", "ranks_per_node"):
            _check(name, getattr(self, name), getattr(self, name) > 0, "above 0")
        _check("layer_overhead_us", self.layer_overhead_us, self.layer_overhead_us >= 0, "at least 0")
        _check("achievable_fraction", self.achievable_fraction, 0 < self.achievable_fraction <= 1, "above 0, at most 1")
        _check("hop_overlap_fraction", self.hop_overlap_fraction, 0 <= self.hop_overlap_fraction <= 1, "from 0 to 1")
        for kind in self.links:
            if kind not in KINDS:
                raise ValueError(f"links must be of {', '.join(KINDS)}, but there is {kind!r}.")
        for dtype, rate in self.peak_flops_per_s.items():
            _check(f"peak_flops_per_s of {dtype}", rate, rate > 0, "above 0")

    @classmethod
    def from_yaml(cls, path: str | os.PathLike[str]) -> Cluster:
        """Read a file such as those in `configs/clusters`; ValueError names file and key."""
        return from_yaml(cls, path)

    def shared_by(self, num_ranks: int) -> Cluster:
        """One such node with so many ranks; more than it has places for share its arithmetic, memory and links."""
        if num_ranks <= self.ranks_per_node:
            return self
        crowd = num_ranks / self.ranks_per_node

        def shared(link: Link) -> Link:
            return Link(link.bandwidth_bytes_per_s / crowd, link.latency_us * crowd)

        return replace(
            self,
            peak_flops_per_s={dtype: rate / crowd for dtype, rate in self.peak_flops_per_s.items()},
            memory_bytes=int(self.memory_bytes / crowd),
            memory_bandwidth_bytes_per_s=self.memory_bandwidth_bytes_per_s / crowd,
            ranks_per_node=num_ranks,
            intra_node=shared(self.intra_node),
            links={kind: shared(link) for kind, link in self.links.items()},
            layer_overhead_us=self.layer_overhead_us * crowd,
        )

    def flops_per_ms(self, dtype: str) -> float:
        """Achievable floating-point operations in a millisecond.

        Raises:
            ValueError: the cluster says nothing of `dtype`.
        """
        if dtype not in self.peak_flops_per_s:
            known = ", ".join(self.peak_flops_per_s)
            raise ValueError(f"The cluster has no peak_flops_per_s for the model's dtype {dtype!r}; it has {known}.")
        return self.peak_flops_per_s[dtype] * self.achievable_fraction / 1000


def _check(name: str, value: float, holds: bool, allowed: str) -> None:
    if not holds:
        raise ValueError(f"{name} must be {allowed}, but it is {value}.")
