"""How the loss head cuts the sequence: which rows of every rank's shard are computed at a time.

A chunk is the same rows [k c, (k + 1) c) of each of the P ranks' shards, n = P c b tokens, so each rank contributes
rows of its own and gets back the gradient of the same rows. What is transient grows with n; what a chunk costs
whatever its size (collectives, one pass over the sum of the weight's gradient) weighs less the larger n is. Hence

    n max(V/P, h) elements take at most max(64 MiB, a quarter of the weight's gradient V/P h), in accumulator precision:

the logits, n V/P, and the gathered rows, n h. That gradient has to be there anyway, so chunking needs little more than
it, whatever the length; and with n = h/4 tokens the products of a chunk, 8 n V/P h operations, outweigh the pass over
it.
"""

from __future__ import annotations

CHUNK_BYTES = 64 * 2**20


def tokens_per_chunk(num_columns: int, hidden_size: int, bytes_per_element: int) -> int:
    """The most tokens n of a chunk.

    Args:
        num_columns: columns of the vocabulary on a rank, V/P.
        hidden_size: h.
        bytes_per_element: in accumulator precision: 4, or 8 in fp64.
    """
    wider, narrower = max(num_columns, hidden_size), min(num_columns, hidden_size)
    return max(1, narrower // 4, CHUNK_BYTES // (wider * bytes_per_element))


def rows_per_chunk(num_rows: int, tokens_per_row: int, max_tokens: int) -> int:
    """Rows c of a rank's shard in each chunk but the last, which may have fewer; chunks as even as they can be.

    Args:
        num_rows: rows of the shard, s/P.
        tokens_per_row: tokens of all ranks in one row, P b.
        max_tokens: `tokens_per_chunk`; one row is taken even if it has more.
    """
    most = max(1, max_tokens // tokens_per_row)
    num_chunks = -(-num_rows // most)
    return -(-num_rows // num_chunks)
