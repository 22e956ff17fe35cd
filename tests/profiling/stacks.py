"""What stands in the stack of layers that a profile times."""

from __future__ import annotations

from typing import Any

import torch.distributed as dist

from paradyse_megatron import cpu

cpu.enable()

from megatron.core import parallel_state  # noqa: E402
from megatron.core.tensor_parallel.random import model_parallel_cuda_manual_seed  # noqa: E402
from megatron.core.transformer.moe.moe_layer import MoELayer  # noqa: E402

from paradyse_megatron.costmodel.shape import ModelShape  # noqa: E402
from paradyse_megatron.profiling.stack import LayerStack  # noqa: E402


def found(shapes: dict[str, ModelShape]) -> dict[str, tuple[list[bool], float]]:
    """By name: which layers have experts, and the smallest deviation of a matrix's elements."""
    parallel_state.initialize_model_parallel(dist.get_world_size())
    model_parallel_cuda_manual_seed(1)
    return {name: _of(LayerStack(shape, batch=1)) for name, shape in shapes.items()}


def _of(stack: Any) -> tuple[list[bool], float]:
    deviations = [each.std().item() for layer in stack.layers for each in layer.parameters() if each.dim() > 1]
    return [isinstance(layer.mlp, MoELayer) for layer in stack.layers], min(deviations)
