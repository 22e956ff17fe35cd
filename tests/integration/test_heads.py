"""Training steps whose loss head follows the plan; and Megatron versions that do not allow it."""

from __future__ import annotations

import pytest

from paradyse_megatron.costmodel.head_bytes import LONGEST_WHOLE_BYTES
from paradyse_megatron.cpu import MEGATRON_FLAGS
from paradyse_megatron.integration.launch import _DEMO
from tests.ranks import run_ranks
from tests.training.runs import make_corpus


@pytest.fixture(scope="module")
def found(tmp_path_factory):
    corpus = make_corpus(tmp_path_factory.mktemp("corpus"))
    defaults = [
        *_DEMO,
        *MEGATRON_FLAGS,
        *f"--tensor-model-parallel-size 2 --data-path {corpus} --dynamic-parallel".split(),
    ]
    return run_ranks("tests.integration.heads:found", 2, defaults, timeout_seconds=120)


def test_a_step_runs_the_head_that_was_decided_for_its_length(found):
    for rank in found:
        assert rank["ran"]["lengths"] == [16, 16]  # 32 tokens on two ranks, twice; not the micro-batches of 16
        assert rank["ran"]["same gradients"]
        assert rank["ran"]["stock"] == {}  # without --dynamic-parallel nothing of ours is in the way


def test_this_megatron_allows_chunks_whatever_says_the_plan(found):
    for rank in found:
        assert rank["installed"] is True and rank["auto"] == ("whole", "chunked")
        assert LONGEST_WHOLE_BYTES // (4 * 2**17) < rank["fixed"] < LONGEST_WHOLE_BYTES


def test_an_old_megatron_gets_whole_heads_and_refuses_plans_that_ask_for_more(found):
    for rank in found:
        assert rank["old"] is False and rank["old auto"] == ("whole",) and rank["old fixed"] is None
        assert "'ring;head=chunked' asks for a chunked loss head, which needs megatron-core 0.18" in rank["old chunked"]
