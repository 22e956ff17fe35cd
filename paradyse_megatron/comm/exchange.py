"""Even all-to-alls in the background, and a pipeline of them beside compute."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch.distributed as dist
from torch import Tensor

from paradyse_megatron.comm.collectives import Group


class Exchange:
    """`rows[i]` on its way to rank i of the group, while a like part comes from each rank.

    All ranks begin their exchanges in the same order, from one thread.
    """

    def __init__(self, rows: Tensor, group: Group):
        self._sent: Tensor | None = rows.contiguous()  # kept alive until it is sent
        self._received: Tensor | None = self._sent
        self._work: dist.Work | None = None
        if group.size() > 1:
            self._received = self._sent.new_empty(self._sent.shape)
            self._work = dist.all_to_all_single(self._received, self._sent, group=group, async_op=True)

    def wait(self) -> None:
        """Wait until all has come, and let go of what was sent."""
        if self._work is not None:
            self._work.wait()
        self._work = self._sent = None

    def take(self) -> Tensor:
        """What came, [P, ...] by source, complete. It is the caller's to let go; to be called once."""
        self.wait()
        received, self._received = self._received, None
        assert received is not None, "taken before"
        return received


def there_and_back[Chunk](
    chunks: Sequence[Chunk],
    group: Group,
    begin: Callable[[Chunk], Tensor],
    middle: Callable[[Chunk, Exchange], Tensor],
    end: Callable[[Chunk, Exchange], None],
) -> None:
    """Every chunk, in order, through `begin`, an exchange, `middle`, an exchange, `end`.

    The way there runs beside the `middle` of the chunk before; the way back beside the `begin` of the chunk after next.
    At any time one chunk at most is on each way. `middle` and `end` take what came from the `Exchange`.
    """
    coming: Exchange | None = Exchange(begin(chunks[0]), group)
    going: tuple[Chunk, Exchange] | None = None
    for index, chunk in enumerate(chunks):
        assert coming is not None
        here, coming = coming, None
        here.wait()
        if index + 1 < len(chunks):
            coming = Exchange(begin(chunks[index + 1]), group)
        if going is not None:
            end(*going)
        going = chunk, Exchange(middle(chunk, here), group)
    assert going is not None
    end(*going)
