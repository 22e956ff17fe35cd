"""Documents that no plan fits: found before training, by name, with what fits and what would help."""

from __future__ import annotations

from argparse import Namespace
from pathlib import Path

import pytest

from paradyse_megatron.costmodel.cluster import Cluster
from paradyse_megatron.costmodel.first_principles import estimate
from paradyse_megatron.costmodel.shape import ModelShape
from paradyse_megatron.data.provider import open_parts
from paradyse_megatron.integration.misfits import longest_sequence
from paradyse_megatron.planner.plan import Plan
from paradyse_megatron.planner.planner import Planner
from paradyse_megatron.planner.stages import PipelinePlanner
from paradyse_megatron.runtime.decision import FixedPlan, PlannedByLength
from tests.data.test_provider import arguments, write_dataset

CLUSTER = Path(__file__).parents[2] / "configs" / "clusters" / "cpu-2core.yaml"
SEQ_LENGTH, STATIC_BYTES = 4096, 10**6


@pytest.fixture(scope="module")
def costs():
    return estimate(ModelShape(64, 4, 4, 256, 512, dtype="fp32"), Cluster.from_yaml(CLUSTER), 2)


def decider(costs, fitting, **changes):
    """With a budget that is just enough for `fitting` tokens."""
    least = Planner(costs, 4, 1, static_bytes=STATIC_BYTES, **changes).plan(fitting).predicted_bytes
    return planned_by(Planner(costs, 4, least, static_bytes=STATIC_BYTES, **changes), costs)


def planned_by(planner, costs):
    return PlannedByLength(PipelinePlanner([planner]), costs, SEQ_LENGTH)


@pytest.fixture(scope="module")
def args(tmp_path_factory) -> Namespace:
    """Documents of 99, 999 and 2999 input tokens to train on, of 3999 to validate."""
    prefix = write_dataset(tmp_path_factory.mktemp("data") / "docs", [100, 1000, 3000, 100, 4000])
    return arguments(prefix, seq_length=SEQ_LENGTH, split="4,1,0", tensor_model_parallel_size=2)


def test_the_longest_document_is_named_with_what_fits_and_what_would_help(costs, args):
    with pytest.raises(ValueError) as caught:
        longest_sequence(args, decider(costs, 2048, options=["tp_sp", "ring"], chunked_head=False))
    for part in ("Document 2 of", "3000 tokens", "has 2048 tokens", "more tensor-parallel ranks", "+full in --paradyse",
                 "chunked loss head", "--paradyse-on-misfit skip", "--paradyse-memory-budget"):  # fmt: skip
        assert part in str(caught.value)
    assert "\n" not in str(caught.value)


def test_what_plans_do_already_is_not_recommended(costs):
    said = decider(costs, 2048).misfit(4096)
    assert "+full in --" not in said and "chunked loss head" not in said and "more tensor-parallel ranks" in said


def test_documents_that_are_not_used_are_not_in_the_way(costs, args):
    fits_training = decider(costs, 3200)
    with pytest.raises(ValueError, match="Document 4 of"):
        longest_sequence(args, fits_training)
    assert 3200 <= longest_sequence(Namespace(**vars(args) | {"eval_iters": 0}), fits_training) < 4000


@pytest.mark.parametrize(("action", "lengths"), [("skip", [99, 999, 99]), ("truncate", [99, 999, 2048, 99])])
def test_skip_and_truncate_leave_what_every_plan_fits(costs, args, action, lengths):
    changed = Namespace(**vars(args) | {"paradyse_on_misfit": action, "eval_iters": 0})
    planned = decider(costs, 2048)
    found = open_parts(changed, longest_sequence(changed, planned)).train.lengths
    assert found.tolist() == lengths
    for length in found:
        planned.decide(-(-int(length) // 4) * 4)  # raises on a misfit


def test_where_nothing_fits_no_choice_of_documents_helps(costs, args):
    planned = planned_by(Planner(costs, 4, 10, static_bytes=STATIC_BYTES), costs)
    for action in ("error", "skip", "truncate"):
        with pytest.raises(ValueError, match="optimizer alone take 1,000,000"):
            longest_sequence(Namespace(**vars(args) | {"paradyse_on_misfit": action}), planned)


def test_enough_memory_and_fixed_plans_bound_nothing(costs, args):
    assert longest_sequence(args, decider(costs, SEQ_LENGTH)) == SEQ_LENGTH
    assert longest_sequence(args, FixedPlan(Plan.parse("ring", 4), 2)) is None
