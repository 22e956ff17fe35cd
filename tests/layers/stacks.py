"""Hybrid stacks and mixtures of experts under fixed plans, against unsharded stock models. Runs on any rank count."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from paradyse_megatron import Plan, cpu

cpu.enable()

from megatron.core.distributed import DistributedDataParallel, DistributedDataParallelConfig  # noqa: E402
from megatron.core.models.gpt.gpt_layer_specs import get_gpt_decoder_block_spec  # noqa: E402
from megatron.core.models.gpt.gpt_model import GPTModel  # noqa: E402
from megatron.core.models.hybrid.hybrid_model import HybridModel  # noqa: E402

from paradyse_megatron.layers.hybrid import hybrid_stack_spec, stock_hybrid_stack_spec  # noqa: E402
from paradyse_megatron.layers.hybrid_model import DynamicHybridModel  # noqa: E402
from paradyse_megatron.layers.spec import layer_spec  # noqa: E402
from paradyse_megatron.layouts import loss_chunks  # noqa: E402
from tests.layers.equality import loss_and_gradients, worst_error  # noqa: E402
from tests.layers.models import FAMILIES, MAX_LENGTH, VOCAB, make_config, set_weights, start_model_parallel  # noqa: E402

EXPERTS = {
    "num_moe_experts": 4,
    "moe_router_topk": 2,
    "moe_ffn_hidden_size": 48,
    "moe_token_dispatcher_type": "alltoall",
    "moe_router_load_balancing_type": "aux_loss",
    "moe_aux_loss_coeff": 0.0,
}
STACKS: dict[str, dict[str, Any]] = {
    "pairs": {"pattern": "*-*-*-", "family": "llama"},
    "apart": {"pattern": "-**--*", "family": "gpt"},
    "experts in a pattern": {"pattern": "*E*-", "family": "qwen", "extra": EXPERTS},
    "experts": {"family": "llama", "extra": EXPERTS | {"num_layers": 3}},
    "experts in some layers": {"family": "qwen", "extra": EXPERTS | {"num_layers": 3, "moe_layer_freq": [0, 1, 0]}},
}
"""By name: a pattern (none is a GPT), what else makes the model (`models.FAMILIES`), keywords of its configuration."""


def references() -> dict[str, dict[str, Tensor]]:
    """On one rank: loss and gradients of the stock, unsharded models."""
    start_model_parallel(1)
    return {name: loss_and_gradients(_wrapped(name, 1, stock=True), [None], ["three"]) for name in STACKS}


def errors(expected: dict[str, dict[str, Tensor]], plans_of: dict[str, list[str]]) -> dict[str, float]:
    """On P ranks: the worst relative error over loss and gradients, for each stack and each of its plans."""
    num_ranks = torch.distributed.get_world_size()
    start_model_parallel(num_ranks)
    loss_chunks.CHUNK_BYTES = 1  # several chunks of these short sequences
    found: dict[str, float] = {}
    for name, plans in plans_of.items():
        model = _wrapped(name, num_ranks)
        for plan in plans:
            parsed = Plan.parse(plan, model.config.num_layers)
            found[f"{name}: {plan}"] = worst_error(loss_and_gradients(model, [parsed], ["three"]), expected[name])
    return found


def _wrapped(name: str, num_ranks: int, stock: bool = False) -> DistributedDataParallel:
    """In fp64, so that nothing but a fault can be seen."""
    pattern, family = STACKS[name].get("pattern"), STACKS[name]["family"]
    extra = STACKS[name].get("extra", {}) | {"calculate_per_token_loss": True}
    config = make_config(family, torch.float64, num_ranks, **extra)
    if pattern is None:
        spec = _stock_gpt_spec(config) if stock else layer_spec(config)
        model: Any = GPTModel(config, spec, VOCAB, MAX_LENGTH, **FAMILIES[family].model)
    else:
        config.num_layers = len(pattern)
        spec = (stock_hybrid_stack_spec if stock else hybrid_stack_spec)(config)
        model_class = HybridModel if stock else DynamicHybridModel
        model = model_class(config, spec, VOCAB, MAX_LENGTH, hybrid_layer_pattern=pattern, **FAMILIES[family].model)
    model = set_weights(model.to(torch.float64), num_ranks, stock)
    return DistributedDataParallel(config, DistributedDataParallelConfig(), model)


def _stock_gpt_spec(config: Any) -> Any:
    """Megatron's own choice of which layers have experts."""
    return get_gpt_decoder_block_spec(config, use_transformer_engine=False, normalization=config.normalization)
