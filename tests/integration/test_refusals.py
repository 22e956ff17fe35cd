"""Bad input: one sentence that says what was asked and what to change, on every rank, before anything is sent."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from paradyse_megatron.cpu import MEGATRON_FLAGS
from paradyse_megatron.integration.launch import _DEMO
from tests.ranks import REPOSITORY, run_ranks
from tests.training.runs import make_corpus

CASES = {
    "seq-length": ("--seq-length 4095", ["--seq-length 4095", "multiple of 4", "4092 or 4096"]),
    "heads": ("--num-attention-heads 3", ["--num-attention-heads 3", "--tensor-model-parallel-size 2"]),
    "unknown strategy": ("--paradyse-plan rong", ["rong", "tp_sp, ulysses, ring"]),
    "layers": ("--paradyse-plan tp_sp*3", ["3 layers", "the model has 4"]),
    "malformed plan": ("--paradyse-plan tp_sp**4", ["tp_sp**4", "--paradyse-plan"]),
    "unknown in list": ("--paradyse-strategies tp_sp,foo", ["foo"]),
    "cp": ("--context-parallel-size 2", ["--context-parallel-size 2", "--dynamic-parallel"]),
    "data": ("--data-path /nowhere/x", ["/nowhere/x.idx", "--data-path"]),
    "recompute": ("--recompute-granularity full", ["--recompute-granularity", "--dynamic-parallel"]),
    "mtp": ("--mtp-num-layers 1", ["--mtp-num-layers 1", "--dynamic-parallel"]),
    "dropout": ("--attention-dropout 0.1 --paradyse-plan ring", ["ring", "--attention-dropout 0"]),
    "size": ("--paradyse-memory-budget lots", ["lots", "16GiB"]),
    "cost model": ("--paradyse-cost-model /nowhere.json", ["/nowhere.json"]),
    "nothing fits": ("--paradyse-memory-budget 1MiB", ["No plan fits", "allows 1,048,576", "optimizer alone take"]),
    "misfit, fixed plan": ("--paradyse-on-misfit skip --paradyse-plan ring", ["--paradyse-on-misfit skip", "auto"]),
    "feedback, fixed plan": ("--paradyse-feedback --paradyse-plan ring", ["--paradyse-feedback", "no predictions"]),
    "hysteresis": ("--paradyse-hysteresis -1", ["--paradyse-hysteresis", "-1"]),
    "sliding window": ("--window-size 7,0 --paradyse-plan ring", ["ring", "not a sliding window"]),
    "sinks": ("--softmax-type off-by-one --paradyse-plan upipe", ["upipe", "softmax_type"]),
    "mask": ("--reset-attention-mask", ["--reset-attention-mask", "--dynamic-parallel", "causal mask"]),
    "positions": ("--reset-position-ids", ["--reset-position-ids", "--dynamic-parallel"]),
    "packed": ("--dataloader-inter-document-masking", ["--dataloader-inter-document-masking", "--dynamic-parallel"]),
    "variant": ("--experimental-attention-variant gated_delta_net", ["gated_delta_net", "--dynamic-parallel"]),
    "uneven stages": ("--decoder-first-pipeline-num-layers 1", ["--decoder-first-pipeline-num-layers 1", "auto"]),
    "experts, gathered": (
        "--num-experts 4 --disable-bias-linear --paradyse-plan ring",
        ["mixture-of-experts", "ulysses/tp_sp"],
    ),
    "experts by frequency": (
        "--num-experts 4 --disable-bias-linear --moe-layer-freq [0,1] --paradyse-plan tp_sp",
        ["2 layers", "has 4"],
    ),
    "pattern, families": ("--hybrid-layer-pattern *-M*G-", ["families M, G", "Transformer Engine"]),
    "pattern, prediction": ("--hybrid-layer-pattern *-*-/*-", ["*-*-/*-", "multi-token prediction"]),
    "pattern, no experts": ("--hybrid-layer-pattern *E*E", ["*E*E", "--num-experts"]),
    "pattern, auto": ("--hybrid-layer-pattern **--", ["**--", "pairs", "--paradyse-plan ring"]),
    "pattern, layers": ("--hybrid-layer-pattern *-*- --paradyse-plan ring*3", ["3 layers", "the model has 4"]),
    "pattern, kinds": (
        "--hybrid-layer-pattern *-*- --attention-dropout 0.1 --paradyse-plan tp_sp,ring,ring/tp_sp,ring",
        ["'ring/tp_sp'", "--attention-dropout 0"],
    ),
    "transformer engine": (
        "--transformer-impl transformer_engine",
        ["--transformer-impl transformer_engine", "pip install", "--transformer-impl local"],
    ),
    "inference": ("--transformer-impl inference_optimized", ["inference_optimized", "local or transformer_engine"]),
    "fp8": ("--fp8-format hybrid", ["--fp8-format hybrid", "--transformer-impl transformer_engine"]),
    "delayed": ("--delay-wgrad-compute", ["--delay-wgrad-compute", "--dynamic-parallel"]),
    "accepted": ("", []),
    "accepted pattern": ("--hybrid-layer-pattern *-*-", []),
    "accepted head": ("--hybrid-layer-pattern *- --paradyse-plan ring;head=chunked", []),
    "accepted kinds": (
        "--hybrid-layer-pattern *-*- --attention-dropout 0.1 --paradyse-plan tp_sp,ring,tp_sp/gathered,ring",
        [],
    ),
}

FP8 = "--bf16 --fp8-format hybrid"
CASES_WITH_TE = {
    "accepted": ("", []),
    "accepted rms norm": ("--normalization RMSNorm --apply-layernorm-1p", []),
    "accepted fp8": (f"{FP8} --paradyse-plan tp_sp", []),
    "accepted fp8 auto": (FP8, []),
    "fp8": (f"{FP8} --paradyse-plan ring", ["'ring'", "--fp8-format works in tp_sp only"]),
    "fp8 in mlp": (f"{FP8} --paradyse-plan tp_sp/streamed", ["tp_sp/streamed", "--fp8-format works in tp_sp only"]),
    "fp8 recomputed": (f"{FP8} --paradyse-plan tp_sp+full", ["tp_sp+full", "without recompute"]),
    "fp8 length": (f"{FP8} --seq-length 4000", ["--seq-length 4000", "fp8", "multiple of 64", "3968 or 4032"]),
    "delayed": ("--delay-wgrad-compute", ["--delay-wgrad-compute", "--dynamic-parallel"]),
    "fused operations": ("--use-transformer-engine-op-fuser", ["--use-transformer-engine-op-fuser"]),
    "overlap": ("--tp-comm-overlap", ["--tp-comm-overlap", "--dynamic-parallel"]),
}
"""Where Transformer Engine (here: a stand-in) can be imported."""


@pytest.fixture(scope="module")
def defaults(tmp_path_factory):
    corpus = make_corpus(tmp_path_factory.mktemp("corpus"))
    return [
        *_DEMO,
        *MEGATRON_FLAGS,
        "--tensor-model-parallel-size",
        "2",
        "--data-path",
        corpus,
        "--dynamic-parallel",
    ]


@pytest.fixture(scope="module")
def answers(defaults):
    cases = {name: arguments for name, (arguments, _) in CASES.items()}
    return run_ranks("tests.integration.workers:refusals", 2, defaults, cases, timeout_seconds=240)


@pytest.mark.parametrize("name", [name for name in CASES if not name.startswith("accepted")])
def test_the_sentence_names_what_was_asked_and_what_to_do(answers, name):
    for answer in (by_rank[name] for by_rank in answers):
        for part in CASES[name][1]:
            assert part in answer
        assert "\n" not in answer and len(answer) < 500


@pytest.fixture(scope="module")
def answers_with_te(defaults):
    cases = {
        name: f"--transformer-impl transformer_engine {arguments}" for name, (arguments, _) in CASES_WITH_TE.items()
    }
    return run_ranks("tests.integration.te_workers:refusals", 2, defaults, cases, timeout_seconds=120)


def test_with_transformer_engine_what_works_is_accepted_and_the_rest_refused_by_name(answers_with_te):
    for by_rank in answers_with_te:
        assert len(by_rank) == len(CASES_WITH_TE)
        for name, (_, parts) in CASES_WITH_TE.items():
            assert all(part in by_rank[name] for part in parts), (name, by_rank[name])
            assert bool(by_rank[name]) == bool(parts), (name, by_rank[name])


def test_the_defaults_are_accepted(answers):
    accepted = [by_rank[name] for by_rank in answers for name in CASES if name.startswith("accepted")]
    assert accepted == [""] * 8


@pytest.mark.parametrize(
    ("arguments", "part"), [("--paradyse-strategies rong", "rong"), ("--data-path /nowhere", "/nowhere")]
)
def test_the_launcher_exits_with_2_and_every_rank_says_why(tmp_path, arguments, part):
    environment = os.environ | {
        "PARADYSE_OUT": str(tmp_path),
        "DATA_PATH": str(tmp_path / "nothing"),
        "PARADYSE_NPROC": "2",
    }
    done = subprocess.run(
        [sys.executable, "-m", "paradyse_megatron.integration.launch", *arguments.split()],
        env=environment, cwd=REPOSITORY, capture_output=True, text=True, timeout=100)  # fmt: skip
    assert done.returncode == 2
    said = [line for line in done.stderr.splitlines() if line.startswith("paradyse: rank")]
    assert {line.split(":")[1] for line in said} == {" rank 0", " rank 1"}
    assert all(part in line for line in said)


def test_a_wrong_number_of_ranks_is_refused_at_once(tmp_path):
    environment = os.environ | {"PARADYSE_OUT": str(tmp_path), "PARADYSE_NPROC": "many", "DATA_PATH": "x"}
    done = subprocess.run([sys.executable, "-m", "paradyse_megatron.integration.launch"], env=environment,
                          cwd=REPOSITORY, capture_output=True, text=True, timeout=60)  # fmt: skip
    assert done.returncode == 2 and "PARADYSE_NPROC" in done.stderr


def test_ranks_that_would_decide_differently_all_say_so():
    said = run_ranks("tests.integration.workers:everyone_disagrees", 3, 1, timeout_seconds=180)
    assert len(set(said)) == 1 and "rank 1 has 10" in said[0]
