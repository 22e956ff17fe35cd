"""Documents that no plan fits, found before training instead of in the middle of it."""

from __future__ import annotations

import argparse

from paradyse_megatron.data.documents import DocumentDataset
from paradyse_megatron.data.provider import open_parts, rows_per_rank
from paradyse_megatron.layouts.padding import pad_to_multiple, padding_multiple
from paradyse_megatron.runtime.decision import Decider


def longest_sequence(args: argparse.Namespace, decider: Decider) -> int | None:
    """The longest sequence of at most --seq-length that some plan fits; None for a fixed plan.

    Raises ValueError where none fits, or with --paradyse-on-misfit error if a document is longer that is trained on
    or evaluated.
    """
    longest = decider.longest_fitting(args.seq_length)
    if longest is None or longest >= args.seq_length:
        return longest
    longest -= longest % padding_multiple(args.tensor_model_parallel_size, rows_per_rank(args))
    if longest == 0:
        raise ValueError(decider.misfit(pad_to_multiple(1, args.tensor_model_parallel_size)))
    if args.paradyse_on_misfit == "error":
        _refuse_longer(args, decider, longest)
    return longest


def _refuse_longer(args: argparse.Namespace, decider: Decider, longest: int) -> None:
    parts = open_parts(args)
    used = [] if args.skip_train else [parts.train]
    used += [parts.valid, parts.test] if args.eval_iters else []
    for part in used:
        if len(part) and part.lengths.max() > longest:
            raise ValueError(_sentence(args, decider, part))


def _sentence(args: argparse.Namespace, decider: Decider, part: DocumentDataset) -> str:
    place = int(part.lengths.argmax())
    padded = pad_to_multiple(int(part.lengths[place]), args.tensor_model_parallel_size)
    return f"Document {part.document_ids[place]} of {args.data_path[0]} is too long. {decider.misfit(padded)}"
