"""Sample orders: once an epoch, the same everywhere, resumable anywhere."""

from __future__ import annotations

import json
import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from paradyse_megatron.data.order import FixedOrder, SampleOrder

GOLDEN = [5, 6, 3, 9, 7, 4, 1, 2, 8, 0, 9, 2, 0, 7, 6, 1, 8, 4, 5, 3, 6, 5, 8, 4, 1]


@settings(deadline=None)  # machines may be busy
@given(st.integers(1, 60), st.integers(0, 2**40), st.integers(0, 5))
def test_each_sample_comes_exactly_once_an_epoch(num_samples: int, seed: int, epoch: int) -> None:
    ids = SampleOrder(num_samples, seed).sample_ids(epoch * num_samples, num_samples)
    assert sorted(ids) == list(range(num_samples))


@settings(deadline=None)  # machines may be busy
@given(st.integers(1, 40), st.integers(0, 9), st.lists(st.tuples(st.integers(0, 300), st.integers(0, 90)), max_size=8))
def test_any_place_can_be_asked_for_at_any_time(num_samples: int, seed: int, requests: list[tuple[int, int]]) -> None:
    whole = SampleOrder(num_samples, seed).sample_ids(0, 400)
    order = SampleOrder(num_samples, seed)
    for first, count in requests:
        np.testing.assert_array_equal(order.sample_ids(first, count), whole[first : first + count])


def test_resuming_far_into_the_run_makes_one_permutation(monkeypatch: pytest.MonkeyPatch) -> None:
    draws = []
    original = np.random.PCG64

    def counted(seed: np.random.SeedSequence) -> np.random.PCG64:
        draws.append(seed)
        return original(seed)

    monkeypatch.setattr(np.random, "PCG64", counted)
    order = SampleOrder(1000, 1)
    for step in range(100):
        order.sample_ids(10**15 + 7 * step, 7)
    assert len(draws) == 1


def test_epochs_and_seeds_differ() -> None:
    order = SampleOrder(100, 1)
    assert order.sample_ids(0, 100).tolist() != order.sample_ids(100, 100).tolist()
    assert order.sample_ids(0, 100).tolist() != SampleOrder(100, 2).sample_ids(0, 100).tolist()
    assert SampleOrder(100, 2).sample_ids(0, 100).tolist() != order.sample_ids(100, 100).tolist()


def test_the_order_is_what_it_was_in_every_earlier_version() -> None:
    assert SampleOrder(10, 1234).sample_ids(0, 25).tolist() == GOLDEN


def test_another_process_has_the_same_order() -> None:
    code = (
        "import json; from paradyse_megatron.data.order import SampleOrder; "
        "print(json.dumps(SampleOrder(1000, 7).sample_ids(1500, 1000).tolist()))"
    )
    output = subprocess.run([sys.executable, "-c", code], capture_output=True, timeout=60, check=True).stdout
    assert json.loads(output) == SampleOrder(1000, 7).sample_ids(1500, 1000).tolist()


def test_the_global_random_state_is_left_alone() -> None:
    np.random.seed(3)
    expected = np.random.random()
    np.random.seed(3)
    SampleOrder(50, 3).sample_ids(0, 100)
    assert np.random.random() == expected


def test_the_fixed_order_goes_round() -> None:
    assert FixedOrder(3).sample_ids(2, 6).tolist() == [2, 0, 1, 2, 0, 1]


def test_bad_input() -> None:
    for order in (FixedOrder, lambda n: SampleOrder(n, 1)):
        with pytest.raises(ValueError, match="at least one sample, got 0; see --data-path and --split"):
            order(0)
    with pytest.raises(ValueError, match="-1; --seed must be 0 or more"):
        SampleOrder(3, -1)
