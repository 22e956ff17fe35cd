"""What the lines that `paradyse patch apply` adds to Megatron's own pretrain_gpt.py call.

Without --dynamic-parallel on the command line the script runs exactly as it did.
"""

from __future__ import annotations

import argparse
import functools
import sys
from collections.abc import Callable
from typing import Any

from paradyse_megatron import compat
from paradyse_megatron.integration import hybrid
from paradyse_megatron.integration.arguments import add_arguments, prepare
from paradyse_megatron.integration.refusal import refusals

Provider = Callable[[argparse.ArgumentParser], argparse.ArgumentParser]
FLAG = "--dynamic-parallel"


def parse_and_validate_args(
    extra_args_provider: Provider | None = None,
    ignore_unknown_args: bool = False,
    args_defaults: dict[str, Any] | None = None,
) -> argparse.Namespace:
    """Megatron's function of this name (from 0.18 on), with our flags among the arguments."""
    if _is_asked_for():
        with refusals():
            compat.check_version()
            return compat.parse_arguments(with_flags(extra_args_provider), prepare, args_defaults or {})
    from megatron.training.arguments import parse_and_validate_args as stock

    return stock(with_flags(extra_args_provider), ignore_unknown_args, args_defaults or {})


def with_flags(extra_args_provider: Provider | None) -> Provider:
    """An `extra_args_provider` that adds our flags to what another one, if any, adds."""

    def add(parser: argparse.ArgumentParser) -> argparse.ArgumentParser:
        return add_arguments(extra_args_provider(parser) if extra_args_provider else parser)

    return add


def with_dynamic_parallel(pretrain: Callable[..., Any]) -> Callable[..., Any]:
    """Megatron's `pretrain`, given our data, forward step and layers when --dynamic-parallel is asked for."""
    if not _is_asked_for():
        return pretrain

    @functools.wraps(pretrain)
    def dynamic_pretrain(*arguments: Any, **named: Any) -> Any:
        from paradyse_megatron.integration.pretrain import hooks, make_session

        with refusals():
            compat.check_version()
            args = compat.script_arguments(named, prepare)
            config = hybrid.model_config(args)
            session = make_session(args, config)
            return compat.redirect_pretrain(pretrain, (arguments, named), args, config, *hooks(args, session))

    return dynamic_pretrain


def _is_asked_for() -> bool:
    """Megatron's parser takes no abbreviations, so the word itself is there or not."""
    return FLAG in sys.argv[1:]
