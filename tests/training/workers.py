"""Worker: our training, with what it evaluates written down."""

from __future__ import annotations

import contextlib
import io
import sys
from typing import Any

from torch import Tensor

from paradyse_megatron import cpu


def evaluated(flags: str) -> tuple[str, list[tuple[float, int]]]:
    """What a training run printed, and sum of losses and tokens of every micro-batch that this rank evaluated."""
    cpu.enable()
    from paradyse_megatron.integration import forward_step, pretrain

    micro_batches: list[tuple[float, int]] = []
    original = forward_step.loss_function

    def loss_function(loss_mask: Tensor, record: Any, losses: Tensor) -> Any:
        if not losses.requires_grad:
            counts = loss_mask.flatten() > 0
            micro_batches.append((losses.flatten()[counts].sum().item(), int(counts.sum())))
        return original(loss_mask, record, losses)

    forward_step.loss_function = loss_function
    sys.argv = ["pretrain", *cpu.MEGATRON_FLAGS, *flags.split()]
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        status = pretrain.main()
    assert status == 0, printed.getvalue()
    return printed.getvalue(), micro_batches
