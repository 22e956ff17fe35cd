"""Some ranks of a process group as a group of their own, without a process group of their own.

An exchange among a few ranks is an all-to-all of the whole group in which nothing goes to the others, and a hop is a
send to any rank. So no process group has to be made: nothing to create ahead on every rank of the world in the same
order, nothing that grows with the number of layers or sizes, and no second communicator beside the group's own.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch.distributed as dist


@dataclass(frozen=True)
class Subgroup:
    """Ranks that exchange with each other, while those of `parent` outside it do the same among themselves.

    Attributes:
        parent: the process group that carries what they send.
        members: their ranks in `parent`; this rank is one of them.
    """

    parent: dist.ProcessGroup
    members: tuple[int, ...]

    def size(self) -> int:
        """Number of members, as `ProcessGroup.size`."""
        return len(self.members)

    def rank(self) -> int:
        """This rank's place among the members, as `ProcessGroup.rank`."""
        return self.members.index(self.parent.rank())

    def in_parent(self, rows_by_member: Sequence[int]) -> list[int]:
        """Rows for each member as rows for each rank of `parent`. Members ascend, so rows need no other order."""
        assert list(self.members) == sorted(self.members)
        rows = [0] * self.parent.size()
        for member, num_rows in zip(self.members, rows_by_member, strict=True):
            rows[member] = num_rows
        return rows


Peers = dist.ProcessGroup | Subgroup
"""Who takes part: a whole process group or some of its ranks."""


def process_group(peers: Peers) -> dist.ProcessGroup:
    """The process group that carries what the peers send."""
    return peers.parent if isinstance(peers, Subgroup) else peers


def global_rank(peers: Peers, rank: int) -> int:
    """The rank in the world of the peer with that place."""
    place = peers.members[rank] if isinstance(peers, Subgroup) else rank
    return dist.get_global_rank(process_group(peers), place)
