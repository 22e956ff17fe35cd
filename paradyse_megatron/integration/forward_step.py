"""Megatron's forward step for documents of different lengths."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import torch
from megatron.core.rerun_state_machine import get_rerun_state_machine
from megatron.core.utils import get_attr_wrapped_model
from megatron.training import get_args, get_timers
from torch import Tensor

from paradyse_megatron.compat import count_real_tokens, has_output_processor
from paradyse_megatron.integration.session import Session
from paradyse_megatron.layers.loss_head import planned_loss
from paradyse_megatron.runtime.controller import Controller

Batch = dict[str, Tensor]


def forward_step(session: Session, data_iterator: Iterator[Batch], model: Any) -> tuple[Tensor, Any]:
    """Run one micro-batch: [b, s] tokens to per-token losses [b, s], and the function that sums them."""
    timers = get_timers()
    timers("batch-generator", log_level=2).start()
    on_host = next(data_iterator)
    batch = _to_device(on_host)
    timers("batch-generator").stop()
    if model.training and not get_attr_wrapped_model(model, "vp_stage"):
        count_real_tokens(batch["seq_lengths"])
    controller = session.controller_of(model)
    controller.announce(int(on_host["seq_lengths"].max()))
    session.log_progress()
    head = _head_arguments(model, controller)
    losses = model(batch["tokens"], batch["position_ids"], None, labels=batch["labels"], **head)
    return losses, partial(loss_function, batch["loss_mask"], controller.loss if model.training else None)


def loss_function(
    loss_mask: Tensor, record: Callable[[Tensor, Tensor], None] | None, losses: Tensor
) -> tuple[Tensor, Tensor, dict[str, Tensor]]:
    """Sum of the losses that count, their number, and both for Megatron's log (which divides sums by sums).

    A masked loss is replaced, not multiplied, by zero: a NaN behind the mask must not spread.
    """
    counts = loss_mask.view(-1) > 0
    loss = torch.where(counts, losses.view(-1).float(), 0.0).sum()
    num_tokens = counts.sum().to(torch.int)
    _check_finite(loss)
    if record is not None:
        record(loss, num_tokens)
    return loss, num_tokens, {"lm loss": torch.cat([loss.detach().clone().view(1), num_tokens.view(1)])}


def _head_arguments(model: Any, controller: Controller) -> dict[str, Any]:
    """Let the loss head follow the plan, which the controller knows when the head's turn comes."""
    model_class: Any = type(get_attr_wrapped_model(model, "decoder", return_model_obj=True))
    if not (get_args().dynamic_parallel and has_output_processor(model_class)):
        return {}
    return {"output_processor": planned_loss, "output_processor_context": controller.head}


def _to_device(batch: Batch) -> Batch:
    return {name: tensor.cuda(non_blocking=True) for name, tensor in batch.items()}


def _check_finite(loss: Tensor) -> None:
    """Megatron's own answer to a non-finite loss, as its `pretrain_gpt.py` asks for it."""
    if not get_args().check_for_nan_in_loss_and_grad:
        return
    for reject, name in ((torch.isnan, "NaN"), (torch.isinf, "Inf")):
        get_rerun_state_machine().validate_result(
            result=loss,
            rejection_func=reject,
            message=f"found {name} in local forward loss calculation",
            tolerance=0.0,
            fatal=True,
        )
