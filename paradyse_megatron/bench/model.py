"""The model that benchmarks run on CPU ranks: megatron-core's GPT with our layers or its own, and micro-batches."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from megatron.core import parallel_state
from megatron.core.models.gpt.gpt_model import GPTModel
from megatron.core.tensor_parallel.random import model_parallel_cuda_manual_seed

from paradyse_megatron.costmodel.shape import ModelShape
from paradyse_megatron.layers.active import use_plan
from paradyse_megatron.layers.loss_head import planned_loss
from paradyse_megatron.layers.prefetch import link_layers
from paradyse_megatron.layers.spec import layer_spec, stock_layer_spec
from paradyse_megatron.layouts.padding import pad_to_multiple
from paradyse_megatron.planner.plan import Plan
from paradyse_megatron.profiling.parts import layer_config
from paradyse_megatron.profiling.stopwatch import accumulate_apart


def start_ranks() -> None:
    """All ranks of the world as one tensor-parallel group."""
    if not parallel_state.model_parallel_is_initialized():
        parallel_state.initialize_model_parallel(tensor_model_parallel_size=torch.distributed.get_world_size())
        model_parallel_cuda_manual_seed(1)


def gpt(shape: ModelShape, max_length: int, stock: bool = False) -> GPTModel:
    """A model of this shape with our layers, linked for prefetch; `stock` has Megatron's own."""
    start_ranks()
    group = parallel_state.get_tensor_model_parallel_group()
    config = layer_config(shape, group.size(), num_layers=shape.num_layers)
    model = GPTModel(
        config,
        stock_layer_spec(config) if stock else layer_spec(config),
        shape.padded_vocab_size(group.size()),
        max_length,
        position_embedding_type="rope" if shape.rotary else "learned_absolute",
        share_embeddings_and_output_weights=shape.tied_embeddings,
    )
    if not stock:
        link_layers(model.decoder.layers, group)
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, std=0.02)
        accumulate_apart(parameter)
    return model


def train_step(
    model: GPTModel, tokens: Sequence[int], plan: Plan | None, head: Callable[[], str] | None = None
) -> float:
    """Forward and backward on one document, without the optimizer's step; returns its mean loss.

    Args:
        plan: None for a stock model.
        head: tells how to compute the loss head where no plan is current then.
    """
    of_head = {} if plan is None else {"output_processor": planned_loss, "output_processor_context": head}
    losses = model(**_micro_batch(tokens), **of_head)
    loss = losses[0, : len(tokens) - 1].mean()
    loss.backward()
    return float(loss.detach())


def step_under(model: GPTModel, tokens: Sequence[int], plan: Plan | None) -> float:
    """`train_step`, following `plan`."""
    if plan is None:
        return train_step(model, tokens, None)
    with use_plan(plan):
        return train_step(model, tokens, plan)


def _micro_batch(tokens: Sequence[int]) -> dict[str, Any]:
    """Keyword arguments of `GPTModel.forward` for one document of at least two tokens, padded."""
    length = pad_to_multiple(len(tokens) - 1, torch.distributed.get_world_size())
    padded = torch.zeros(1, length + 1, dtype=torch.int64)
    padded[0, : len(tokens)] = torch.tensor(tokens, dtype=torch.int64)
    return {
        "input_ids": padded[:, :-1].contiguous(),
        "position_ids": torch.arange(length).unsqueeze(0),
        "attention_mask": None,
        "labels": padded[:, 1:].contiguous(),
    }
