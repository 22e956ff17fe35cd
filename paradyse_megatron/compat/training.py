"""Calling Megatron's training loop."""

from __future__ import annotations

import argparse
import inspect
from collections.abc import Callable
from typing import Any

from paradyse_megatron.compat.arguments import settled
from paradyse_megatron.compat.models import build_gpt, builds_by_function


def call_pretrain(
    args: argparse.Namespace, config: Any, datasets_provider: Callable[..., Any], forward_step: Callable[..., Any]
) -> None:
    """Run Megatron's `pretrain()` on a GPT.

    It takes a container of configurations from 0.18 on, and the model's configuration in it from 0.19 on; before, a
    function that builds the model, and before 0.18 it parses the arguments for itself.

    Args:
        args: Megatron's arguments, parsed and validated.
        config: what `model_config` made of them.
        datasets_provider: of training, validation and test data.
        forward_step: computes a micro-batch.
    """
    from megatron.core.enums import ModelType
    from megatron.training import pretrain

    named: dict[str, Any] = replacements(datasets_provider, forward_step)
    named["model_type"] = ModelType.encoder_or_decoder
    if "cfg_container" in inspect.signature(pretrain).parameters:
        from megatron.training.argument_utils import pretrain_cfg_container_from_args

        named["cfg_container"] = pretrain_cfg_container_from_args(args, None if builds_by_function() else config)
    with settled(args):
        pretrain(**named)


def redirect_pretrain(
    pretrain: Callable[..., Any],
    call: tuple[tuple[Any, ...], dict[str, Any]],
    args: argparse.Namespace,
    datasets_provider: Callable[..., Any],
    forward_step: Callable[..., Any],
) -> Any:
    """Do what a script's call of `pretrain` asks for, with other data, another forward step and, up to 0.18, our GPT.

    Args:
        pretrain: Megatron's, perhaps wrapped.
        call: positional and named arguments that the script gave it.
        args: Megatron's arguments, parsed and validated.
        datasets_provider: of training, validation and test data.
        forward_step: computes a micro-batch.
    """
    from megatron.training.training import pretrain as stock

    bound = inspect.signature(stock).bind(*call[0], **call[1])
    bound.arguments.update(replacements(datasets_provider, forward_step))
    with settled(args):
        return pretrain(*bound.args, **bound.kwargs)


def replacements(datasets_provider: Callable[..., Any], forward_step: Callable[..., Any]) -> dict[str, Any]:
    """What we give `pretrain` instead of the script's, by the names of its parameters."""
    named: dict[str, Any] = {
        "train_valid_test_dataset_provider": datasets_provider,
        "forward_step_func": forward_step,
    }
    if builds_by_function():
        named["model_provider"] = build_gpt
    return named


def count_real_tokens(lengths: Any) -> None:
    """Tell Megatron's FLOPs log the real lengths of a micro-batch (0.19 on; before, it assumes --seq-length)."""
    import torch
    from megatron.training import training

    if hasattr(training, "update_seqlen_stats_from_cu_seqlens"):
        training.update_seqlen_stats_from_cu_seqlens(torch.nn.functional.pad(lengths.cumsum(0), (1, 0)))
