"""Conversions that rotate queries and keys in Megatron models, against rotation after the exchange."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from unittest import mock

import torch
from megatron.core.models.common.embeddings import rope_utils
from megatron.core.transformer.transformer_config import TransformerConfig
from torch import Tensor

from paradyse_megatron import Plan
from paradyse_megatron.comm import rotary
from tests.layers.equality import loss_and_gradients, start_model_parallel, worst_error, wrapped
from tests.layers.models import NUM_LAYERS

PLANS = ("ulysses,usp,ulysses+selective", "usp+selective,ulysses,usp", "usp,ulysses+full,ulysses/tp_sp")
MODELS: dict[str, tuple[str, dict[str, Any]]] = {
    "llama": ("llama", {}),
    "in sub-groups": ("llama", {"num_query_groups": 2}),
    "pairs, in part": ("qwen", {"rotary_interleaved": True, "qk_layernorm": False}),
    "with norms": ("qwen", {}),
    "without rotation": ("gpt", {}),
}


def found() -> dict[str, tuple[float, int]]:
    """By model and plan: the worst relative error, and how many conversions rotated, forward."""
    num_ranks = torch.distributed.get_world_size()
    start_model_parallel(num_ranks)
    results = {}
    for name, (family, extra) in MODELS.items():
        model = wrapped(family, "float64", num_ranks, **extra)
        for text in PLANS:
            plan = Plan.parse(text, NUM_LAYERS)
            plain = loss_and_gradients(model, [plan], ["three"])
            with (
                mock.patch.object(rotary, "check", wraps=rotary.check) as checked,
                _fused_by_megatron(model.module.config),
            ):
                fused = loss_and_gradients(model, [plan], ["three"])
            results[f"{name} {text}"] = worst_error(fused, plain), checked.call_count
    return results


@contextmanager
def _fused_by_megatron(config: TransformerConfig) -> Iterator[None]:
    """As where Transformer Engine is installed, whose kernel is stood in for by the formula."""

    def kernel(heads: Tensor, angles: Tensor, interleaved: bool) -> Tensor:
        return rope_utils._apply_rotary_pos_emb_bshd(heads, angles, rotary_interleaved=interleaved)

    with mock.patch.object(rope_utils, "fused_apply_rotary_pos_emb", kernel):
        config.apply_rope_fusion = True
        yield
    config.apply_rope_fusion = False
