"""Parsing Megatron's arguments with ours between parsing and validating."""

from __future__ import annotations

import argparse
import contextlib
from collections.abc import Callable, Iterator
from typing import Any

Provider = Callable[[argparse.ArgumentParser], argparse.ArgumentParser]


def parse_arguments(
    extra_arguments: Provider, prepare: Callable[[argparse.Namespace], None], defaults: dict[str, Any]
) -> argparse.Namespace:
    """Parse, with `prepare` between parsing and validating, and set what Megatron keeps in globals."""
    from megatron.training.global_vars import set_global_variables

    args = parse_and_validate(extra_arguments, prepare, defaults)
    set_global_variables(args)
    return args


def parse_and_validate(
    extra_arguments: Provider, prepare: Callable[[argparse.Namespace], None], defaults: dict[str, Any]
) -> argparse.Namespace:
    """As Megatron's `parse_and_validate_args`, with `prepare` between the two.

    0.19 offers no place between them (0.17 does both inside `pretrain`); drop this when Megatron does.
    """
    from megatron.training.arguments import parse_args, validate_args

    args = parse_args(extra_arguments)
    if args.use_checkpoint_args:
        from megatron.training.checkpointing import load_args_from_checkpoint

        load_args_from_checkpoint(args)
    prepare(args)
    validate_args(args, defaults)
    # Megatron turns it off whatever was asked for, up to 0.19 at least.
    args.variable_seq_lengths = args.pipeline_model_parallel_size > 1
    return args


def script_arguments(named: dict[str, Any], prepare: Callable[[argparse.Namespace], None]) -> argparse.Namespace:
    """The arguments of a script that calls `pretrain(..., **named)`: before 0.18 they are still to be parsed."""
    if pretrain_parses():
        return parse_arguments(named["extra_args_provider"], prepare, named.get("args_defaults") or {})
    from megatron.training import get_args

    return get_args()


@contextlib.contextmanager
def settled(args: argparse.Namespace) -> Iterator[None]:
    """While this lasts, Megatron's `pretrain` takes `args` as they are, parsed and validated, instead of parsing again.

    Only before 0.18, whose `pretrain` parses for itself; drop this with 0.17.
    """
    if not pretrain_parses():
        yield
        return
    from megatron.training import initialize

    ours: dict[str, Callable[..., Any]] = {
        "parse_args": lambda *_: args,
        "validate_args": lambda *_: args,
        "set_global_variables": lambda *_: None,
    }
    theirs = {name: getattr(initialize, name) for name in ours}
    vars(initialize).update(ours)
    try:
        yield
    finally:
        vars(initialize).update(theirs)


def pretrain_parses() -> bool:
    """Whether Megatron parses arguments inside `pretrain`: before 0.18."""
    from megatron.training import arguments

    return not hasattr(arguments, "parse_and_validate_args")
