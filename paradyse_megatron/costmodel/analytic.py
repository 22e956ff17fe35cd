"""How long work takes on a described machine.

Products take what their arithmetic or their memory traffic takes, whichever is more; everything else is memory
traffic. What a strategy sends beside attention hides behind it to the extent that the machine overlaps the two, and
that attention lasts: of max(a, c) + (1 - overlap) min(a, c) both arguments of the maximum are polynomials, so the time
is the largest of a few polynomials. The rest is added up.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import product

from paradyse_megatron.costmodel.cluster import Cluster
from paradyse_megatron.costmodel.curve import Curve, simplified
from paradyse_megatron.costmodel.polynomial import Polynomial
from paradyse_megatron.costmodel.work import Pass, Transfer, Work

_BACKWARD_OVERHEAD = 2 / 3
"""Share of a layer's fixed overhead; forward has the rest."""


def milliseconds(work: Work, cluster: Cluster, dtype: str) -> Curve:
    """Forward and backward of one layer."""
    forward_sent = [(each, each.forward_bytes, each.forward_calls) for each in work.transfers]
    backward_sent = [(each, each.backward_bytes, each.backward_calls) for each in work.transfers]
    forward = direction_terms(work.forward, forward_sent, cluster, dtype)
    backward = direction_terms(work.backward, backward_sent, cluster, dtype)
    overheads = 1 + (1 - _BACKWARD_OVERHEAD) * work.recomputes_all
    overhead = Polynomial(overheads * cluster.layer_overhead_us / 1000)
    return Curve(simplified(ahead + back + overhead for ahead, back in product(forward, backward)))


def direction_terms(
    computed: Pass, sent: list[tuple[Transfer, Polynomial, int]], cluster: Cluster, dtype: str
) -> tuple[Polynomial, ...]:
    """Polynomials whose largest is the milliseconds of one direction.

    Args:
        sent: transfers with the bytes and calls of this direction.
    """
    flops_per_ms, bytes_per_ms = cluster.flops_per_ms(dtype), cluster.memory_bandwidth_bytes_per_s / 1000
    products = (computed.product_flops / flops_per_ms, computed.product_bytes / bytes_per_ms)
    attention, beside = computed.attention_flops / flops_per_ms, Polynomial()
    rest = computed.moved_bytes / bytes_per_ms
    for transfer, num_bytes, calls in sent:
        time = sending_ms(transfer.kind, transfer.num_peers, num_bytes, calls, cluster)
        beside += transfer.share_beside_attention * time
        rest += (1 - transfer.share_beside_attention) * time
    exposed = 1 - cluster.hop_overlap_fraction
    cores = (attention + exposed * beside, beside + exposed * attention)
    return simplified(rest + matrices + core for matrices, core in product(products, cores))


def sending_ms(kind: str, num_peers: int, num_bytes: Polynomial, calls: int, cluster: Cluster) -> Polynomial:
    """Time of messages among `num_peers` consecutive ranks, of which this one sends `num_bytes` in so many calls."""
    inside, across = cluster.links.get(kind, cluster.intra_node), cluster.inter_node
    seconds_per_byte, latency_us = 1 / inside.bandwidth_bytes_per_s, inside.latency_us
    if num_peers > cluster.ranks_per_node:
        seconds_per_byte = max(seconds_per_byte, _ACROSS[kind](num_peers, cluster) / across.bandwidth_bytes_per_s)
        latency_us += across.latency_us
    return num_bytes * (1000 * seconds_per_byte) + Polynomial(calls * latency_us / 1000)


_ACROSS: dict[str, Callable[[int, Cluster], float]] = {
    # Rings of ranks, one for each network adapter of a node, so that every one of them carries its share.
    "gather": lambda num_peers, cluster: 1 / cluster.ranks_per_node,
    "broadcast": lambda num_peers, cluster: 1 / cluster.ranks_per_node,
    # To each peer as much; those on other nodes are behind this rank's adapter.
    "exchange": lambda num_peers, cluster: (num_peers - cluster.ranks_per_node) / (num_peers - 1),
    # The slowest hop of a ring holds up the others: the one that leaves the node.
    "hop": lambda num_peers, cluster: 1.0,
}
"""Bytes that pass a rank's network adapter for each byte that it sends."""
