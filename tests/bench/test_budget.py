"""A benchmark that has a time in all: what it leaves out then."""

from __future__ import annotations

from dataclasses import replace

import pytest

from paradyse_megatron.bench.budget import TimeBudget
from paradyse_megatron.bench.contenders import AGAIN
from paradyse_megatron.bench.documents import SHORTEST, sample_octaves
from paradyse_megatron.bench.dynamic import (
    FULL,
    OPTIONS,
    QUICK,
    QUICK_LONGEST_BETWEEN_NODES,
    SHAPE,
    _longest_first,
    _peak,
    memory_limit,
    size_of,
)
from paradyse_megatron.bench.overhead import tp_sp_over_stock
from paradyse_megatron.bench.race import MAX_ROUNDS, RACE, expected_ms, is_close, rotated, sharing, turns
from paradyse_megatron.bench.ranks import run_on_ranks
from paradyse_megatron.bench.reach import find_reach
from paradyse_megatron.cli.benches import dynamic
from paradyse_megatron.cli.main import main
from paradyse_megatron.costmodel.configs import configs_folder
from paradyse_megatron.costmodel.model import CostModel

TINY = replace(SHAPE, hidden_size=64, ffn_hidden_size=64, num_layers=1)


def test_what_is_left():
    assert TimeBudget(None).left() is None and TimeBudget(None).at_most(7) == 7
    budget = TimeBudget(100)
    assert 99 < budget.left() <= 100 and 49 < budget.left(0.5) <= 50 and budget.at_most(7) == 7
    assert TimeBudget(0).left() == 0 and TimeBudget(0).at_most(7) == 0


def test_quick_leaves_a_margin_below_twenty_minutes():
    assert QUICK.total_seconds is not None and QUICK.total_seconds <= 19 * 60


def test_documents_are_as_long_as_asked_or_as_there_is_time_for():
    longer = size_of(True, ["node"], budget_seconds=2 * 1140)
    assert (longer.total_seconds, longer.longest) == (2280, QUICK.longest)
    assert longer.profile_seconds == pytest.approx(2 * QUICK.profile_seconds, rel=0.02)
    assert size_of(True, ["node"], None) is QUICK and size_of(False, ["node", "between-nodes"], None) is FULL
    assert size_of(True, ["between-nodes"], None) == replace(QUICK, longest=QUICK_LONGEST_BETWEEN_NODES)
    assert size_of(True, ["between-nodes"], 777).longest == size_of(False, ["node"], 777).longest == 777


@pytest.mark.parametrize("longest", ["0", "-1", str(SHORTEST)])
def test_documents_that_would_have_no_spread_are_refused(longest, capsys):
    assert main(["bench", "dynamic", "--quick", "--longest", longest]) == 2
    assert f"--longest is {longest}" in capsys.readouterr().err


@pytest.mark.parametrize("seconds", ["0", "-5", "inf", "nan"])
def test_a_budget_that_is_no_time_is_refused(seconds, capsys):
    assert main(["bench", "dynamic", "--quick", "--budget-seconds", seconds]) == 2
    assert "--budget-seconds must be above 0" in capsys.readouterr().err


def test_the_memory_limit_lies_between_all_options_without_recompute_and_the_most_frugal_with():
    shipped = CostModel.load(configs_folder() / "costs" / "llama-2-7b-p2-cpu-2core.cost.json")
    (kind,) = shipped.kinds
    costs = replace(shipped, costs={kind: {option: shipped.costs[kind][option] for option in OPTIONS}})
    for length in (256, 1024, 4096, 16384, 65536):
        peaks = {option: _peak(costs, option, length) for option in OPTIONS}
        without = [peak for option, peak in peaks.items() if "+" not in option]
        assert min(peaks.values()) < memory_limit(costs, length) < min(without)


def test_the_longest_document_is_raced_first():
    documents = [[1], [1, 2], [1, 2, 3, 4], [1, 2, 3]]
    assert [len(each) for each in _longest_first(documents)] == [4, 1, 2, 3]


def test_a_race_whose_time_is_over_has_times_of_every_contender_on_the_same_documents():
    documents = [list(range(length + 1)) for length in (24, 10, 16)]
    plans = {"stock": [None] * 3, "tp_sp": ["tp_sp"] * 3, "mixed": ["tp_sp", "ulysses", "ring"]}
    arguments = {"shape": TINY.as_dict(), "documents": documents, "plans": plans}
    raced = []
    for seconds in (0.0, None):
        outcome = run_on_ranks(RACE, 2, arguments | {"budget_seconds": seconds}, timeout_seconds=240)
        assert outcome.failure is None, outcome.failure
        assert all(time > 0 for of in outcome.results[0].values() for times in of for time in times)
        raced.append(outcome.results[0])
    short, whole = raced
    assert [[len(times) for times in of] for of in short.values()] == [[1]] * 3
    assert [len(of) for of in whole.values()] == [3] * 3
    for document in range(3):
        counts = {name: len(of[document]) for name, of in whole.items()}
        assert max(counts.values()) == MAX_ROUNDS and min(counts.values()) >= 1
    assert whole["mixed"][0] == whole["tp_sp"][0] and whole["mixed"][1] != whole["tp_sp"][1]


def test_contenders_with_one_plan_share_its_times_but_for_the_one_that_tells_the_noise():
    again = f"ring{AGAIN}"
    plans = {"stock": None, "tp_sp": "tp_sp", "ring": "ring", again: "ring", "dynamic": "ring", "limited": "tp_sp"}
    shared = {"stock": ["stock"], "tp_sp": ["tp_sp", "limited"], "ring": ["ring", "dynamic"], again: [again]}
    assert sharing(plans) == shared


def test_who_was_far_behind_on_a_document_does_not_run_it_again():
    times = {"tp_sp": [[100.0, 90.0], [40.0]], "ring": [[50.0], [59.0]], "stock": [[200.0], [61.0]]}
    assert [name for name in times if is_close(name, 0, times)] == ["ring"]
    assert [name for name in times if is_close(name, 1, times)] == ["tp_sp", "ring"]
    assert all(is_close(name, 2, times) for name in times)  # nobody has run it


def test_after_the_first_round_the_longest_are_raced_first():
    order = turns([2048, 10, 16])
    assert order[:6] == [0, 1, 2, 0, 2, 1] and len(order) == 3 * MAX_ROUNDS
    assert [rotated(["a", "b", "c"], turn) for turn in (0, 1, 5)] == [list("abc"), list("bca"), list("cab")]


def test_lengths_that_spread_over_octaves():
    lengths = [len(document) - 1 for document in sample_octaves(16, 4096, seed=3)]
    assert lengths != sorted(lengths) and max(lengths) == 4096 and min(lengths) >= SHORTEST
    in_octave = [sum(2**n <= length < 2 ** (n + 1) for length in lengths) for n in range(5, 12)]
    assert sum(in_octave) == 15 and all(1 <= number <= 4 for number in in_octave), in_octave  # 16 over 7 octaves
    assert sample_octaves(4, 512, seed=1) == sample_octaves(4, 512, seed=1) != sample_octaves(4, 512, seed=2)


def test_the_comparison_with_stock_layers_times_both():
    assert 0.2 < tp_sp_over_stock(TINY, 2, num_rounds=2) < 5


def test_without_time_nobody_is_tried_within_the_limit(tmp_path):
    plans = {"dynamic": ["tp_sp"], "tp_sp": ["tp_sp"]}
    found = find_reach(TINY, [16], plans, 2**30, 2, TimeBudget(1), tmp_path / "notes")
    assert found.untried == ["dynamic", "tp_sp"] and found.longest == {} == found.out_of_memory


def test_within_the_limit_a_document_that_is_too_long_fails_to_allocate(tmp_path):
    plans = {"tp_sp": ["tp_sp", "tp_sp"]}
    found = find_reach(TINY, [64, 4096], plans, 64 * 2**20, 2, TimeBudget(200), tmp_path / "notes")
    assert (found.longest, found.out_of_memory, found.untried) == ({"tp_sp": 64}, {"tp_sp": 4096}, [])


def test_what_was_left_out_is_said():
    level = {"lengths_raced": [9, 8], "untried_within_limit": ["ring", "metp"]}
    content = {"lengths": [9, 8, 7], "levels": {"loopback": level}}
    assert dynamic._cut_short(content) == [
        "loopback: the time ended the race after 2 of 3 documents",
        "loopback: no time to try within the memory limit, taken to train all documents: ring, metp",
    ]
    assert dynamic._cut_short({"lengths": [9, 8], "levels": {"loopback": level | {"untried_within_limit": []}}}) == []


def test_a_document_that_has_not_run_is_expected_to_take_its_share_of_the_nearest_longer_one():
    times = {"tp_sp": [[100.0, 90.0], [40.0]], "ring": [[50.0], [20.0, 30.0]]}
    lengths = [4096, 1024, 512, 2048, 8192]
    assert expected_ms(0, lengths, times) == 140 and expected_ms(1, lengths, times) == 60  # their own
    assert expected_ms(2, lengths, times) == pytest.approx(30)
    assert expected_ms(3, lengths, times) == pytest.approx(70)
    assert expected_ms(4, lengths, times) == pytest.approx(280)
