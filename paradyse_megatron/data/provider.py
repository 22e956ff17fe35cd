"""Megatron's door to our data: the `datasets_provider` that its `pretrain()` calls with `--dataloader-type external`.

Megatron calls it once the checkpoint is loaded (and once for each virtual pipeline stage), so that
`consumed_train_samples` is final, and draws micro-batches from what it returns without a sampler of its own.
`--reset-position-ids`, `--reset-attention-mask` and `--eod-mask-loss` change nothing: a sample is one document.
"""

from __future__ import annotations

import argparse
import logging
import zlib
from functools import partial
from typing import NamedTuple

from paradyse_megatron.data.balance import BalancedOrder, BatchShape
from paradyse_megatron.data.documents import DocumentDataset, num_documents, open_indexed
from paradyse_megatron.data.loader import MicroBatchIterator
from paradyse_megatron.data.order import FixedOrder, Order, SampleOrder
from paradyse_megatron.data.splits import DEFAULT_SPLIT, split_ranges
from paradyse_megatron.layouts.padding import FP8_ROWS, padding_multiple

logger = logging.getLogger(__name__)

_ONE_CORPUS = "one corpus is divided by --split; give --data-path instead"
_ONE_BATCH_SIZE = "the batch size stays the same all along; use --global-batch-size alone"
_REFUSED = {  # attribute of Megatron's arguments: why documents of different lengths exclude the flag
    "mock_data": "its samples all have one length; give --data-path instead",
    "train_data_path": _ONE_CORPUS,
    "valid_data_path": _ONE_CORPUS,
    "test_data_path": _ONE_CORPUS,
    "per_split_data_args_path": _ONE_CORPUS,
    "data_args_path": "data sets are not blended; give --data-path with one prefix instead",
    "rampup_batch_size": _ONE_BATCH_SIZE,
    "step_batch_size_schedule": _ONE_BATCH_SIZE,
    "phase_transition_iterations": "the sample order has no phases; leave it out",
    "full_validation": "evaluation takes --eval-iters batches and wraps round; leave it out",
    "multiple_validation_sets": "there is one validation part; leave it out",
}


class Iterators(NamedTuple):
    """Micro-batches of one data-parallel rank; None where there is no document to draw from."""

    train: MicroBatchIterator | None
    valid: MicroBatchIterator | None
    test: MicroBatchIterator | None


class Parts(NamedTuple):
    """The corpus, divided by `--split`."""

    train: DocumentDataset
    valid: DocumentDataset
    test: DocumentDataset


def datasets_provider(
    train_val_test_num_samples: object, vp_stage: int | None = None, longest: int | None = None
) -> Iterators:
    """What Megatron's `pretrain()` takes as its provider of train, validation and test data; iterators without end.

    `longest` is what `open_parts` takes. Raises ValueError, a sentence, on every rank when data or arguments are wrong.
    """
    from megatron.core import mpu
    from megatron.training import get_args, get_tokenizer

    args = get_args()
    parts = open_parts(args, longest)
    if args.rank == 0 and not vp_stage:
        _log_parts(parts)
        _log_misfits(args, parts, longest)
    dp_rank, dp_size = mpu.get_data_parallel_rank(), mpu.get_data_parallel_world_size()
    return make_iterators(args, parts, dp_rank, dp_size, pad_id=get_tokenizer().eod)


datasets_provider.is_distributed = True  # type: ignore[attr-defined]  # every rank reads for itself


def check_arguments(args: argparse.Namespace) -> None:
    """Refuse what cannot work, by a look at Megatron's arguments alone (no file is opened). Raises ValueError."""
    for attribute, reason in _REFUSED.items():
        if getattr(args, attribute, None):
            flag = "--" + attribute.replace("_", "-")
            raise ValueError(f"{flag} does not go with one document a sample: {reason}")
    if args.dataloader_type != "external":
        raise ValueError(f"--dataloader-type is {args.dataloader_type}; one document a sample needs external")
    paths = args.data_path or []
    if len(paths) != 1:
        found = " ".join(paths) or "none"
        raise ValueError(f"--data-path has {len(paths)} values ({found}); it takes one dataset prefix")
    _check_seq_length(args.seq_length, args.tensor_model_parallel_size, rows_per_rank(args))


def rows_per_rank(args: argparse.Namespace) -> int:
    """What each rank's tokens are padded to a multiple of."""
    return FP8_ROWS if getattr(args, "fp8", None) else 1


def _check_seq_length(seq_length: int, group_size: int, rows: int) -> None:
    multiple = padding_multiple(group_size, rows)
    below = seq_length // multiple * multiple
    if below != seq_length:
        accepted = f"{below} or {below + multiple}" if below else f"{multiple}"
        raise ValueError(
            f"--seq-length {seq_length} is not a length that all strategies accept with "
            f"--tensor-model-parallel-size {group_size}{' and fp8' if rows > 1 else ''}: it must be a multiple of "
            f"{multiple}; set it to {accepted}"
        )


def open_parts(args: argparse.Namespace, longest: int | None = None) -> Parts:
    """Check Megatron's arguments, open the corpus and divide it; quick, and no token is read. Raises ValueError.

    `longest` is the longest sequence that some plan fits, where that is known. It is a function of the arguments, so
    that all ranks leave out (or cut) the same documents, as --paradyse-on-misfit says, and number the rest alike.
    """
    check_arguments(args)
    indexed = open_indexed(args.data_path[0], mmap=args.mmap_bin_files)
    split = args.split or DEFAULT_SPLIT
    vocab_size = getattr(args, "padded_vocab_size", None)
    ranges = split_ranges(num_documents(indexed), split)
    seq_length, skipped_above = _bounds(args, longest)
    parts = Parts(*(DocumentDataset(indexed, seq_length, documents, vocab_size, skipped_above) for documents in ranges))
    where = f"of {args.data_path[0]} with --split {split} holds none of its {num_documents(indexed)} documents"
    if skipped_above is not None:
        where += f" of at most {skipped_above} tokens (--paradyse-on-misfit skip)"
    if not len(parts.train) and not args.skip_train:
        raise ValueError(f"the training part {where}; give it more weight, or more documents")
    if not len(parts.valid) and args.eval_iters:
        raise ValueError(f"the validation part {where}; give it more weight, or more documents, or set --eval-iters 0")
    return parts


def _bounds(args: argparse.Namespace, longest: int | None) -> tuple[int, int | None]:
    """Tokens at which documents are cut, and above which they are left out (None: never)."""
    action = getattr(args, "paradyse_on_misfit", "error")
    if longest is None or longest >= args.seq_length or action == "error":
        return args.seq_length, None
    return (longest, None) if action == "truncate" else (args.seq_length, longest)


def make_iterators(args: argparse.Namespace, parts: Parts, dp_rank: int, dp_size: int, pad_id: int) -> Iterators:
    """The iterators of one data-parallel rank, from where Megatron's arguments say that the run stands.

    Training is shuffled by `--seed`; validation and test keep the order of the corpus and wrap round. Validation goes
    on at `consumed_valid_samples` (with `--skip-train` at 0, like Megatron), test begins at 0.
    """
    make = partial(
        MicroBatchIterator,
        dp_rank=dp_rank,
        dp_size=dp_size,
        group_size=args.tensor_model_parallel_size,
        pad_id=pad_id,
        rows_per_rank=rows_per_rank(args),
    )
    train = valid = test = None
    if len(parts.train):
        order = training_order(args, parts.train, dp_size)
        train = make(
            parts.train, order, micro_batch_size=args.micro_batch_size, consumed_samples=args.consumed_train_samples
        )
    make_eval = partial(make, micro_batch_size=getattr(args, "eval_micro_batch_size", None) or args.micro_batch_size)
    if len(parts.valid):
        consumed = 0 if args.skip_train else args.consumed_valid_samples
        valid = make_eval(parts.valid, FixedOrder(len(parts.valid)), consumed_samples=consumed)
    if len(parts.test):
        test = make_eval(parts.test, FixedOrder(len(parts.test)), consumed_samples=0)
    return Iterators(train, valid, test)


def training_order(args: argparse.Namespace, train: DocumentDataset, dp_size: int) -> Order:
    """What --paradyse-batch-order asks for; with one sample a step there is nothing to balance."""
    asked = getattr(args, "paradyse_batch_order", "window")
    step = args.micro_batch_size * dp_size
    if asked == "shuffled" or step == 1:
        return SampleOrder(len(train), args.seed)
    shape = BatchShape(args.micro_batch_size, dp_size, getattr(args, "global_batch_size", None) or step)
    window = shape.global_batch_size if asked == "batch" else shape.window()
    return BalancedOrder(train.lengths, args.seed, shape, window, linear_tokens=12 * getattr(args, "hidden_size", 128))


def describe(args: argparse.Namespace, parts: Parts) -> dict[str, object]:
    """All that the lengths of micro-batches depend on, for ranks to compare."""
    arguments = ("seq_length", "seed", "micro_batch_size", "global_batch_size", "paradyse_batch_order")
    return {"--" + name.replace("_", "-"): getattr(args, name, None) for name in arguments} | {
        f"{name} documents and a checksum of their lengths": [len(part), zlib.crc32(part.lengths.tobytes())]
        for name, part in zip(Parts._fields, parts, strict=True)
    }


def _log_misfits(args: argparse.Namespace, parts: Parts, longest: int | None) -> None:
    """What --paradyse-on-misfit did, as a warning: the run trains on less than it was given."""
    seq_length, skipped_above = _bounds(args, longest)
    if skipped_above is not None:
        counts = ", ".join(f"{part.num_too_long} of {name}" for name, part in zip(Parts._fields, parts, strict=True))
        logger.warning(
            "paradyse: documents of more than %d tokens are left out, as no plan fits them: %s", skipped_above, counts
        )
    elif seq_length < args.seq_length:
        counts = ", ".join(f"{part.num_truncated} of {name}" for name, part in zip(Parts._fields, parts, strict=True))
        logger.warning("paradyse: documents are cut at %d tokens, as no plan fits longer ones: %s", seq_length, counts)


def _log_parts(parts: Parts) -> None:
    for name, dataset in zip(Parts._fields, parts, strict=True):
        if not len(dataset):
            logger.info("%s data: no documents", name)
            continue
        longest = int(dataset.num_document_tokens.argmax())
        logger.info(
            "%s data: %d documents with %d input tokens, %d empty ones left out, %d too long for any plan left out, "
            "%d longer ones cut to %d tokens "
            "(the longest, document %d, has %d tokens)",
            name,
            len(dataset),
            dataset.lengths.sum(),
            dataset.num_empty,
            dataset.num_too_long,
            dataset.num_truncated,
            dataset.seq_length,
            dataset.document_ids[longest],
            dataset.num_document_tokens[longest],
        )
