"""The race's arithmetic, on times that are known."""

from __future__ import annotations

import pytest

from paradyse_megatron.bench.verdict import Verdict

LENGTHS = [100, 1000, 4000]
TIMES = {
    "stock": [1.0, 10.0, 90.0],
    "tp_sp": [1.0, 10.0, 100.0],
    "tp_sp+full": [1.5, 15.0, 140.0],
    "ulysses": [3.0, 12.0, 60.0],
    "ulysses again": [3.3, 12.0, 60.0],
    "random": [2.0, 20.0, 200.0],
    "dynamic": [1.1, 10.0, 60.0],
    "dynamic within the limit": [1.0, 10.0, 70.0],
}
REACH = {"stock": 1024, "tp_sp": 1024, "tp_sp+full": 4096, "ulysses": 2048, "dynamic within the limit": 8192}


@pytest.fixture
def verdict():
    return Verdict(LENGTHS, TIMES, REACH, {name: 2 * sum(times) for name, times in TIMES.items()})


def test_the_rival_within_the_limit_is_the_best_that_trains_every_document(verdict):
    assert verdict.completing() == ["tp_sp+full"]
    assert verdict.as_dict()["speedup_over_best_static"] == pytest.approx(156.5 / 81)


def test_without_a_limit_all_static_choices_are_rivals_and_a_repetition_is_none(verdict):
    assert set(verdict.statics()) == {"tp_sp", "tp_sp+full", "ulysses"}
    assert verdict.as_dict()["speedup_over_best_static_unlimited"] == pytest.approx(75 / 71.1)
    assert verdict.as_dict()["best_static_unlimited"] == "ulysses"


def test_regret_is_the_worst_range_of_lengths(verdict):
    found = verdict.as_dict()
    assert found["regret_by_length"] == pytest.approx({"up to 512": 0.1, "up to 1024": 0.0, "up to 4096": 0.0})
    assert found["worst_regret_at_any_length"] == pytest.approx(0.1)
    assert found["noise_floor"] == pytest.approx(0.0)  # the median of 10 %, 0 and 0


def test_the_rest(verdict):
    found = verdict.as_dict()
    assert found["speedup_over_stock"] == pytest.approx(101 / 71.1)
    assert found["longest_length_over_tp_sp"] == 8
    assert found["longest_length_over_tp_sp_full"] == 2
    assert found["tokens_per_second"]["dynamic"] == pytest.approx(5100 / 0.0711)
    assert all(ratio == pytest.approx(2) for ratio in found["predicted_over_measured"].values())


def test_the_plan_by_length_has_to_complete_itself():
    reach = REACH | {"dynamic within the limit": 3999}
    assert Verdict(LENGTHS, TIMES, reach, dict.fromkeys(TIMES, 1.0)).as_dict()["speedup_over_best_static"] is None


def test_nobody_may_complete():
    found = Verdict(LENGTHS, TIMES, dict.fromkeys(REACH, 0), dict.fromkeys(TIMES, 1.0)).as_dict()
    assert found["speedup_over_best_static"] is None and found["best_static"] is None
    assert found["longest_length_over_tp_sp"] is None


def test_a_static_choice_that_was_not_tried_counts_as_one_that_completes():
    predicted = dict.fromkeys(TIMES, 1.0)
    found = Verdict(LENGTHS, TIMES, {"dynamic within the limit": 8192}, predicted, ["ulysses", "tp_sp+full"])
    assert found.completing() == ["tp_sp+full", "ulysses"]
    assert found.as_dict()["speedup_over_best_static"] == pytest.approx(75 / 81)
    assert found.as_dict()["longest_length_over_tp_sp"] is None
