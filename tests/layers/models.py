"""Small GPT models of several families, with weights that depend on the parameter's name only."""

from __future__ import annotations

import zlib
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from megatron.core import parallel_state
from megatron.core.models.gpt.gpt_layer_specs import (
    get_gpt_layer_local_spec,
    get_gpt_layer_with_transformer_engine_spec,
)
from megatron.core.models.gpt.gpt_model import GPTModel
from megatron.core.tensor_parallel.random import model_parallel_cuda_manual_seed
from megatron.core.transformer.spec_utils import ModuleSpec
from megatron.core.transformer.transformer_config import TransformerConfig
from torch import Tensor

from paradyse_megatron import layer_spec
from paradyse_megatron.layers.prefetch import link_layers

NUM_LAYERS, VOCAB, MAX_LENGTH = 3, 96, 64


@dataclass(frozen=True)
class Family:
    """What makes a model's architecture.

    Attributes:
        config: keywords of `TransformerConfig` besides the sizes that all families share.
        model: keywords of `GPTModel`.
    """

    config: dict[str, Any]
    model: dict[str, Any]


FAMILIES = {
    "gpt": Family(
        {"num_query_groups": 24, "normalization": "LayerNorm", "activation_func": F.gelu, "add_bias_linear": True},
        {"position_embedding_type": "learned_absolute", "share_embeddings_and_output_weights": True},
    ),
    "llama": Family(
        {
            "num_query_groups": 12,
            "normalization": "RMSNorm",
            "activation_func": F.silu,
            "gated_linear_unit": True,
            "add_bias_linear": False,
        },
        {"position_embedding_type": "rope", "share_embeddings_and_output_weights": False},
    ),
    "qwen": Family(
        {
            "num_query_groups": 24,
            "normalization": "RMSNorm",
            "activation_func": F.silu,
            "gated_linear_unit": True,
            "add_bias_linear": False,
            "add_qkv_bias": True,
            "qk_layernorm": True,
        },
        {"position_embedding_type": "rope", "rotary_percent": 0.5, "share_embeddings_and_output_weights": False},
    ),
    "grouped": Family(
        {
            "num_query_groups": 2,
            "normalization": "RMSNorm",
            "activation_func": F.silu,
            "gated_linear_unit": True,
            "add_bias_linear": False,
            "qk_layernorm": True,
        },
        {"position_embedding_type": "rope", "share_embeddings_and_output_weights": False},
    ),
    "blend": Family(
        {
            "num_query_groups": 12,
            "normalization": "LayerNorm",
            "activation_func": F.silu,
            "gated_linear_unit": True,
            "add_bias_linear": True,
            "qk_layernorm": True,
        },
        {"position_embedding_type": "rope", "share_embeddings_and_output_weights": True},
    ),
    "mqa": Family(
        {"num_query_groups": 1, "normalization": "LayerNorm", "activation_func": F.gelu, "add_bias_linear": True},
        {"position_embedding_type": "learned_absolute", "share_embeddings_and_output_weights": True},
    ),
}


def make_config(family: str, dtype: torch.dtype, num_ranks: int, **extra: Any) -> TransformerConfig:
    """A model of 3 layers, 24 heads of size 4, h = 48 (so that h differs from a * d), unless told otherwise."""
    sizes = {
        "num_layers": NUM_LAYERS,
        "hidden_size": 48,
        "ffn_hidden_size": 96,
        "num_attention_heads": 24,
        "kv_channels": 4,
        "hidden_dropout": 0.0,
        "attention_dropout": 0.0,
        "transformer_impl": "local",
        "gradient_accumulation_fusion": False,
    }
    return TransformerConfig(
        params_dtype=dtype,
        pipeline_dtype=dtype,
        bf16=dtype == torch.bfloat16,
        tensor_model_parallel_size=num_ranks,
        sequence_parallel=num_ranks > 1,
        bias_dropout_fusion=False,
        bias_activation_fusion=False,
        masked_softmax_fusion=False,
        persist_layer_norm=False,
        use_cpu_initialization=True,
        apply_rope_fusion=False,
        **(sizes | FAMILIES[family].config | extra),
    )


def start_model_parallel(num_ranks: int, **sizes: int) -> None:
    """Process groups and random states as Megatron sets them up."""
    parallel_state.destroy_model_parallel()
    parallel_state.initialize_model_parallel(tensor_model_parallel_size=num_ranks, **sizes)
    model_parallel_cuda_manual_seed(1)


def build(family: str, dtype: torch.dtype, num_ranks: int, stock: bool = False, **extra: Any) -> GPTModel:
    """Our model, or with `stock` megatron-core's own; the weights are those of `whole_parameter`."""
    config = make_config(family, dtype, num_ranks, **extra)
    spec = _stock_spec(config) if stock else layer_spec(config)
    model = GPTModel(config, spec, VOCAB, MAX_LENGTH, **FAMILIES[family].model).to(dtype)
    return set_weights(model, num_ranks, stock)


def set_weights[Model: torch.nn.Module](model: Model, num_ranks: int, stock: bool) -> Model:
    """Give a model this rank's shards of `whole_parameter`; ours may then fetch weights ahead."""
    if not stock:
        link_layers(model.decoder.layers, parallel_state.get_tensor_model_parallel_group())
    rank = parallel_state.get_tensor_model_parallel_rank()
    for name, parameter in model.named_parameters():
        parameter.data.copy_(
            _shard(name, whole_parameter(name, parameter, num_ranks), parameter, rank, num_ranks, model.config)
        )
    return model


def _stock_spec(config: TransformerConfig) -> ModuleSpec:
    if config.transformer_impl == "transformer_engine":
        return get_gpt_layer_with_transformer_engine_spec(qk_layernorm=config.qk_layernorm)
    return get_gpt_layer_local_spec(qk_layernorm=config.qk_layernorm, normalization=config.normalization)


def whole_parameter(name: str, parameter: Tensor, num_ranks: int) -> Tensor:
    """The unsharded values of a parameter, the same whatever the number of ranks."""
    shape = list(parameter.shape)
    if is_sharded(parameter):
        shape[parameter.partition_dim] *= num_ranks
    noise = torch.randn(shape, generator=torch.Generator().manual_seed(zlib.crc32(name.encode())), dtype=torch.float64)
    if name.endswith("bias"):
        return 0.1 * noise
    return 1 + 0.1 * noise if "norm" in name else 0.3 * noise if "embedding" in name else noise / shape[-1] ** 0.5


def unshard(name: str, shard: Tensor, parameter: Tensor, config: TransformerConfig) -> Tensor:
    """All ranks' shards of a parameter-shaped tensor as the one of the unsharded model."""
    group = parallel_state.get_tensor_model_parallel_group()
    if not is_sharded(parameter) or group.size() == 1:
        return shard
    shards = [torch.empty_like(shard) for _ in range(group.size())]
    torch.distributed.all_gather(shards, shard.contiguous(), group=group)
    dim = parameter.partition_dim
    if not _is_gated(name, config):
        return torch.cat(shards, dim)
    gates, linears = zip(*(piece.chunk(2, dim) for piece in shards), strict=True)
    return torch.cat([*gates, *linears], dim)


def is_sharded(parameter: Tensor) -> bool:
    """Whether each tensor-parallel rank holds a part of it."""
    return getattr(parameter, "tensor_model_parallel", False)


def _shard(name: str, whole: Tensor, parameter: Tensor, rank: int, num_ranks: int, config: TransformerConfig) -> Tensor:
    if not is_sharded(parameter):
        return whole
    dim = parameter.partition_dim
    if not _is_gated(name, config):
        return whole.chunk(num_ranks, dim)[rank]
    return torch.cat([half.chunk(num_ranks, dim)[rank] for half in whole.chunk(2, dim)], dim)


def _is_gated(name: str, config: TransformerConfig) -> bool:
    return config.gated_linear_unit and "linear_fc1" in name
