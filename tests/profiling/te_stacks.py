"""The stack of layers that a profile times, around a stand-in for Transformer Engine (`tests.stand_ins`)."""

from __future__ import annotations

from tests import stand_ins

stand_ins.install()

import torch.distributed as dist  # noqa: E402

from paradyse_megatron import cpu  # noqa: E402

cpu.enable()

from megatron.core import parallel_state  # noqa: E402
from megatron.core.tensor_parallel.random import model_parallel_cuda_manual_seed  # noqa: E402

from paradyse_megatron.costmodel.shape import ModelShape  # noqa: E402
from paradyse_megatron.profiling.stack import LayerStack  # noqa: E402


def timed(shape: ModelShape, options: list[str]) -> dict[str, tuple[str, list[float]]]:
    """By implementation: the class of the attention core, and milliseconds of each option."""
    parallel_state.initialize_model_parallel(dist.get_world_size())
    model_parallel_cuda_manual_seed(1)
    found = {}
    for implementation in ("local", "transformer_engine"):
        stack = LayerStack(shape, 1, implementation)
        core = type(stack.layers[0].self_attention.core_attention).__name__
        found[implementation] = core, [stack.milliseconds(option, 64) for option in options]
    return found
