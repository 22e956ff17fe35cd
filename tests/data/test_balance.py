"""Similar lengths together: each sample still once an epoch, from the number alone, little padding, little waiting."""

from __future__ import annotations

from argparse import ArgumentParser

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from paradyse_megatron.bench.batches import bench
from paradyse_megatron.data.balance import BalancedOrder, BatchShape
from paradyse_megatron.data.order import SampleOrder
from paradyse_megatron.integration.arguments import add_arguments

shapes = st.builds(
    lambda micro, ranks, steps: BatchShape(micro, ranks, micro * ranks * steps),
    st.integers(1, 4),
    st.integers(1, 4),
    st.integers(1, 4),
)


@st.composite
def orders(draw: st.DrawFn) -> tuple[BalancedOrder, BatchShape]:
    """Of samples with lengths of any kind, windows of one batch or of several."""
    lengths = np.array(draw(st.lists(st.integers(1, 300), min_size=1, max_size=150)))
    shape = draw(shapes)
    window = shape.global_batch_size * draw(st.integers(1, 5))
    return BalancedOrder(lengths, draw(st.integers(0, 2**40)), shape, window), shape


@settings(deadline=None)  # machines may be busy
@given(orders(), st.integers(0, 5))
def test_each_sample_comes_exactly_once_an_epoch(case: tuple[BalancedOrder, BatchShape], epoch: int) -> None:
    order, _ = case
    ids = order.sample_ids(epoch * order.num_samples, order.num_samples)
    assert sorted(ids) == list(range(order.num_samples))


@settings(deadline=None)
@given(orders(), st.lists(st.tuples(st.integers(0, 300), st.integers(0, 90)), max_size=8))
def test_any_place_can_be_asked_for_at_any_time(
    case: tuple[BalancedOrder, BatchShape], requests: list[tuple[int, int]]
) -> None:
    order, shape = case
    whole = BalancedOrder(order._lengths, order._seed, shape, order._window).sample_ids(0, 400)
    for first, count in requests:
        np.testing.assert_array_equal(order.sample_ids(first, count), whole[first : first + count])


@settings(deadline=None)
@given(st.lists(st.integers(1, 300), min_size=1, max_size=150), st.integers(0, 2**40), shapes)
def test_within_a_batch_no_batch_changes(lengths: list[int], seed: int, shape: BatchShape) -> None:
    """Whatever the number of ranks: the loss of an iteration stays what it was."""
    balanced = BalancedOrder(np.array(lengths), seed, shape, shape.global_batch_size)
    shuffled = SampleOrder(len(lengths), seed)
    for batch in range(4):
        numbers = batch * shape.global_batch_size, shape.global_batch_size
        assert sorted(balanced.sample_ids(*numbers)) == sorted(shuffled.sample_ids(*numbers))


def test_seeds_epochs_and_windows_differ() -> None:
    lengths, shape = np.arange(1, 2049), BatchShape(2, 2, 8)
    first, other = (BalancedOrder(lengths, seed, shape, shape.window()) for seed in (1, 2))
    assert first.sample_ids(0, 2048).tolist() != other.sample_ids(0, 2048).tolist()
    assert first.sample_ids(0, 2048).tolist() != first.sample_ids(2048, 2048).tolist()
    assert (np.diff(first.sample_ids(0, 1024).reshape(-1, 4).min(axis=1)) < 0).any(), "steps come in an order of chance"


@pytest.mark.parametrize("num_samples", [1000, 1001, 1003])
def test_steps_hold_neighbours_in_every_epoch_and_come_in_another_order(num_samples: int) -> None:
    """Also where an end of the epoch cuts through a step."""
    shape = BatchShape(2, 2, 8)
    order = BalancedOrder(np.arange(num_samples), 1, shape, shape.window())
    shortest = []
    for epoch in range(3):
        first, end = -(-epoch * num_samples // shape.step), (epoch + 1) * num_samples // shape.step
        steps = order.sample_ids(first * shape.step, (end - first) * shape.step).reshape(-1, shape.step)
        assert len(steps) >= 249 and (np.ptp(steps, axis=1) == shape.step - 1).all()
        shortest.append(steps.min(axis=1)[:200] // 8)
    assert not any((one == other).all() for one, other in zip(shortest, shortest[1:] + shortest[:1], strict=True))


def test_the_longest_goes_to_the_rank_that_has_done_least() -> None:
    """8, 7 | 6, 5 in any order of the steps: 8 + 5 against 7 + 6."""
    order = BalancedOrder(np.array([5, 6, 7, 8]), 3, BatchShape(1, 2, 4), 4)
    assert {int(sum(order._lengths[order.sample_ids(0, 4)][rank::2])) for rank in range(2)} == {13}


def test_little_padding_and_little_waiting_on_the_demo_corpus() -> None:
    """By the order that a run has which asks for none; every shape of batches that the benchmark tries."""
    found = bench()
    by_order = {order: [row for row in found["table"] if row["order"] == order] for order in ("window", "shuffled")}
    assert len(by_order["window"]) == len(by_order["shuffled"]) == 9
    assert found["padding_worst_window"] < 0.05 and found["max_over_mean_worst_window"] < 1.1
    for row in by_order["shuffled"]:
        gain = row["padding"] > 0.05 or row["max_over_mean"] > 1.1
        assert gain == (row["micro_batch_size"] * row["data_parallel_ranks"] > 1), "there was nothing to gain"
    assert add_arguments(ArgumentParser()).parse_args([]).paradyse_batch_order == "window"
