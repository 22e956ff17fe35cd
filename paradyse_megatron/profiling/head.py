"""The loss head of a model on this machine's ranks, to be timed and weighed, whole and in chunks."""

from __future__ import annotations

from typing import Any

import torch
from megatron.core import parallel_state
from megatron.core.tensor_parallel import ColumnParallelLinear, vocab_parallel_cross_entropy
from torch import Tensor

from paradyse_megatron.costmodel.shape import ModelShape
from paradyse_megatron.layers.loss_head import planned_loss
from paradyse_megatron.profiling import stopwatch
from paradyse_megatron.profiling.parts import layer_config


class Head:
    """Output projection and loss as `GPTModel` computes them. Its methods are collective over the group."""

    def __init__(self, shape: ModelShape, batch: int):
        self.group = parallel_state.get_tensor_model_parallel_group()
        config = layer_config(shape, self.group.size())
        self._shape, self._batch, self._dtype = shape, batch, config.params_dtype
        self._output_layer = ColumnParallelLinear(
            shape.hidden_size,
            shape.padded_vocab_size(self.group.size()),
            config=config,
            init_method=lambda weight: torch.nn.init.normal_(weight, std=0.02),
            bias=False,
            skip_bias_add=False,
            gather_output=False,
            tp_group=self.group,
        ).cuda()
        stopwatch.accumulate_apart(self._output_layer.weight)

    def milliseconds(self, head: str, seq_length: int) -> float:
        """Of one micro-batch's head, forward and backward."""
        inputs = self._inputs(seq_length)
        return stopwatch.milliseconds(lambda: self._run(head, *inputs), self.group)

    def peak_bytes(self, head: str, seq_length: int) -> int:
        """Above the weights and the head's input."""
        inputs = self._inputs(seq_length)
        return stopwatch.peak_bytes(lambda: self._run(head, *inputs), self.group)

    def _run(self, head: str, hidden: Tensor, labels: Tensor) -> None:
        losses = planned_loss(
            hidden_states=hidden,
            output_layer=self._output_layer,
            output_weight=None,
            labels=labels,
            runtime_gather_output=None,
            context=lambda: head,
            compute_language_model_loss=_loss,
            scale_logits=lambda logits: logits,
        )
        losses.mean().backward()

    def _inputs(self, seq_length: int) -> tuple[Tensor, Tensor]:
        local = (seq_length // self.group.size(), self._batch, self._shape.hidden_size)
        hidden = torch.randn(local, dtype=self._dtype, device="cuda", requires_grad=True)
        labels = torch.randint(0, self._shape.vocab_size, (self._batch, seq_length), device="cuda")
        return hidden, labels


def _loss(labels: Tensor, logits: Tensor) -> Any:
    """As megatron-core's `LanguageModule.compute_language_model_loss`: labels [b, s], logits [s, b, V/P]."""
    return vocab_parallel_cross_entropy(logits, labels.transpose(0, 1).contiguous()).transpose(0, 1).contiguous()
