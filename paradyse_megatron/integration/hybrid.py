"""Megatron's hybrid entry: arguments that write the model as a pattern, one layer family a position.

`--hybrid-layer-pattern '*-*-'` alone says that the model is a `HybridModel`; `|` in it ends a pipeline stage.
"""

from __future__ import annotations

import argparse
from typing import Any

from paradyse_megatron import compat

_NEED_TRANSFORMER_ENGINE = "MGD+"
_PAIR = "*-"


def layer_pattern(args: argparse.Namespace) -> str | None:
    """The pattern as the user gave it; None for a GPT."""
    newer = getattr(args, "hybrid_layer_pattern", None)
    return newer if newer is not None else getattr(args, "hybrid_override_pattern", None)


def positions(args: argparse.Namespace) -> str | None:
    """One family a layer of the main decoder, without the ends of pipeline stages; None for a GPT."""
    pattern = layer_pattern(args)
    return None if pattern is None else pattern.replace("|", "")


def model_config(args: argparse.Namespace) -> Any:
    """Megatron's configuration of the model that the arguments describe. Raises ValueError."""
    if layer_pattern(args) is None:
        return compat.model_config(args)
    return compat.hybrid_config(args, _dynamic_config if args.dynamic_parallel else _stock_config)


def model_class(args: argparse.Namespace) -> Any:
    """The class of that model."""
    if layer_pattern(args) is None:
        from megatron.core.models.gpt.gpt_model import GPTModel

        return GPTModel
    from paradyse_megatron.layers.hybrid_model import DynamicHybridModel

    return DynamicHybridModel


def _dynamic_config() -> Any:
    from paradyse_megatron.integration.hybrid_builder import DynamicHybridConfig

    return DynamicHybridConfig


def _stock_config() -> Any:
    from megatron.training.models.hybrid import HybridModelConfig

    return HybridModelConfig


def refuse_pattern(args: argparse.Namespace) -> None:
    """Raise a ValueError on a pattern that cannot be built here, or that cannot follow plans."""
    pattern = layer_pattern(args)
    if pattern is None:
        return
    asked = f"--hybrid-layer-pattern '{pattern}'"
    if "/" in pattern:
        raise ValueError(
            f"{asked} and --dynamic-parallel do not work together: there is no multi-token prediction with it; leave "
            "out what follows the '/'."
        )
    if "E" in pattern and not getattr(args, "num_experts", None):
        raise ValueError(f"{asked} has mixtures of experts (E), so it needs --num-experts.")
    missing = [family for family in _NEED_TRANSFORMER_ENGINE if family in pattern]
    if missing and not compat.has_transformer_engine():
        raise ValueError(
            f"{asked} has layers of the families {', '.join(missing)}, which Megatron builds with Transformer Engine "
            "only, and that is not installed. Install it, or use *, - and E."
        )


def num_planned_layers(args: argparse.Namespace) -> int:
    """Layers that auto plans, after Megatron has validated: those of a GPT, or the pairs `*-` of a pattern.

    A pair runs the same computation in the same order as a GPT layer, so its costs are known; those of a position by
    itself, or of another family, are not.

    Raises:
        ValueError: a pattern that is not made of pairs, on every stage as many.
    """
    pattern = layer_pattern(args)
    if pattern is None:
        return args.num_layers
    stages = args.pipeline_model_parallel_size
    segments = pattern.split("|")
    if len(segments) == 1:
        segments = [pattern[: len(pattern) // stages]] * stages
    are_pairs = all(segment == _PAIR * (len(segment) // 2) and segment for segment in segments)
    if not are_pairs or len(set(segments)) > 1 or len("".join(segments)) != len(pattern.replace("|", "")):
        raise ValueError(
            f"--paradyse-plan auto plans stacks of '{_PAIR}' pairs, as many on every pipeline stage, but "
            f"--hybrid-layer-pattern is '{pattern}'. Give one option a position, such as --paradyse-plan ring."
        )
    return args.num_layers // len(_PAIR)
