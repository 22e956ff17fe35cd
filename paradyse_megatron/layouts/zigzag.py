"""Contiguous and zigzag token order, and the exchange between them, as integers.

The sequence is cut into 2P equal chunks of s/(2P) tokens. In *contiguous* order rank r holds chunks 2r and 2r+1; in
*zigzag* order rank i holds chunks i and 2P-1-i, in that order, which gives every rank the same causal attention work
(the zigzag order of ring-flash-attention and of Megatron's context parallelism).

With sub-groups (`layouts.subgroups`) each of the P/u sub-groups of u ranks takes the part that a rank has above:
sub-group j holds the u chunks from j u on and the u chunks from (2 P/u - 1 - j) u on, two consecutive ones of these 2u
a rank. So after an all-to-all inside the sub-group its tokens are in zigzag order over P/u places. With u = P nothing
moves.

Why the receiver needs no permutation: an all-to-all lays what it received in ascending order of source rank. Zigzag
rank i receives chunk i from rank i // 2 and chunk 2P-1-i from rank (2P-1-i) // 2. As i < 2P-1-i, the first source is
not after the second; when they are the same rank (P odd, i = P-1, chunks P-1 and P), that rank sends them in
ascending order, since sorting by destination is stable. So the receiver always finds chunk i, then chunk 2P-1-i. With
sub-groups likewise, as a rank's first chunk still comes before its second.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

ChunkPair = tuple[int, int]


@dataclass(frozen=True)
class ZigzagExchange:
    """What one rank does to bring its two chunks from one order into the other.

    Lay the local chunks in the send buffer by `send_order`, run an all-to-all with the counts (times the chunk's rows),
    take the received chunks by `receive_order`.

    Attributes:
        send_order: `send_order[k]` is the local chunk (0 or 1) at place k of the send buffer.
        send_chunks_per_rank: chunks that go to each rank, length P.
        recv_chunks_per_rank: chunks that come from each rank, length P.
        receive_order: `receive_order[k]` is the place in the receive buffer of the new local chunk k.
    """

    send_order: ChunkPair
    send_chunks_per_rank: tuple[int, ...]
    recv_chunks_per_rank: tuple[int, ...]
    receive_order: ChunkPair

    def inverse(self) -> ZigzagExchange:
        """The way back: what was received is sent, what was sent is received.

        Both orders are permutations of two, which are their own inverses.
        """
        return ZigzagExchange(self.receive_order, self.recv_chunks_per_rank, self.send_chunks_per_rank, self.send_order)


def to_zigzag_exchange(rank: int, group_size: int, subgroup_size: int = 1) -> ZigzagExchange:
    """The exchange of `rank` from contiguous to zigzag order; `.inverse()` goes back."""
    destinations = [zigzag_owner(chunk, group_size, subgroup_size) for chunk in contiguous_chunks(rank, group_size)]
    sources = [chunk // 2 for chunk in zigzag_chunks(rank, group_size, subgroup_size)]
    return ZigzagExchange(
        send_order=(0, 1) if destinations[0] <= destinations[1] else (1, 0),
        send_chunks_per_rank=tuple(destinations.count(peer) for peer in range(group_size)),
        recv_chunks_per_rank=tuple(sources.count(peer) for peer in range(group_size)),
        receive_order=(0, 1),
    )


def contiguous_chunks(rank: int, group_size: int) -> ChunkPair:
    """The chunks that `rank` holds in contiguous order."""
    _check_rank(rank, group_size)
    return 2 * rank, 2 * rank + 1


def zigzag_chunks(rank: int, group_size: int, subgroup_size: int = 1) -> ChunkPair:
    """The chunks that `rank` holds in zigzag order."""
    _check_rank(rank, group_size)
    place, member = divmod(rank, subgroup_size)
    first = place * subgroup_size
    of_subgroup = [
        *range(first, first + subgroup_size),
        *range(2 * group_size - first - subgroup_size, 2 * group_size - first),
    ]
    return of_subgroup[2 * member], of_subgroup[2 * member + 1]


def zigzag_owner(chunk: int, group_size: int, subgroup_size: int = 1) -> int:
    """The rank that holds `chunk` in zigzag order."""
    run, within = divmod(chunk, subgroup_size)
    last_run = 2 * group_size // subgroup_size - 1
    place, is_second_run = min(run, last_run - run), run > last_run - run
    return place * subgroup_size + (within + is_second_run * subgroup_size) // 2


def num_chunks_sent(rank: int, group_size: int, subgroup_size: int = 1) -> int:
    """How many of its two chunks `rank` sends to other ranks when it goes to zigzag order (as many come back)."""
    counts = to_zigzag_exchange(rank, group_size, subgroup_size).send_chunks_per_rank
    return sum(counts) - counts[rank]


def contiguous_positions(rank: int, group_size: int, seq_length: int) -> NDArray[np.int64]:
    """Global positions of the s/P tokens of `rank` in contiguous order."""
    return _positions(contiguous_chunks(rank, group_size), group_size, seq_length)


def zigzag_positions(rank: int, group_size: int, seq_length: int) -> NDArray[np.int64]:
    """Global positions of the s/P tokens of `rank` in zigzag order.

    Raises:
        ValueError: `seq_length` is not a multiple of 2P.
    """
    return _positions(zigzag_chunks(rank, group_size), group_size, seq_length)


def causal_pairs(positions: NDArray[np.int64]) -> int:
    """Causal attention work of a rank: the number of (query, key) pairs, where query p sees keys 0 to p."""
    return int(positions.sum()) + positions.size


def _positions(chunks: ChunkPair, group_size: int, seq_length: int) -> NDArray[np.int64]:
    if seq_length % (2 * group_size):
        raise ValueError(
            f"A sequence of {seq_length} tokens cannot be cut into 2 x {group_size} equal chunks; pad it to a multiple "
            f"of {2 * group_size} with pad_to_multiple."
        )
    chunk_length = seq_length // (2 * group_size)
    return np.concatenate([np.arange(chunk * chunk_length, (chunk + 1) * chunk_length) for chunk in chunks])


def _check_rank(rank: int, group_size: int) -> None:
    if not 0 <= rank < group_size:
        raise ValueError(f"Rank {rank} does not exist in a group of {group_size} ranks.")
