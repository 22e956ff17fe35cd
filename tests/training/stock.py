"""Workers: stock Megatron, nothing of this package but `cpu` and the data, and its model beside ours."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from typing import Any

import torch
from torch import Tensor

from paradyse_megatron import cpu


def train(flags: str) -> list[float]:
    """Losses of this rank's micro-batches, through Megatron's own pre-training loop, model and layers."""
    cpu.enable()
    from megatron.core.enums import ModelType
    from megatron.training import pretrain
    from megatron.training.argument_utils import gpt_config_from_args, pretrain_cfg_container_from_args
    from megatron.training.arguments import parse_and_validate_args

    from paradyse_megatron.data.provider import datasets_provider

    sys.argv = ["pretrain", *cpu.MEGATRON_FLAGS, *flags.split()]
    args = parse_and_validate_args()
    losses: list[float] = []
    pretrain(
        pretrain_cfg_container_from_args(args, gpt_config_from_args(args)),
        datasets_provider,
        ModelType.encoder_or_decoder,
        partial(_forward_step, losses),
    )
    return losses


def _forward_step(losses: list[float], data_iterator: Iterator[dict[str, Tensor]], model: Any) -> tuple[Tensor, Any]:
    batch = next(data_iterator)
    output = model(batch["tokens"], batch["position_ids"], None, labels=batch["labels"])
    return output, partial(_loss, losses, batch["loss_mask"])


def _loss(losses: list[float], mask: Tensor, output: Tensor) -> tuple[Tensor, Tensor, dict[str, Tensor]]:
    loss, num_tokens = (output.float() * mask).sum(), mask.sum().to(torch.int)
    losses.append((loss / num_tokens).item())
    return loss, num_tokens, {"lm loss": torch.stack([loss.detach().clone(), num_tokens])}


def both_models(families: list[str]) -> dict[str, dict[str, dict[str, Any]]]:
    """What the stock model and ours hold and store on this rank: by family, then by "stock" and "ours"."""
    cpu.enable()
    from tests.layers.models import start_model_parallel

    start_model_parallel(torch.distributed.get_world_size())
    return {family: _both(family) for family in families}


def _both(family: str) -> dict[str, dict[str, Any]]:
    from megatron.core.models.gpt.gpt_layer_specs import get_gpt_layer_local_spec
    from megatron.core.models.gpt.gpt_model import GPTModel

    from paradyse_megatron import layer_spec
    from tests.layers.models import FAMILIES, MAX_LENGTH, VOCAB, make_config

    config = make_config(family, torch.float32, torch.distributed.get_world_size())
    stock_spec = get_gpt_layer_local_spec(qk_layernorm=config.qk_layernorm, normalization=config.normalization)
    make = partial(GPTModel, vocab_size=VOCAB, max_sequence_length=MAX_LENGTH, **FAMILIES[family].model)
    stock = make(replace(config, sequence_parallel=False), stock_spec)  # stock norms of torch refuse it
    return {"stock": _described(stock), "ours": _described(make(config, layer_spec(config)))}


def _described(model: Any) -> dict[str, Any]:
    from megatron.core.dist_checkpointing.mapping import apply_factories

    checkpoint = model.sharded_state_dict()
    apply_factories(checkpoint)  # a gated MLP is stored as its gate and its linear half
    return {
        "state dict": plain(dict(model.state_dict())),
        "checkpoint": plain(checkpoint),
        "buffers": plain(dict(model.named_buffers())),
        "parameters": {
            name: plain({"requires_grad": parameter.requires_grad, "value": parameter.data, **vars(parameter)})
            for name, parameter in model.named_parameters()
        },
    }


def plain(value: Any) -> Any:
    """Something that can be compared and sent: a tensor is its shape and type, a piece of a checkpoint its fields."""
    from megatron.core.dist_checkpointing.mapping import ShardedBase

    if isinstance(value, Tensor):
        return tuple(value.shape), str(value.dtype), value.is_contiguous()
    if isinstance(value, dict):
        return {name: plain(part) for name, part in value.items()}
    if isinstance(value, list):
        return [plain(part) for part in value]
    return plain(vars(value)) if isinstance(value, ShardedBase) else repr(value)
