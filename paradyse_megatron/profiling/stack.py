"""Real layers of a model on this machine's ranks, to be timed and weighed: forward and backward, option by option."""

from __future__ import annotations

import torch
from megatron.core import parallel_state
from torch import Tensor

from paradyse_megatron.costmodel.shape import ModelShape
from paradyse_megatron.layers.active import use_plan
from paradyse_megatron.layers.prefetch import link_layers
from paradyse_megatron.layers.spec import dynamic_submodules
from paradyse_megatron.layers.transformer_layer import DynamicTransformerLayer
from paradyse_megatron.planner.plan import Plan
from paradyse_megatron.profiling import stopwatch
from paradyse_megatron.profiling.parts import layer_config

MAX_LAYERS = 4
"""Enough that weights travel beside other layers' compute as they do in a whole model."""


def stack_layers(shape: ModelShape) -> int:
    """How many layers stand for the model."""
    return min(shape.num_layers, MAX_LAYERS)


class LayerStack:
    """A few equal layers on the tensor-parallel group. Its methods are collective over the group.

    Gradients are added to a second buffer and let go, as Megatron's DDP does.

    Args:
        shape: of the model, whose layers are of one kind; its first `MAX_LAYERS` layers are built.
        batch: sequences in a micro-batch.
        transformer_impl: whose layers, as Megatron's argument of that name.
    """

    def __init__(self, shape: ModelShape, batch: int, transformer_impl: str = "local"):
        self.group = parallel_state.get_tensor_model_parallel_group()
        num_layers, experts = stack_layers(shape), shape.kinds == ("moe",)
        config = layer_config(shape, self.group.size(), experts, num_layers, transformer_impl)
        submodules = dynamic_submodules(config)
        numbers = range(1, config.num_layers + 1)
        self.layers = [DynamicTransformerLayer(config, submodules, layer_number=number).cuda() for number in numbers]
        link_layers(self.layers, self.group)
        for layer in self.layers:
            for name, parameter in layer.named_parameters():
                _fill(name, parameter)
                stopwatch.accumulate_apart(parameter)
        self._shape, self._batch, self._dtype = shape, batch, config.params_dtype

    def milliseconds(self, option: str, seq_length: int) -> float:
        """Of one layer, forward and backward: that of the stack divided by its layers."""
        inputs = self._inputs(seq_length)
        return stopwatch.milliseconds(lambda: self._run(option, *inputs), self.group) / len(self.layers)

    def peak_bytes(self, option: str, seq_length: int) -> int:
        """Of the stack, above the weights and this rank's input."""
        inputs = self._inputs(seq_length)
        return stopwatch.peak_bytes(lambda: self._run(option, *inputs), self.group)

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


@torch.no_grad()
def _fill(name: str, parameter: Tensor) -> None:
    """Values like those of a model at work: zeros would take a device less power, and send all tokens to one expert."""
    if parameter.dim() > 1:
        parameter.normal_(std=0.02)
    elif name.endswith("bias"):
        parameter.zero_()
