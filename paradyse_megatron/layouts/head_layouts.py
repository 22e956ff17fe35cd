"""The layouts on both sides of attention: own tokens with all heads, and all tokens with own heads.

The wire is the same for all of them: for each peer [t, b, own groups, query heads of a group + 2, d], or without keys
and values [t, b, own query heads, d]. See `layouts.heads` for who owns which heads, copies of keys and values included.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from paradyse_megatron.layouts.blocks import Integers
from paradyse_megatron.layouts.heads import HeadDealing
from paradyse_megatron.layouts.rotary import RotarySections
from paradyse_megatron.layouts.section import Axes, Section, Strides


@dataclass(frozen=True)
class AttentionSizes:
    """What the exchanges of one attention depend on.

    Attributes:
        dealing: of the heads to the P ranks.
        head_dim: d.
        num_tokens: t = s/P of a rank.
        batch: b.
    """

    dealing: HeadDealing
    head_dim: int
    num_tokens: int
    batch: int

    @property
    def heads_per_group(self) -> int:
        """Query heads of a key/value head, over all ranks that share it."""
        return self.dealing.num_heads // self.dealing.num_groups

    def tokens_of(self, rank: int | None) -> Integers:
        """[n, b, 1] numbers of the tokens of a rank, or of all, as places in the batch of sequences."""
        first, stop = (0, self.dealing.num_ranks) if rank is None else (rank, rank + 1)
        tokens = np.arange(first * self.num_tokens, stop * self.num_tokens)
        return (tokens[:, None, None] * self.batch + np.arange(self.batch)[:, None]).astype(np.int64)


@dataclass(frozen=True)
class _Ended:
    """What the layouts have in common: as much goes to each rank; an atom is one head of one token."""

    sizes: AttentionSizes

    @property
    def unit(self) -> int:
        """Elements of an atom."""
        return self.sizes.head_dim

    def blocks_per_peer(self, rank: int) -> tuple[int, ...]:
        """One for each rank."""
        return (1,) * self.sizes.dealing.num_ranks

    def is_view(self, rank: int) -> bool:
        """Whether unpacking moves nothing."""
        return False


class _Qkv(_Ended):
    @property
    def block_elements(self) -> int:
        """Elements of a block of the wire."""
        sizes, dealing = self.sizes, self.sizes.dealing
        of_token = dealing.own_groups * (dealing.heads_per_own_group + 2) * sizes.head_dim
        return sizes.num_tokens * sizes.batch * of_token

    def _wire(self) -> Axes:
        """Strides of the wire: blocks of peers, in them tokens, in them groups of heads."""
        sizes, dealing = self.sizes, self.sizes.dealing
        group = (dealing.heads_per_own_group + 2) * sizes.head_dim
        token = dealing.own_groups * group
        block = self.block_elements
        return Axes(dealing.num_copies * block, block, sizes.batch * token, token, group, sizes.head_dim)


class TokensQkv(_Qkv):
    """[t, b, (a + 2g) d]: Megatron's fused projection of own tokens, group by group queries, key, value."""

    @property
    def shapes(self) -> tuple[tuple[int, ...], ...]:
        """Of the tensor."""
        sizes, dealing = self.sizes, self.sizes.dealing
        return ((sizes.num_tokens, sizes.batch, (dealing.num_heads + 2 * dealing.num_groups) * sizes.head_dim),)

    def sections(self, rank: int, strides: tuple[Strides, ...]) -> tuple[Section, ...]:
        """One of queries, keys and values, or where ranks share keys and values two, the latter with copies."""
        queries, shared = self.sizes.dealing.heads_per_own_group, self.sizes.dealing.num_copies > 1
        runs = [(0, queries), (queries, 2)] if shared else [(0, queries + 2)]
        return tuple(self._heads(*run, strides) for run in runs)

    def rotary_sections(self, rank: int, strides: tuple[Strides, ...]) -> RotarySections:
        """Queries and keys together, or where ranks share keys each alone; then values."""
        queries, shared = self.sizes.dealing.heads_per_own_group, self.sizes.dealing.num_copies > 1
        runs = [(0, queries), (queries, 1)] if shared else [(0, queries + 1)]
        rotated = tuple(self._heads(*run, strides) for run in runs)
        copied = (self._heads(queries + 1, 1, strides),)
        return RotarySections(rotated, copied, rank * self.sizes.num_tokens, self.sizes.head_dim)

    def _heads(self, first: int, number: int, strides: tuple[Strides, ...]) -> Section:
        """A run of the heads that the wire has for each group: own queries, key, value, which all ranks share."""
        sizes, dealing, head = self.sizes, self.sizes.dealing, self.sizes.head_dim
        queries, group = dealing.heads_per_own_group, (sizes.heads_per_group + 2) * head
        peers = dealing.num_ranks // dealing.num_copies
        extents = Axes(peers, dealing.num_copies, sizes.num_tokens, sizes.batch, dealing.own_groups, 1)
        token, batch = strides[0][:2]
        is_query = first < queries
        local = Axes(dealing.own_groups * group, is_query * queries * head, token, batch, group, head)
        behind = 0 if is_query else sizes.heads_per_group - queries  # other ranks' queries of the group
        return Section(0, number * head, extents, local, self._wire(), (first + behind) * head, first * head).merged()

    def held(self, rank: int) -> list[Integers]:
        """All heads in the order of the projection."""
        columns = self.sizes.dealing.num_heads + 2 * self.sizes.dealing.num_groups
        return [(self.sizes.tokens_of(rank) * columns + np.arange(columns)).ravel()]


class HeadsQkv(_Qkv):
    """Query [s, b, a/P, d], key and value [s, b, own groups, d]."""

    @property
    def shapes(self) -> tuple[tuple[int, ...], ...]:
        """Of query, key and value."""
        sizes, dealing = self.sizes, self.sizes.dealing
        tokens = (dealing.num_ranks * sizes.num_tokens, sizes.batch)
        return tuple((*tokens, heads, sizes.head_dim) for heads in (dealing.own_heads, *[dealing.own_groups] * 2))

    def sections(self, rank: int, strides: tuple[Strides, ...]) -> tuple[Section, ...]:
        """One for each of the three."""
        sizes, dealing, block = self.sizes, self.sizes.dealing, self.block_elements
        in_group = dealing.heads_per_own_group
        found = []
        for tensor, (heads, first) in enumerate(((in_group, 0), (1, in_group), (1, in_group + 1))):
            token, batch, head = strides[tensor][:3]
            extents = Axes(dealing.num_ranks, 1, sizes.num_tokens, sizes.batch, dealing.own_groups, heads)
            local = Axes(sizes.num_tokens * token, 0, token, batch, heads * head, head)
            wire = self._wire()._replace(peer=block)
            start = first * sizes.head_dim
            found.append(Section(tensor, sizes.head_dim, extents, local, wire, wire_start=start).merged())
        return tuple(found)

    def rotary_sections(self, rank: int, strides: tuple[Strides, ...]) -> RotarySections:
        """The same sections."""
        *rotated, values = self.sections(rank, strides)
        return RotarySections(tuple(rotated), (values,), 0, self.sizes.head_dim)

    def is_view(self, rank: int) -> bool:
        """With one key/value head a rank, or one query head for each, the heads of each are evenly spaced in a row."""
        return self.sizes.dealing.own_groups == 1 or self.sizes.dealing.heads_per_own_group == 1

    def held(self, rank: int) -> list[Integers]:
        """The heads that are the rank's own, as columns of the fused projection."""
        sizes, dealing = self.sizes, self.sizes.dealing
        columns, in_group = dealing.num_heads + 2 * dealing.num_groups, sizes.heads_per_group
        heads = np.arange(rank * dealing.own_heads, (rank + 1) * dealing.own_heads)
        groups = np.arange(dealing.own_groups) + rank // dealing.num_copies * dealing.own_groups
        queries = heads // in_group * (in_group + 2) + heads % in_group
        keys = groups * (in_group + 2) + in_group
        return [(sizes.tokens_of(None) * columns + column).ravel() for column in (queries, keys, keys + 1)]


class _Context(_Ended):
    @property
    def block_elements(self) -> int:
        """Elements of a block of the wire."""
        sizes = self.sizes
        return sizes.num_tokens * sizes.batch * sizes.dealing.own_heads * sizes.head_dim

    def _section(self, local: Axes) -> tuple[Section, ...]:
        sizes, dealing = self.sizes, self.sizes.dealing
        extents = Axes(dealing.num_ranks, 1, sizes.num_tokens, sizes.batch, 1, dealing.own_heads)
        row = dealing.own_heads * sizes.head_dim
        wire = Axes(self.block_elements, 0, sizes.batch * row, row, 0, sizes.head_dim)
        return (Section(0, sizes.head_dim, extents, local, wire).merged(),)


class HeadsContext(_Context):
    """[s, b, a/P, d]: attention's output."""

    @property
    def shapes(self) -> tuple[tuple[int, ...], ...]:
        """Of the tensor."""
        sizes, dealing = self.sizes, self.sizes.dealing
        return ((dealing.num_ranks * sizes.num_tokens, sizes.batch, dealing.own_heads, sizes.head_dim),)

    def sections(self, rank: int, strides: tuple[Strides, ...]) -> tuple[Section, ...]:
        """All of it; nothing moves unless the tensor has gaps or another order."""
        token, batch, head = strides[0][:3]
        return self._section(Axes(self.sizes.num_tokens * token, 0, token, batch, 0, head))

    def is_view(self, rank: int) -> bool:
        """What comes is in token order."""
        return True

    def held(self, rank: int) -> list[Integers]:
        """The rank's own query heads."""
        dealing = self.sizes.dealing
        heads = np.arange(rank * dealing.own_heads, (rank + 1) * dealing.own_heads)
        return [(self.sizes.tokens_of(None) * dealing.num_heads + heads).ravel()]


class TokensContext(_Context):
    """[t, b, a d]: the output projection's input."""

    @property
    def shapes(self) -> tuple[tuple[int, ...], ...]:
        """Of the tensor."""
        sizes = self.sizes
        return ((sizes.num_tokens, sizes.batch, sizes.dealing.num_heads * sizes.head_dim),)

    def sections(self, rank: int, strides: tuple[Strides, ...]) -> tuple[Section, ...]:
        """A range of columns for each rank."""
        head, (token, batch) = self.sizes.head_dim, strides[0][:2]
        return self._section(Axes(self.sizes.dealing.own_heads * head, 0, token, batch, 0, head))

    def held(self, rank: int) -> list[Integers]:
        """All query heads."""
        num_heads = self.sizes.dealing.num_heads
        return [(self.sizes.tokens_of(rank) * num_heads + np.arange(num_heads)).ravel()]
