"""Whole models whose loss head is chunked, against the stock model. Runs on one or more ranks."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from paradyse_megatron import Plan
from paradyse_megatron.layers.active import planned_head
from paradyse_megatron.layouts import loss_chunks
from paradyse_megatron.strategies import loss_head
from tests.layers.equality import CASES, loss_and_gradients, mixed_plans, start_model_parallel, worst_error, wrapped
from tests.layers.models import NUM_LAYERS

CHUNKED = ";head=chunked"
TIED, UNTIED = "gpt", "llama"


def found(expected: dict[str, dict[str, Tensor]]) -> dict[str, Any]:
    """On P ranks: worst relative errors by reference and way, and the chunks of each head that ran chunked."""
    num_ranks = torch.distributed.get_world_size()
    start_model_parallel(num_ranks)
    loss_chunks.CHUNK_BYTES = 1  # down to the floor that the width sets: several chunks of these short sequences
    num_chunks = _count_chunks()
    errors = {}
    for family in (TIED, UNTIED):
        for dtype in ("float64", "float32"):
            model = wrapped(family, dtype, num_ranks)
            for case in CASES:
                plan = mixed_plans(1, seed=len(errors))[0] + CHUNKED
                key = f"{family} {case} {dtype}"
                gradients = loss_and_gradients(model, [Plan.parse(plan, NUM_LAYERS)], [case])
                errors[f"{key} {plan}"] = worst_error(gradients, expected[key])
    chunks = list(num_chunks)
    return {"errors": errors | _windows(num_ranks), "chunks": chunks}


def _windows(num_ranks: int) -> dict[str, float]:
    """Accumulation windows that mix whole and chunked heads, against the same micro-batches with whole ones.

    Before each chunked one the output weight has the flag that Megatron's fused kernel leaves set.
    """
    errors = {}
    for family in (TIED, UNTIED):
        model = wrapped(family, "float64", num_ranks)
        cases = ["one", "three", "masked", "one"]
        whole = loss_and_gradients(model, [Plan.parse("tp_sp", NUM_LAYERS)] * 4, cases)
        texts = ["tp_sp" + CHUNKED, "tp_sp", "ring" + CHUNKED, "ulysses" + CHUNKED]
        model.module.register_forward_pre_hook(_leave_flag)
        mixed = loss_and_gradients(model, [Plan.parse(text, NUM_LAYERS) for text in texts], cases)
        errors[f"{family} window"] = worst_error(mixed, whole)
    return errors


def _leave_flag(model: Any, args: Any) -> None:
    if planned_head() == "chunked":
        tied = model.share_embeddings_and_output_weights
        weight = model.shared_embedding_or_output_weight() if tied else model.output_layer.weight
        weight.grad_added_to_main_grad = True


def _count_chunks() -> list[int]:
    """A list that grows by the number of chunks of each pass through the chunked head."""
    counts: list[int] = []
    visit_chunks = loss_head._visit_chunks

    def counting(hidden: Tensor, chunk_rows: int, group: Any, visit: Any) -> None:
        counts.append(-(-len(hidden) // chunk_rows))
        visit_chunks(hidden, chunk_rows, group, visit)

    loss_head._visit_chunks = counting
    return counts
