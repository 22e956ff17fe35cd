"""Megatron's door: what its arguments turn into, and which ones are refused."""

from __future__ import annotations

import argparse
import itertools
from typing import Any

import pytest

from paradyse_megatron.data.order import SampleOrder
from paradyse_megatron.data.provider import check_arguments, datasets_provider, describe, make_iterators, open_parts
from tests.data.datasets import EOD, write_dataset
from tests.ranks import run_ranks

LENGTHS = [3 + n % 17 for n in range(40)]
ORDERS = ("batch", "window", "shuffled")


@pytest.fixture(scope="module")
def prefix(tmp_path_factory: pytest.TempPathFactory) -> str:
    return write_dataset(tmp_path_factory.mktemp("data") / "docs", LENGTHS)


def arguments(prefix: str, **changes: Any) -> argparse.Namespace:
    """Megatron's arguments, as far as data are concerned."""
    values: dict[str, Any] = {
        "data_path": [prefix],
        "dataloader_type": "external",
        "split": "8,1,1",
        "seq_length": 12,
        "tensor_model_parallel_size": 2,
        "micro_batch_size": 2,
        "global_batch_size": 8,
        "paradyse_batch_order": "shuffled",
        "paradyse_on_misfit": "error",
        "eval_micro_batch_size": 1,
        "seed": 11,
        "consumed_train_samples": 0,
        "consumed_valid_samples": 0,
        "eval_iters": 2,
        "skip_train": False,
        "mmap_bin_files": True,
        "padded_vocab_size": 384,
        "rank": 0,
    }
    return argparse.Namespace(**(values | changes))


def first_documents(
    args: argparse.Namespace, part: str, count: int, dp_rank: int = 0, dp_size: int = 1
) -> list[list[int]]:
    iterators = make_iterators(args, open_parts(args), dp_rank, dp_size, EOD)
    return [batch["document_ids"].tolist() for batch in itertools.islice(getattr(iterators, part), count)]


def test_training_begins_where_the_checkpoint_stands(prefix: str) -> None:
    expected = SampleOrder(32, 11).sample_ids(0, 40).reshape(-1, 2).tolist()
    assert first_documents(arguments(prefix), "train", 20) == expected
    assert first_documents(arguments(prefix, consumed_train_samples=14), "train", 13) == expected[7:]


def test_training_is_divided_over_data_parallel_ranks(prefix: str) -> None:
    expected = SampleOrder(32, 11).sample_ids(0, 12).reshape(-1, 2).tolist()
    assert first_documents(arguments(prefix), "train", 3, dp_rank=1, dp_size=2) == expected[1::2]


def test_another_seed_is_another_order(prefix: str) -> None:
    assert first_documents(arguments(prefix), "train", 9) != first_documents(arguments(prefix, seed=12), "train", 9)


def test_lengths_are_balanced_within_a_batch_or_a_window_or_not_at_all(prefix: str) -> None:
    drawn = {order: first_documents(arguments(prefix, paradyse_batch_order=order), "train", 16) for order in ORDERS}
    assert len({str(documents) for documents in drawn.values()}) == 3
    batches = {
        order: [sorted(itertools.chain(*found[i : i + 4])) for i in range(0, 16, 4)] for order, found in drawn.items()
    }
    assert batches["batch"] == batches["shuffled"] != batches["window"]
    alone = [first_documents(arguments(prefix, micro_batch_size=1, paradyse_batch_order=o), "train", 9) for o in ORDERS]
    assert alone[0] == alone[1] == alone[2], "with one sample a step there is nothing to balance"


@pytest.mark.parametrize(("action", "count", "longest"), [("error", 32, 12), ("skip", 14, 8), ("truncate", 32, 8)])
def test_what_no_plan_fits_is_left_out_or_cut(prefix: str, action: str, count: int, longest: int) -> None:
    """Documents have 2 to 18 input tokens, and those of at most 8 fit."""
    args = arguments(prefix, paradyse_on_misfit=action)
    train = open_parts(args, 8).train
    assert (len(train), train.lengths.max()) == (count, longest)
    assert describe(args, open_parts(args, 8)) == describe(args, open_parts(args, 8))
    assert (describe(args, open_parts(args, 8)) == describe(args, open_parts(args))) == (action == "error")


def test_a_part_of_which_nothing_fits_is_refused(prefix: str) -> None:
    with pytest.raises(ValueError, match="none of its 40 documents of at most 1 tokens .*--paradyse-on-misfit skip"):
        open_parts(arguments(prefix, paradyse_on_misfit="skip"), 1)


def test_evaluation_has_a_fixed_order_and_a_batch_size_of_its_own(prefix: str) -> None:
    assert first_documents(arguments(prefix), "valid", 6) == [[32], [33], [34], [35], [32], [33]]
    assert first_documents(arguments(prefix, consumed_valid_samples=3), "valid", 2) == [[35], [32]]
    assert first_documents(arguments(prefix, consumed_valid_samples=3, skip_train=True), "valid", 2) == [[32], [33]]
    assert first_documents(arguments(prefix, consumed_valid_samples=3), "test", 2) == [[36], [37]]
    assert first_documents(arguments(prefix, eval_micro_batch_size=None), "valid", 1) == [[32, 33]]


def test_batches_are_padded_for_the_tensor_parallel_group(prefix: str) -> None:
    args = arguments(prefix, tensor_model_parallel_size=3)
    batch = next(make_iterators(args, open_parts(args), 0, 1, EOD).train)
    assert batch["tokens"].shape[1] % 6 == 0


def test_without_split_megatrons_default_holds(prefix: str) -> None:
    parts = open_parts(arguments(prefix, split=None))
    assert [len(part) for part in parts] == [39, 1, 0]
    assert make_iterators(arguments(prefix), parts, 0, 1, EOD).test is None


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"split": "0,1,0"}, "the training part of .* with --split 0,1,0 holds none of its 40 documents"),
        ({"split": "1,0,0"}, "the validation part of .* holds none .* or set --eval-iters 0"),
        ({"split": "x"}, "--split 'x' cannot be used"),
        ({"data_path": ["nowhere"]}, "--data-path nowhere names no dataset"),
        ({"data_path": None}, r"--data-path has 0 values \(none\); it takes one dataset prefix"),
        ({"data_path": ["0.5", "a", "0.5", "b"]}, r"--data-path has 4 values \(0\.5 a 0\.5 b\)"),
        ({"dataloader_type": "cyclic"}, "--dataloader-type is cyclic; .* needs external"),
        (
            {"seq_length": 14},
            "--seq-length 14 .* --tensor-model-parallel-size 2: .* multiple of 4; set it to 12 or 16$",
        ),
        ({"seq_length": 3}, "--seq-length 3 .* set it to 4$"),
        ({"mock_data": True}, "--mock-data does not go with one document a sample"),
        ({"rampup_batch_size": [2, 2, 10]}, "--rampup-batch-size does not go .*--global-batch-size"),
        ({"step_batch_size_schedule": "0:4 10:8"}, "--step-batch-size-schedule does not go"),
        ({"phase_transition_iterations": "5"}, "--phase-transition-iterations does not go"),
        ({"full_validation": True}, "--full-validation does not go"),
        ({"multiple_validation_sets": True}, "--multiple-validation-sets does not go"),
        ({"train_data_path": ["a"]}, "--train-data-path does not go"),
        ({"valid_data_path": ["a"]}, "--valid-data-path does not go"),
        ({"test_data_path": ["a"]}, "--test-data-path does not go"),
        ({"data_args_path": "a"}, "--data-args-path does not go"),
        ({"per_split_data_args_path": "a"}, "--per-split-data-args-path does not go"),
    ],
)
def test_bad_input_is_one_sentence(prefix: str, changes: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence) as caught:
        open_parts(arguments(prefix, **changes))
    assert "\n" not in str(caught.value)


def test_parts_that_nobody_asks_for_may_be_empty(prefix: str) -> None:
    assert not len(open_parts(arguments(prefix, split="1,0,0", eval_iters=0)).valid)
    assert not len(open_parts(arguments(prefix, split="0,1,0", skip_train=True)).train)


def test_the_flags_refused_are_flags_of_megatron() -> None:
    from megatron.training.arguments import add_megatron_arguments

    from paradyse_megatron.data.provider import _REFUSED

    known = vars(add_megatron_arguments(argparse.ArgumentParser()).parse_args([]))
    assert set(_REFUSED) <= known.keys()
    assert not [attribute for attribute in _REFUSED if known[attribute]]
    check_arguments(argparse.Namespace(**(known | vars(arguments("prefix")))))


def test_megatrons_own_loop_draws_from_us(prefix: str) -> None:
    """TP=2 x DP=2 through Megatron's `build_train_valid_test_data_iterators`, its rerun wrapper included."""
    results = run_ranks(
        "tests.data.test_provider:draw", 4, vars(arguments(prefix, consumed_train_samples=8)), timeout_seconds=300
    )
    expected = SampleOrder(32, 11).sample_ids(8, 24).reshape(-1, 2, 2).tolist()
    for dp_rank, result in [(0, results[0]), (0, results[1]), (1, results[2]), (1, results[3])]:
        assert result["train"] == [step[dp_rank] for step in expected]
        assert result["again"] == result["train"][4:]
        assert result["valid"] == [[32 + dp_rank], [34 + dp_rank], [32 + dp_rank]]
        assert result["flags"] == [1, 1, 1]


def draw(values: dict[str, Any]) -> dict[str, Any]:
    """One rank: set Megatron up as far as its data code needs, and draw."""
    from paradyse_megatron import cpu

    cpu.enable()
    from megatron.core import mpu
    from megatron.core.rerun_state_machine import RerunMode, initialize_rerun_state_machine
    from megatron.core.tokenizers.text.libraries.null_tokenizer import NullTokenizer
    from megatron.training import global_vars
    from megatron.training.arguments import add_megatron_arguments
    from megatron.training.training import build_train_valid_test_data_iterators

    defaults = vars(add_megatron_arguments(argparse.ArgumentParser()).parse_args([]))
    extra = {"iteration": 4, "train_iters": 10, "eval_interval": 5, "global_batch_size": 4, "eval_global_batch_size": 2}
    global_vars.set_args(argparse.Namespace(**(defaults | values | extra)))
    global_vars._GLOBAL_TOKENIZER = NullTokenizer(EOD + 1)
    mpu.initialize_model_parallel(tensor_model_parallel_size=2)
    initialize_rerun_state_machine(mode=RerunMode.VALIDATE_RESULTS)

    train, valid, _ = build_train_valid_test_data_iterators(datasets_provider)
    train_documents = [next(train)["document_ids"].tolist() for _ in range(4)]
    train.advance()
    train_documents += [next(train)["document_ids"].tolist() for _ in range(2)]
    train.rewind()
    args = global_vars.get_args()
    return {
        "train": train_documents,
        "again": [next(train)["document_ids"].tolist() for _ in range(2)],
        "valid": [next(valid)["document_ids"].tolist() for _ in range(3)],
        "flags": [args.do_train, args.do_valid, args.do_test],
    }
