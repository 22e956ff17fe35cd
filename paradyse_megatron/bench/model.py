"""The model that benchmarks run on CPU ranks: megatron-core's GPT with our layers or its own, and a micro-batch."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from megatron.core import parallel_state
from megatron.core.models.gpt.gpt_model import GPTModel
from megatron.core.tensor_parallel.random import model_parallel_cuda_manual_seed
from megatron.core.transformer.transformer_config import TransformerConfig

from paradyse_megatron.layers.spec import layer_spec, stock_layer_spec


def gpt(
    num_layers: int,
    hidden_size: int,
    num_heads: int,
    num_groups: int,
    vocab_size: int,
    max_length: int,
    stock: bool = False,
    **extra: Any,
) -> GPTModel:
    """A Llama-like model in fp32 on all ranks as one tensor-parallel group; `stock` has Megatron's layers."""
    num_ranks = torch.distributed.get_world_size()
    if not parallel_state.model_parallel_is_initialized():
        parallel_state.initialize_model_parallel(tensor_model_parallel_size=num_ranks)
        model_parallel_cuda_manual_seed(1)
    config = TransformerConfig(
        num_layers=num_layers,
        hidden_size=hidden_size,
        ffn_hidden_size=4 * hidden_size,
        num_attention_heads=num_heads,
        num_query_groups=num_groups,
        normalization="RMSNorm",
        activation_func=F.gelu,
        add_bias_linear=False,
        params_dtype=torch.float32,
        pipeline_dtype=torch.float32,
        tensor_model_parallel_size=num_ranks,
        sequence_parallel=num_ranks > 1,
        hidden_dropout=0.0,
        attention_dropout=0.0,
        bias_dropout_fusion=False,
        bias_activation_fusion=False,
        masked_softmax_fusion=False,
        persist_layer_norm=False,
        use_cpu_initialization=True,
        gradient_accumulation_fusion=False,
        apply_rope_fusion=False,
        **extra,
    )
    spec = stock_layer_spec(config) if stock else layer_spec(config)
    return GPTModel(
        config, spec, vocab_size, max_length, position_embedding_type="rope", share_embeddings_and_output_weights=True
    )


def micro_batch(seq_length: int, vocab_size: int, seed: int) -> dict[str, Any]:
    """Keyword arguments of `GPTModel.forward` for one sequence of random tokens."""
    generator = torch.Generator().manual_seed(seed)
    tokens = torch.randint(0, vocab_size, (1, seq_length + 1), generator=generator)
    positions = torch.arange(seq_length).unsqueeze(0)
    return {
        "input_ids": tokens[:, :-1],
        "position_ids": positions,
        "attention_mask": None,
        "labels": tokens[:, 1:].contiguous(),
    }
