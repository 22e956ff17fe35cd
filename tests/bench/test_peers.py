"""`paradyse bench peers`: implementations agree with the truth, a wrong one is noticed, and the arithmetic of times."""

from __future__ import annotations

import json

import pytest
import torch

from paradyse_megatron.bench.peers.case import Case, distance, make_data, tokens_of
from paradyse_megatron.bench.peers.contest import CONTEST
from paradyse_megatron.bench.peers.contestant import BATCH_FIRST, HEADS_FIRST, TOKENS_FIRST, Fused
from paradyse_megatron.bench.peers.of_deepspeed import REMEDY
from paradyse_megatron.bench.peers.simulated import against_balanced_cp
from paradyse_megatron.bench.peers.verdict import TIE, TOLERANCE, Verdict
from paradyse_megatron.bench.ranks import run_on_ranks
from paradyse_megatron.cli.benches import peers
from paradyse_megatron.cli.main import main

CASES = [Case(8, 8, 16, 48, batch=2), Case(8, 2, 16, 32)]


def _contest(worker: str, num_ranks: int, cases: list[Case]) -> Verdict:
    arguments = {"cases": [vars(case) for case in cases], "rounds": 2}
    outcome = run_on_ranks(worker, num_ranks, arguments, timeout_seconds=240)
    assert outcome.failure is None, outcome.failure
    return Verdict(outcome.results[0])


def test_all_that_run_agree_with_the_truth():
    """Two sequences of as many heads of keys and values as of queries, and grouped ones; packages that are there."""
    verdict = _contest(CONTEST, 2, CASES)
    able = {(entry["kind"], entry["name"]) for entry in verdict.able()}
    assert able >= {("ring", "ours"), ("ulysses", "ours"), ("ring", "torch, all-gather"), ("ring", "torch, all-to-all")}
    assert verdict.disagreeing() == [] and 0 < verdict.as_dict()["largest_error"] < TOLERANCE / 5
    assert all(len(entry["milliseconds"]) == 2 and len(entry["errors"]) == 4 for entry in verdict.able())
    rows = verdict.as_dict()["table"]
    assert [row["case"] for row in rows if row["kind"] == "ring"] == [case.name for case in CASES]
    unable = verdict.could_not_run()
    assert all(REMEDY in reason for name, reason in unable.items() if "unmasked" not in name), unable


def test_more_ranks_than_heads_of_keys_and_values_are_no_obstacle_to_ours():
    verdict = _contest(CONTEST, 4, [Case(8, 2, 16, 32)])
    assert verdict.disagreeing() == []
    assert {entry["kind"] for entry in verdict.able() if entry["is_ours"]} == {"ring", "ulysses"}
    assert "deepspeed" in verdict.could_not_run()  # it refuses, or is not there


def test_a_peer_that_computes_something_else_and_one_that_is_not_there_are_named():
    verdict = _contest("tests.bench.workers:contest_with_a_wrong_and_an_absent_peer", 2, CASES[1:])
    assert verdict.disagreeing() == ["torch, all-gather (ring)", "torch, all-to-all (ring)"]
    reason = verdict.could_not_run()["deepspeed"]
    assert reason.startswith("ImportError: No module named 'deepspeed") and reason.endswith(f"; {REMEDY}")
    content = verdict.as_dict() | {"num_ranks": 2}
    assert not content["all_agree"] and not peers.answer(content).yes
    assert any(
        note.startswith("deepspeed does not run here") and REMEDY in note for note in peers.answer(content).notes
    )


def test_shares_are_the_whole_and_forms_go_back():
    case = Case(4, 2, 8, 24)
    data = make_data(case)
    for zigzag in (False, True):
        tokens = torch.cat([tokens_of(rank, 3, 24, zigzag) for rank in range(3)])
        assert sorted(tokens.tolist()) == list(range(24))
    for form in (TOKENS_FIRST, HEADS_FIRST, BATCH_FIRST, Fused(case.geometry)):
        back = form.triple(form.leaves(data.inputs))
        assert all(torch.equal(a, b) for a, b in zip(back, data.inputs, strict=True))
    scores = torch.einsum("sbhd,tbhd->bhst", data.inputs[0], data.inputs[1].repeat_interleave(2, 2)) / 8**0.5
    hidden = torch.ones(24, 24, dtype=torch.bool).triu(1)
    probabilities = scores.masked_fill(hidden, float("-inf")).softmax(-1)
    plain = torch.einsum("bhst,tbhd->sbhd", probabilities, data.inputs[2].repeat_interleave(2, 2))
    assert distance(plain, data.output) < 1e-6


def _entry(name: str, times: list[float], kind: str = "ring", error: float = 1e-7) -> dict:
    ours = name.startswith("ours")
    errors = {"output": error}
    return {"name": name, "kind": kind, "is_ours": ours, "reason": None, "errors": errors, "milliseconds": times}


def _verdict(*entries: dict) -> dict:
    return Verdict([{"case": "x", "entries": list(entries)}]).as_dict()


def test_ratios_are_of_the_same_round_and_the_worst_counts():
    mine, again = _entry("ours", [10.0, 30.0, 11.0]), _entry("ours again", [10.0, 30.3, 11.11])
    found = _verdict(mine, again, _entry("a", [20.0, 30.0, 22.0]), _entry("b", [8.0, 25.0, 10.0]))
    assert found["ratio_by_peer"] == pytest.approx({"a": 0.5, "b": 1.2})
    assert found["slowest_ratio_to_best_peer"] == pytest.approx(1.2) and found["table"][0]["best_peer"] == "b"
    assert found["noise_floor"] == pytest.approx(1 - 1 / 1.01) and not found["as_fast"]
    assert _verdict(mine, again, _entry("a", [9.9, 29.8, 10.9]))["as_fast"]  # within TIE
    assert 1 + TIE < 1 / 0.97 and not _verdict(mine, again, _entry("a", [9.7, 29.1, 10.67]))["as_fast"]


def test_only_implementations_of_a_kind_are_compared():
    mine, again = _entry("ours", [10.0]), _entry("ours again", [10.0])
    found = _verdict(mine, again, _entry("a", [5.0], kind="ulysses"), _entry("ours", [5.0], kind="ulysses"),
                     _entry("ours again", [5.0], kind="ulysses"))  # fmt: skip
    assert found["slowest_ratio_to_best_peer"] == 1 and [row["kind"] for row in found["table"]] == ["ulysses"]
    assert not _verdict(mine, again)["as_fast"]  # nobody to compare with


def test_a_result_that_is_no_number_disagrees():
    found = _verdict(_entry("ours", [1.0]), _entry("ours again", [1.0]), _entry("a", [1.0], error=float("nan")))
    assert found["disagreeing"] == ["a (ring)"]


def test_the_scheduler_of_megatron_is_simulated():
    found = against_balanced_cp(num_documents=16)
    assert found["simulated_balanced_cp_ms"] > 0 and found["simulated_dynamic_ms"] > 0
    ratio = found["simulated_balanced_cp_ms"] / found["simulated_dynamic_ms"]
    assert found["simulated_speedup_over_balanced_cp"] == pytest.approx(ratio)
    assert "hybrid CP" in found["simulated_balanced_cp_choice"]


def test_the_verb(capsys, tmp_path):
    out = tmp_path / "peers.json"
    status = main(f"bench peers --json --rounds 1 --lengths 16 --num-documents 0 --out {out}".split())
    content = json.loads(capsys.readouterr().out)
    assert {"schema": 1, **content} == json.loads(out.read_text())
    assert status == (0 if content["as_fast"] and content["all_agree"] else 1)
    assert content["slowest_ratio_to_best_peer"] > 0 and content["peer_versions"]["torch"]


@pytest.mark.parametrize(
    ("asked", "said"),
    [("--num-ranks 3", "8 heads are shared"), ("--lengths 18", "multiples of 4"), ("--rounds 0", "at least 1")],
)
def test_what_it_refuses(asked, said, capsys):
    assert main(["bench", "peers", *asked.split()]) == 2
    assert said in capsys.readouterr().err
