"""Megatron's output layer and loss, computed as the plan's head says."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import Tensor

from paradyse_megatron.layers.active import planned_head
from paradyse_megatron.layers.parameters import weight_and_bias
from paradyse_megatron.strategies.loss_head import chunked_cross_entropy


def planned_loss(
    *,
    hidden_states: Tensor,
    output_layer: Any,
    output_weight: Tensor | None,
    labels: Tensor,
    runtime_gather_output: bool | None,
    context: Callable[[], str] | None,
    compute_language_model_loss: Callable[[Tensor, Tensor], Tensor],
    scale_logits: Callable[[Tensor], Tensor],
    **unused: Any,
) -> Tensor:
    """Hidden states [s/P, b, h] and labels [b, s] to losses [b, s]: an `output_processor` for `GPTModel.forward`.

    Args:
        output_weight: the word embeddings' weight where it is tied to the output layer's, else None.
        context: the `output_processor_context`: tells the head of the micro-batch under way ("whole" or "chunked").
            Without it that of the plan in `use_plan`. Asked here, in forward, and never again.
        unused: what else Megatron passes.
    """
    head = planned_head() if context is None else context()
    if head == "whole":
        logits, _ = output_layer(hidden_states, weight=output_weight, runtime_gather_output=runtime_gather_output)
        return compute_language_model_loss(labels, scale_logits(logits))
    group = output_layer.tp_group
    assert output_layer.sequence_parallel or group.size() == 1, "strategies need sequence parallelism"
    own_weight, bias = weight_and_bias(output_layer)
    assert bias is None, "Megatron's output layer has no bias"
    # muP's factor is a number, so it may as well go to the hidden states, which are fewer.
    return chunked_cross_entropy(
        scale_logits(hidden_states), own_weight if output_weight is None else output_weight, labels, group
    )
