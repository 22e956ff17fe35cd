"""Pre-trains a GPT, or with `--hybrid-layer-pattern` a hybrid model, through Megatron's own loop:

    torchrun ... -m paradyse_megatron.integration.pretrain ARGUMENTS

Takes all of Megatron's arguments and ours. With `--dynamic-parallel` a document is a sample and each one is computed
in parallel as its length demands; without, this is Megatron's layers on the same data.
"""

from __future__ import annotations

import argparse
import functools
import logging
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from paradyse_megatron.integration.session import Session

from paradyse_megatron import compat
from paradyse_megatron.integration import hybrid
from paradyse_megatron.integration.orphans import end_with_launcher
from paradyse_megatron.integration.refusal import refusals


def main() -> int:
    """Exit status: 0 done, 2 bad input (one sentence on standard error, on every rank)."""
    get_ready()
    with refusals():
        compat.check_version()
        args, model_config, session = settle()
        compat.call_pretrain(args, model_config, *hooks(args, session))
    return 0


def get_ready() -> None:
    """What a rank does before Megatron is imported."""
    end_with_launcher()
    logging.basicConfig(level=logging.WARNING, format="%(message)s")
    if not torch.cuda.is_available():
        from paradyse_megatron import cpu

        cpu.enable()


def settle() -> tuple[argparse.Namespace, Any, Session]:
    """Everything that can be refused, refused: arguments, data, plan; nothing is sent. Raises ValueError.

    Returns Megatron's arguments, its model configuration, and the session.
    """
    from paradyse_megatron.integration.arguments import add_arguments, prepare

    args = compat.parse_arguments(add_arguments, prepare, {"tokenizer_type": "NullTokenizer"})
    model_config = hybrid.model_config(args)
    return args, model_config, make_session(args, model_config)


def make_session(args: argparse.Namespace, model_config: Any) -> Session:
    """Check data and plan, before anything is sent. Raises ValueError."""
    from paradyse_megatron.data.provider import describe, open_parts
    from paradyse_megatron.integration.misfits import longest_sequence
    from paradyse_megatron.integration.session import Session
    from paradyse_megatron.integration.setup import make_decider

    if args.rank == 0:
        version, folder = compat.megatron_in_use()
        sys.stdout.write(f" paradyse: megatron-core {version} in {folder}\n")  # where Megatron's own log goes
        sys.stdout.flush()
    open_parts(args)  # refused before costs are looked for
    decider = make_decider(args, model_config.transformer)
    longest = longest_sequence(args, decider)
    return Session(args, decider, longest, describe(args, open_parts(args, longest)))


def hooks(args: argparse.Namespace, session: Session) -> tuple[Callable[..., Any], Callable[..., Any]]:
    """What Megatron's `pretrain` is given: the provider of data, and the forward step."""
    from paradyse_megatron.data.provider import datasets_provider
    from paradyse_megatron.integration.forward_step import forward_step

    if args.pipeline_model_parallel_size == 2:
        compat.separate_shape_exchanges()

    def open_data(num_samples: object, vp_stage: int | None = None) -> Any:
        session.open()  # here the checkpoint is loaded, and every rank passes
        return datasets_provider(num_samples, vp_stage, session.longest)

    open_data.is_distributed = True  # type: ignore[attr-defined]
    return open_data, functools.partial(forward_step, session)


if __name__ == "__main__":
    sys.exit(main())
