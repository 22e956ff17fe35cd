"""A chunk of heads in whole weights and in what is exchanged: views, and rows dealt to the ranks that own their heads.

Own tokens are n = t b rows here, and [P, n, heads, d] is what an all-to-all sends or receives.
"""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from paradyse_megatron.comm import executors
from paradyse_megatron.layouts.heads import HeadChunk, HeadDealing


@dataclass(frozen=True)
class HeadBlocks:
    """All that follows from who owns which heads.

    Attributes:
        dealing: of the heads to the ranks.
        head_dim: d.
    """

    dealing: HeadDealing
    head_dim: int

    def query(self, whole: Tensor, chunk: HeadChunk) -> Tensor:
        """Of the fused projection [(a + 2g) d, ...] the rows of a chunk's query heads, rank after rank; a view."""
        dealing = self.dealing
        of_all_sharers = self._by_group(whole)[:, chunk.groups, :-2]
        # A rank with several key/value heads shares none of them, so this order is rank after rank.
        own = of_all_sharers.unflatten(2, (dealing.num_copies, dealing.heads_per_own_group))
        return own[:, :, :, chunk.heads]

    def key_value(self, whole: Tensor, chunk: HeadChunk) -> Tensor:
        """Likewise those of its keys and values, each once, however many ranks share it."""
        return self._by_group(whole)[:, chunk.groups, -2:]

    def context(self, whole: Tensor, chunk: HeadChunk) -> Tensor:
        """Likewise the rows of a chunk's query heads in the output projection's transpose [a d, h]."""
        dealing = self.dealing
        own = whole.unflatten(0, (dealing.num_ranks, dealing.own_groups, dealing.heads_per_own_group, self.head_dim))
        return own[:, chunk.groups, chunk.heads]

    def _by_group(self, whole: Tensor) -> Tensor:
        """[P / copies, own groups, query heads of a group + 2, d, ...]."""
        of_group = self.dealing.num_heads // self.dealing.num_groups + 2
        return whole.unflatten(0, (-1, self.dealing.own_groups, of_group, self.head_dim))

    def deal(self, rows: Tensor) -> Tensor:
        """Rows [n, P * heads * d], rank after rank, as [P, n, heads, d]; a view."""
        return rows.unflatten(1, (self.dealing.num_ranks, -1, self.head_dim)).movedim(1, 0)

    def deal_(self, dealt: Tensor, rows: Tensor) -> None:
        """Rows [n, P * heads * d], rank after rank, into [P, n, heads, d]."""
        executors.current().copy_(dealt, self.deal(rows))

    def collect(self, dealt: Tensor) -> Tensor:
        """[P, n, heads, d] back to [n, P * heads * d]."""
        by_row = dealt.movedim(0, 1)
        rows = executors.current().empty(tuple(by_row.shape), dealt)
        executors.current().copy_(rows, by_row)
        return rows.flatten(1)

    def deal_copies_(self, dealt: Tensor, rows: Tensor) -> None:
        """Keys and values [n, P/copies * heads * d] into [P, n, heads, d], the same for ranks that share them."""
        copies = self.dealing.num_copies
        once = rows.unflatten(1, (self.dealing.num_ranks // copies, -1, self.head_dim)).movedim(1, 0)
        place = dealt.unflatten(0, (-1, copies))
        executors.current().copy_(place, once.unsqueeze(1).expand_as(place))

    def sum_copies(self, dealt: Tensor) -> Tensor:
        """Their gradients [P, n, heads, d] back to [n, P/copies * heads * d]."""
        return self.collect(dealt.unflatten(0, (-1, self.dealing.num_copies)).sum(1))
