"""Real layers of a model on this machine's ranks, to be timed and weighed: forward and backward, option by option."""

from __future__ import annotations

import time
from typing import Any

import torch
import torch.distributed as dist
from megatron.core import parallel_state
from torch import Tensor

from paradyse_megatron.costmodel.shape import ModelShape
from paradyse_megatron.layers.active import use_plan
from paradyse_megatron.layers.prefetch import link_layers
from paradyse_megatron.layers.spec import dynamic_submodules
from paradyse_megatron.layers.transformer_layer import DynamicTransformerLayer
from paradyse_megatron.planner.plan import Plan
from paradyse_megatron.profiling.parts import layer_config

MAX_LAYERS = 4
"""Enough that weights travel beside other layers' compute as they do in a whole model."""


class LayerStack:
    """A few equal layers on the tensor-parallel group. Its methods are collective over the group.

    Gradients are added to a second buffer and let go, as Megatron's DDP does.

    Args:
        shape: of the model; its first `MAX_LAYERS` layers are built.
        batch: sequences in a micro-batch.
    """

    def __init__(self, shape: ModelShape, batch: int):
        self.group = parallel_state.get_tensor_model_parallel_group()
        config = layer_config(shape, self.group.size(), num_layers=min(shape.num_layers, MAX_LAYERS))
        submodules = dynamic_submodules(config)
        numbers = range(1, config.num_layers + 1)
        self.layers = [DynamicTransformerLayer(config, submodules, layer_number=number).cuda() for number in numbers]
        link_layers(self.layers, self.group)
        for layer in self.layers:
            for parameter in layer.parameters():
                accumulate_apart(parameter)
        self._shape, self._batch, self._dtype = shape, batch, config.params_dtype

    def milliseconds(self, option: str, seq_length: int) -> float:
        """Of one layer, forward and backward: wall time of the stack divided by its layers, on the slowest rank."""
        hidden, rotary = self._inputs(seq_length)
        settle(self.group)
        begin = time.perf_counter()
        self._run(option, hidden, rotary)
        settle(self.group)
        return 1000 * (time.perf_counter() - begin) / len(self.layers)

    def peak_bytes(self, option: str, seq_length: int) -> int:
        """The most that was allocated above the weights, this rank's input included, the most of all ranks."""
        torch.cuda.empty_cache()
        before = torch.cuda.memory_allocated()
        hidden, rotary = self._inputs(seq_length)
        torch.cuda.reset_peak_memory_stats()
        self._run(option, hidden, rotary)
        return greatest(torch.cuda.max_memory_allocated() - before, self.group)

    def _run(self, option: str, hidden: Tensor, rotary: Tensor | None) -> None:
        with use_plan(Plan.parse(option, len(self.layers))):
            for layer in self.layers:
                hidden = layer(hidden, None, rotary_pos_emb=rotary)[0]
        hidden.backward(torch.ones_like(hidden))

    def _inputs(self, seq_length: int) -> tuple[Tensor, Tensor | None]:
        local = (seq_length // self.group.size(), self._batch, self._shape.hidden_size)
        hidden = torch.randn(local, dtype=self._dtype, device="cuda", requires_grad=True)
        rotary = torch.rand(seq_length, 1, 1, self._shape.head_dim, device="cuda") if self._shape.rotary else None
        return hidden, rotary


def accumulate_apart(parameter: Any) -> None:
    """Give a parameter an fp32 `main_grad`, as Megatron's DDP does."""
    parameter.main_grad = torch.zeros_like(parameter, dtype=torch.float32)
    parameter.grad_added_to_main_grad = False

    def accumulate(done: Any) -> None:
        if done.grad is not None and not done.grad_added_to_main_grad:
            done.main_grad.add_(done.grad)
        done.grad_added_to_main_grad = False
        done.grad = None

    parameter.register_post_accumulate_grad_hook(accumulate)


def settle(group: dist.ProcessGroup) -> None:
    """Wait until this device is idle and all ranks are here."""
    torch.cuda.synchronize()
    dist.barrier(group)


def greatest(number: int, group: dist.ProcessGroup) -> int:
    """Of all ranks' numbers."""
    held = torch.tensor([number], dtype=torch.int64, device="cuda")
    dist.all_reduce(held, dist.ReduceOp.MAX, group=group)
    return int(held)
