"""Sharded weights that pass by owner after owner: every rank holds the same owner's shards at the same time.

The memory-efficient counterpart of `comm.gathered`, for weights too big to gather: what a layer computes with the
whole weight is a sum over its shards, so each owner's shards are broadcast, used on own tokens and let go (METP of
ParaDySe, arXiv 2511.13198, section on memory-efficient tensor parallelism). The next owner's are in flight while this
one's are in use; a rank holds its own shard and two more, whatever P, and nothing as large as a full weight.

The way back is the mirror image: each owner's weight gradient is summed onto that owner (a reduce), in the background
while the next owner's is computed.

Sends per rank, for W elements of weights: W (P-1)/P in a pass over them; as much for the gradients.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import torch
import torch.distributed as dist
from torch import Tensor

from paradyse_megatron.comm.collectives import Group, start_broadcast, start_reduce

Shards = list[Tensor | None]
"""One tensor for each streamed parameter; None where the layer has none (no bias) or wants no gradient."""


class ShardStream:
    """One use of some sharded parameters by one layer in one micro-batch.

    Args:
        parameters: this rank's shards, shaped alike on all ranks; None stands for a parameter that the layer lacks.
        group: the ranks that hold the other shards.
    """

    def __init__(self, parameters: Sequence[Tensor | None], group: Group):
        self.parameters = tuple(parameters)
        self.group = group

    def owners(self) -> Iterator[tuple[int, Shards]]:
        """Each owner's rank and shards, in ascending order.

        What is yielded may be used until the next is asked for: the one after that is received in its place. This
        rank's own shards are the parameters themselves, which are only ever sent from, never received into.
        """
        own = [None if parameter is None else parameter.detach().contiguous() for parameter in self.parameters]
        slots: list[Shards] = [[], []]
        arriving = self._broadcast(0, own, slots[0])
        for owner in range(self.group.size()):
            shards, works = arriving
            for work in works:
                work.wait()
            if owner + 1 < self.group.size():
                arriving = self._broadcast(owner + 1, own, slots[(owner + 1) % 2])
            yield owner, shards

    def _broadcast(self, owner: int, own: Shards, slot: Shards) -> tuple[Shards, list[dist.Work]]:
        """Begin to send or receive the shards of `owner`; `slot` holds the receive buffers, made on first need."""
        if owner == self.group.rank():
            shards = own
        else:
            if not slot:
                slot.extend(None if shard is None else torch.empty_like(shard) for shard in own)
            shards = slot
        if self.group.size() == 1:
            return shards, []
        return shards, [start_broadcast(shard, owner, self.group) for shard in shards if shard is not None]


class GradientsToOwners:
    """The way back of one `ShardStream`: the ranks' partial gradients of an owner's shards, summed on that owner.

    At most one gradient of each parameter is under way; `start` waits for the one before.
    """

    def __init__(self, stream: ShardStream):
        self._stream = stream
        self._own: Shards = [None] * len(stream.parameters)
        self._works: list[dist.Work | None] = [None] * len(stream.parameters)
        self._under_way: Shards = [None] * len(stream.parameters)

    def start(self, owner: int, index: int, grad: Tensor) -> None:
        """Begin to sum the gradient of the parameter at `index`, the shard of `owner`; `grad` is given away."""
        group = self._stream.group
        self._wait(index)
        grad = grad.contiguous()
        if owner == group.rank():
            self._own[index] = grad
        if group.size() > 1:
            self._under_way[index] = grad  # kept alive until it is sent
            self._works[index] = start_reduce(grad, owner, group)

    def finish(self) -> Shards:
        """The complete gradients of this rank's own shards; None where none was started."""
        for index, parameter in enumerate(self._stream.parameters):
            self._wait(index)
            if parameter is not None and hasattr(parameter, "grad_added_to_main_grad"):
                # Megatron's fused weight-gradient kernel leaves this set; DDP would then drop what is returned here.
                parameter.grad_added_to_main_grad = False
        return self._own

    def _wait(self, index: int) -> None:
        work, self._works[index] = self._works[index], None
        if work is not None:
            work.wait()
        self._under_way[index] = None
