"""Every difference between Megatron versions that we meet, each with the version and when to drop it."""

from __future__ import annotations

import argparse
import functools
import inspect
import logging
from collections.abc import Callable
from importlib import metadata
from typing import Any

logger = logging.getLogger(__name__)
OLDEST, TOO_NEW = (0, 17), (0, 21)
"""megatron-core versions [OLDEST, TOO_NEW) are supported. 0.16 lacks megatron.training in its wheel."""


def check_version() -> None:
    """Refuse an unsupported megatron-core by name, before anything of it is used."""
    from megatron.core.package_info import __version__ as version

    found = tuple(int(part) for part in version.split(".")[:2])
    if not OLDEST <= found < TOO_NEW:
        raise ValueError(
            f"megatron-core {version} is installed, but this version of paradyse-megatron works with "
            f"{'.'.join(map(str, OLDEST))} up to {'.'.join(map(str, (TOO_NEW[0], TOO_NEW[1] - 1)))}: "
            "pip install 'megatron-core[training]>=0.19,<0.20'."
        )


def has_transformer_engine() -> bool:
    """Whether NVIDIA's Transformer Engine is installed."""
    try:
        metadata.version("transformer_engine")
    except metadata.PackageNotFoundError:
        return False
    return True


@functools.cache
def has_output_processor(model_class: Any = None) -> bool:
    """Whether a model (by default `GPTModel`) lets us compute its output layer and loss.

    `GPTModel` does from 0.18 on, `HybridModel` not yet in 0.19. Without, the loss head is whole, whatever the length.
    """
    from megatron.core.models.gpt.gpt_model import GPTModel

    model_class = model_class or GPTModel
    found = "output_processor" in inspect.signature(model_class.forward).parameters
    if not found:
        logger.warning(
            "%s of this Megatron computes all logits at once, however long the sequence: chunks need GPTModel of "
            "megatron-core 0.18 or later.",
            model_class.__name__,
        )
    return found


def parse_arguments(
    extra_arguments: Callable[[argparse.ArgumentParser], argparse.ArgumentParser],
    prepare: Callable[[argparse.Namespace], None],
    defaults: dict[str, Any],
) -> argparse.Namespace:
    """Parse as Megatron's `parse_and_validate_args`, with `prepare` between parsing and validating.

    0.19 offers no place between the two; drop this when Megatron does.
    """
    from megatron.training.arguments import parse_args, validate_args
    from megatron.training.global_vars import set_global_variables

    args = parse_args(extra_arguments)
    if args.use_checkpoint_args:
        from megatron.training.checkpointing import load_args_from_checkpoint

        load_args_from_checkpoint(args)
    prepare(args)
    validate_args(args, defaults)
    # Megatron turns it off whatever was asked for, up to 0.19 at least.
    args.variable_seq_lengths = args.pipeline_model_parallel_size > 1
    set_global_variables(args)
    return args


def model_config(args: argparse.Namespace) -> Any:
    """Megatron's configuration of the GPT. Raises ValueError when the layers of --spec cannot be imported.

    Megatron (0.19) logs that, and goes on with layers of its own.
    """
    from megatron.training.argument_utils import gpt_config_from_args

    config = gpt_config_from_args(args)
    if config.transformer_layer_spec is None:
        raise ValueError(f"The layers of --spec {' '.join(args.spec)} cannot be imported; the log says why.")
    return config


def separate_shape_exchanges() -> None:
    """Let pipeline stages tell each other shapes in one direction at a time.

    With virtual stages a stage sends to and receives from both neighbours at once, in messages without tags. In a
    pipeline of two the neighbours are one rank, and each side takes the other's two messages in the wrong order: still
    so in 0.19.2. Drop this when Megatron tags them.
    """
    from megatron.core.pipeline_parallel.p2p_communication import P2PCommunicator

    both_at_once = P2PCommunicator._communicate_shapes
    if getattr(both_at_once, "is_separate", False):
        return

    def one_at_a_time(self: Any, send_next: Any, send_prev: Any, recv_prev: bool, recv_next: bool) -> Any:
        shape_of_prev, _ = both_at_once(self, send_next, None, recv_prev, False)
        _, shape_of_next = both_at_once(self, None, send_prev, False, recv_next)
        return shape_of_prev, shape_of_next

    one_at_a_time.is_separate = True  # type: ignore[attr-defined]
    P2PCommunicator._communicate_shapes = one_at_a_time


def count_real_tokens(lengths: Any) -> None:
    """Tell Megatron's FLOPs log the real lengths of a micro-batch (0.19 on; before, it assumes --seq-length)."""
    import torch
    from megatron.training import training

    if hasattr(training, "update_seqlen_stats_from_cu_seqlens"):
        training.update_seqlen_stats_from_cu_seqlens(torch.nn.functional.pad(lengths.cumsum(0), (1, 0)))
