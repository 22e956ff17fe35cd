"""How Megatron's training loop gets its model, and what the model can do."""

from __future__ import annotations

import argparse
import functools
import inspect
import logging
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

logger = logging.getLogger(__name__)


def model_config(args: argparse.Namespace) -> Any:
    """Megatron's configuration of the GPT; `.transformer` is the `TransformerConfig`.

    Raises ValueError when the layers of --spec cannot be imported. Megatron (0.19) logs that, and goes on with layers
    of its own. Up to 0.18 there is no configuration of a whole GPT; drop that branch with 0.18.
    """
    if builds_by_function():
        from megatron.training.arguments import core_transformer_config_from_args

        return SimpleNamespace(transformer=core_transformer_config_from_args(args))
    from megatron.training.argument_utils import gpt_config_from_args

    config = gpt_config_from_args(args)
    _require_spec(config.transformer_layer_spec, args)
    return config


def hybrid_config(args: argparse.Namespace, config_class: Callable[[], Any]) -> Any:
    """Megatron's configuration of a hybrid model, of the class that `config_class` imports.

    Raises ValueError as `model_config` does, and up to 0.18, where hybrid models are built another way.
    """
    if builds_by_function():
        raise ValueError("--hybrid-layer-pattern needs megatron-core 0.19 or later. Install one, or train a GPT.")
    from megatron.training.argument_utils import hybrid_config_from_args

    config = hybrid_config_from_args(args, model_config_cls=config_class())
    _require_spec(config.hybrid_stack_spec, args)
    if callable(config.hybrid_stack_spec):  # Megatron calls the spec of a GPT, but builds this one as it is (0.19)
        config.hybrid_stack_spec = config.hybrid_stack_spec(config)
    return config


def _require_spec(spec: Any, args: argparse.Namespace) -> None:
    if spec is None:
        raise ValueError(f"The layers of --spec {' '.join(args.spec)} cannot be imported; the log says why.")


def builds_by_function() -> bool:
    """Whether `pretrain` gets a function that builds the model (up to 0.18) rather than its configuration."""
    from megatron.training.training import pretrain

    return inspect.signature(pretrain).parameters["model_provider"].default is inspect.Parameter.empty


def build_gpt(
    pre_process: bool = True,
    post_process: bool = True,
    vp_stage: int | None = None,
    config: Any = None,
    pg_collection: Any = None,
) -> Any:
    """The `model_provider` of Megatron up to 0.18, which takes no spec that depends on the configuration; drop with it.

    The arguments are those that Megatron's `get_model` passes.
    """
    from megatron.core.models.gpt import GPTModel
    from megatron.core.transformer.spec_utils import import_module
    from megatron.training import get_args
    from megatron.training.arguments import core_transformer_config_from_args

    args = get_args()
    config = config or core_transformer_config_from_args(args)
    return GPTModel(
        config=config,
        transformer_layer_spec=import_module(args.spec)(config, vp_stage),
        vocab_size=args.padded_vocab_size,
        max_sequence_length=args.max_position_embeddings,
        pre_process=pre_process,
        post_process=post_process,
        fp16_lm_cross_entropy=args.fp16_lm_cross_entropy,
        parallel_output=True,
        share_embeddings_and_output_weights=not args.untie_embeddings_and_output_weights,
        position_embedding_type=args.position_embedding_type,
        rotary_percent=args.rotary_percent,
        rotary_base=args.rotary_base,
        rope_scaling=args.use_rope_scaling,
        vp_stage=vp_stage,
        pg_collection=pg_collection,
    )


@functools.cache
def has_output_processor(model_class: Any = None) -> bool:
    """Whether a model (by default `GPTModel`) lets us compute its output layer and loss.

    `GPTModel` does from 0.18 on, `HybridModel` not yet in 0.19, but ours does. Without, the head is whole.
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
