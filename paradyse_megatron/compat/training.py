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
    """Run Megatron's `pretrain()`.

    Args:
        args: Megatron's arguments, parsed and validated.
        config: what `model_config` made of them.
        datasets_provider: of training, validation and test data.
        forward_step: computes a micro-batch.
    """
    from megatron.core.enums import ModelType
    from megatron.training import pretrain

    given = _given(args, config, datasets_provider, forward_step)
    with settled(args):
        pretrain(model_type=ModelType.encoder_or_decoder, **given)


def redirect_pretrain(
    pretrain: Callable[..., Any],
    call: tuple[tuple[Any, ...], dict[str, Any]],
    args: argparse.Namespace,
    config: Any,
    datasets_provider: Callable[..., Any],
    forward_step: Callable[..., Any],
) -> Any:
    """Do what a script's call of `pretrain` asks for, but with other data, another forward step and our layers.

    Args:
        pretrain: Megatron's, perhaps wrapped.
        call: positional and named arguments that the script gave it.
        args: Megatron's arguments, parsed and validated.
        config: what `model_config` made of them.
        datasets_provider: of training, validation and test data.
        forward_step: computes a micro-batch.
    """
    from megatron.training.training import pretrain as stock

    bound = inspect.signature(stock).bind(*call[0], **call[1])
    bound.arguments.update(_given(args, config, datasets_provider, forward_step))
    with settled(args):
        return pretrain(*bound.args, **bound.kwargs)


def _given(
    args: argparse.Namespace, config: Any, datasets_provider: Callable[..., Any], forward_step: Callable[..., Any]
) -> dict[str, Any]:
    """What we give `pretrain`, by the names of its parameters.

    From 0.18 on it takes a container of configurations, from 0.19 on with the model's in it; before, a function that
    builds the model. Drop the branches with 0.17 and 0.18.
    """
    from megatron.training.training import pretrain

    given: dict[str, Any] = {
        "train_valid_test_dataset_provider": datasets_provider,
        "forward_step_func": forward_step,
    }
    if builds_by_function():
        given["model_provider"], config = build_gpt, None
    if "cfg_container" in inspect.signature(pretrain).parameters:
        from megatron.training.argument_utils import pretrain_cfg_container_from_args

        given["cfg_container"] = pretrain_cfg_container_from_args(args, config)
    return given


def count_real_tokens(lengths: Any) -> None:
    """Tell Megatron's FLOPs log the real lengths of a micro-batch (0.19 on; before, it assumes --seq-length)."""
    import torch
    from megatron.training import training

    if hasattr(training, "update_seqlen_stats_from_cu_seqlens"):
        training.update_seqlen_stats_from_cu_seqlens(torch.nn.functional.pad(lengths.cumsum(0), (1, 0)))
