"""Links as ranks measured them, in place of what a description says: networks differ more than processors do."""

from __future__ import annotations

from collections.abc import Mapping
from statistics import fmean, harmonic_mean

from paradyse_megatron.costmodel.cluster import Link

COLLECTIVES = {
    "gather": ("all_gather", "reduce_scatter"),
    "exchange": ("all_to_all",),
    "hop": ("hop",),
    "broadcast": ("all_gather", "reduce_scatter"),
}
"""Measured collectives (`profiling.wires`) that each kind of message (`work.KINDS`) is taken to be like."""


def measured_links(wires: Mapping[str, Mapping[str, float]]) -> dict[str, Link]:
    """By kind of message, from `latency_us` and `bytes_per_s` by collective; {} where nothing was measured."""
    if not wires:
        return {}
    return {
        kind: Link(
            bandwidth_bytes_per_s=harmonic_mean([wires[name]["bytes_per_s"] for name in names]),
            latency_us=fmean(wires[name]["latency_us"] for name in names),
        )
        for kind, names in COLLECTIVES.items()
    }
