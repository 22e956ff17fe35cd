"""The exchange plans, replayed on numpy for all ranks, against the definition of the two orders."""

import numpy as np
import pytest

from paradyse_megatron.layouts.zigzag import (
    causal_pairs,
    contiguous_positions,
    num_chunks_sent,
    to_zigzag_exchange,
    zigzag_positions,
)

GROUP_SIZES = [1, 2, 3, 4, 5, 6, 8]
CHUNK_LENGTHS = [1, 2, 3, 7]


def replay(exchanges, local_rows):
    """All ranks' exchange as MPI defines an all-to-all: rank r's receive buffer is the blocks for r in source order."""
    chunk_length = len(local_rows[0]) // 2
    blocks = []
    for exchange, rows in zip(exchanges, local_rows, strict=True):
        chunks = rows.reshape(2, chunk_length)
        buffer = np.concatenate([chunks[index] for index in exchange.send_order])
        cuts = np.cumsum(exchange.send_chunks_per_rank)[:-1] * chunk_length
        blocks.append(np.split(buffer, cuts))
    received = []
    for rank, exchange in enumerate(exchanges):
        incoming = [blocks[source][rank] for source in range(len(exchanges))]
        assert [len(block) for block in incoming] == [n * chunk_length for n in exchange.recv_chunks_per_rank]
        chunks = np.concatenate(incoming).reshape(2, chunk_length)
        received.append(np.concatenate([chunks[index] for index in exchange.receive_order]))
    return received


@pytest.mark.parametrize("chunk_length", CHUNK_LENGTHS)
@pytest.mark.parametrize("group_size", GROUP_SIZES)
def test_exchange_replayed_on_all_ranks(group_size, chunk_length):
    seq_length = 2 * group_size * chunk_length
    ranks = range(group_size)
    contiguous = np.split(np.arange(seq_length), group_size)
    exchanges = [to_zigzag_exchange(rank, group_size) for rank in ranks]
    zigzag = replay(exchanges, contiguous)
    for rank in ranks:
        np.testing.assert_array_equal(contiguous[rank], contiguous_positions(rank, group_size, seq_length))
        np.testing.assert_array_equal(zigzag[rank], zigzag_positions(rank, group_size, seq_length))
    back = replay([exchange.inverse() for exchange in exchanges], zigzag)
    np.testing.assert_array_equal(np.stack(back), np.stack(contiguous))


@pytest.mark.parametrize("group_size", GROUP_SIZES)
def test_the_send_buffer_is_in_ascending_destination_order_and_stable(group_size):
    for rank in range(group_size):
        exchange = to_zigzag_exchange(rank, group_size)
        owners = [min(c, 2 * group_size - 1 - c) for c in (2 * rank, 2 * rank + 1)]
        laid = [(owners[index], index) for index in exchange.send_order]
        assert laid == sorted(laid)
        assert exchange.inverse().inverse() == exchange
        assert num_chunks_sent(rank, group_size) == sum(owner != rank for owner in owners)


def test_the_table_of_four_ranks():
    held = [zigzag_positions(rank, 4, 16).tolist() for rank in range(4)]
    assert held == [[0, 1, 14, 15], [2, 3, 12, 13], [4, 5, 10, 11], [6, 7, 8, 9]]


@pytest.mark.parametrize("group_size", GROUP_SIZES)
def test_zigzag_work_is_equal_and_contiguous_work_is_not(group_size):
    seq_length = 2 * group_size * 16
    ranks = range(group_size)
    counted = [causal_pairs(zigzag_positions(rank, group_size, seq_length)) for rank in ranks]
    assert len(set(counted)) == 1
    assert sum(counted) == seq_length * (seq_length + 1) // 2
    contiguous = [causal_pairs(contiguous_positions(rank, group_size, seq_length)) for rank in ranks]
    last_over_mean = contiguous[-1] / (sum(contiguous) / group_size)
    assert last_over_mean == pytest.approx(2 - 1 / group_size, rel=0.05)  # (2P - 1) / P: about twice the mean


def test_positions_of_long_sequences_do_not_overflow():
    positions = zigzag_positions(7, 8, 4_194_304)
    assert positions.dtype == np.int64
    assert causal_pairs(positions) == 4_194_304 * 4_194_305 // 16


def test_lengths_and_ranks_that_do_not_exist_are_sentences():
    with pytest.raises(ValueError, match="18 tokens cannot be cut into 2 x 4 equal chunks; pad it to a multiple of 8"):
        zigzag_positions(0, 4, 18)
    with pytest.raises(ValueError, match="Rank 4 does not exist in a group of 4 ranks"):
        to_zigzag_exchange(4, 4)
    with pytest.raises(ValueError, match="Rank -1"):
        zigzag_positions(-1, 4, 16)
