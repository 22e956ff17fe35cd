"""This package's strategies, between the projections."""

from __future__ import annotations

import functools
from collections.abc import Iterator

from torch import Tensor

from paradyse_megatron.bench.peers.case import Case
from paradyse_megatron.bench.peers.contestant import RING, TOKENS_FIRST, ULYSSES, Contestant, Fused
from paradyse_megatron.comm.collectives import Group
from paradyse_megatron.strategies.attention.ring import zigzag_ring
from paradyse_megatron.strategies.attention.ulysses import exchanged_attention

AGAIN = " again"
"""Suffix of a contestant that is there twice: how far apart the two are is noise."""


def contestants(case: Case, group: Group) -> Iterator[Contestant]:
    """Each twice."""
    geometry = case.geometry

    def ulysses(mixed: Tensor) -> Tensor:
        return exchanged_attention(mixed, geometry, group).unflatten(-1, (-1, case.head_dim))

    ring = functools.partial(zigzag_ring, group=group, softmax_scale=geometry.softmax_scale)
    for suffix in ("", AGAIN):
        yield Contestant(f"ours{suffix}", RING, True, TOKENS_FIRST, TOKENS_FIRST, ring, is_ours=True)
        yield Contestant(f"ours{suffix}", ULYSSES, False, Fused(geometry), TOKENS_FIRST, ulysses, is_ours=True)
