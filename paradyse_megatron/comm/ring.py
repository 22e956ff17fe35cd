"""One hop round a ring of ranks, in the background."""

from __future__ import annotations

import torch
import torch.distributed as dist
from torch import Tensor

from paradyse_megatron.comm.subgroups import Peers, global_rank, process_group


class Hop:
    """A block on its way to the next rank, while the previous rank's block comes in."""

    def __init__(self, block: Tensor, group: Peers, tag: int = 0):
        rank, num_ranks = group.rank(), group.size()
        self._sent = block.contiguous()  # kept alive until the send is done
        self._received = torch.empty_like(self._sent)
        following = global_rank(group, (rank + 1) % num_ranks)
        preceding = global_rank(group, (rank - 1) % num_ranks)
        self._works = dist.batch_isend_irecv(
            [
                dist.P2POp(dist.isend, self._sent, following, process_group(group), tag),
                dist.P2POp(dist.irecv, self._received, preceding, process_group(group), tag),
            ]
        )

    def wait(self) -> Tensor:
        """The block of the previous rank, complete."""
        for work in self._works:
            work.wait()
        return self._received
