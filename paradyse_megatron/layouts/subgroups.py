"""P ranks as P/u sub-groups of u: heads are exchanged inside them, keys and values travel a ring across them.

Sub-groups are consecutive ranks, which share a node where ranks are numbered node by node. Ring i joins the i-th ranks
of all sub-groups; the sub-group's number is the place in the ring. At P = 6, u = 2: sub-groups {0,1} {2,3} {4,5}, rings
{0,2,4} {1,3,5}. (Unified sequence parallelism, arXiv 2405.07719.)
"""

from __future__ import annotations

import math


def ulysses_degree(group_size: int, num_groups: int, ranks_per_node: int | None = None) -> int:
    """Ranks u of a sub-group: the largest number that divides P, the g key/value heads and `ranks_per_node`.

    A divisor of g, so that no key/value head is copied; within a node, where links are fast, when the number of ranks
    on a node is given and less than P.
    """
    within = group_size if ranks_per_node is None or ranks_per_node >= group_size else ranks_per_node
    return math.gcd(group_size, num_groups, within)


def subgroup_of(rank: int, subgroup_size: int) -> tuple[int, ...]:
    """The ranks of the sub-group of `rank`, ascending."""
    first = rank // subgroup_size * subgroup_size
    return tuple(range(first, first + subgroup_size))


def ring_of(rank: int, group_size: int, subgroup_size: int) -> tuple[int, ...]:
    """The ranks of the ring of `rank`, in the order of their sub-groups."""
    return tuple(range(rank % subgroup_size, group_size, subgroup_size))
