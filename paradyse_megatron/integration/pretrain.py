"""Pre-trains a GPT through Megatron's own loop: `torchrun ... -m paradyse_megatron.integration.pretrain ARGUMENTS`.

Takes all of Megatron's arguments and ours. With `--dynamic-parallel` a document is a sample and each one is computed
in parallel as its length demands; without, this is Megatron's layers on the same data.
"""

from __future__ import annotations

import argparse
import functools
import logging
import os
import sys
import time
from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from paradyse_megatron.integration.session import Session

from paradyse_megatron.integration.orphans import end_with_launcher

BAD_INPUT = 2
PATIENCE_SECONDS = 10.0


def main() -> int:
    """Exit status: 0 done, 2 bad input (one sentence on standard error, on every rank)."""
    end_with_launcher()
    logging.basicConfig(level=logging.WARNING, format="%(message)s")
    if not torch.cuda.is_available():
        from paradyse_megatron import cpu

        cpu.enable()
    try:
        _train()
    except ValueError as error:
        if not _is_ours(error):
            raise
        return _refuse(error)
    return 0


def settle() -> tuple[argparse.Namespace, Any, Session]:
    """Everything that can be refused, refused: arguments, data, plan; nothing is sent. Raises ValueError.

    Returns Megatron's arguments, its model configuration, and the session.
    """
    from paradyse_megatron.data.provider import open_parts
    from paradyse_megatron.integration import compat
    from paradyse_megatron.integration.arguments import add_arguments, prepare
    from paradyse_megatron.integration.session import Session
    from paradyse_megatron.integration.setup import make_decider

    args = compat.parse_arguments(add_arguments, prepare, {"tokenizer_type": "NullTokenizer"})
    open_parts(args)
    model_config = compat.model_config(args)
    return args, model_config, Session(args, make_decider(args, model_config.transformer))


def _train() -> None:
    from paradyse_megatron.integration import compat

    compat.check_version()
    from megatron.core.enums import ModelType
    from megatron.training import pretrain
    from megatron.training.argument_utils import pretrain_cfg_container_from_args

    from paradyse_megatron.data.provider import datasets_provider
    from paradyse_megatron.integration.forward_step import forward_step

    args, model_config, session = settle()
    if args.pipeline_model_parallel_size == 2:
        compat.separate_shape_exchanges()

    def open_data(num_samples: object, vp_stage: int | None = None) -> Any:
        session.open()  # here the checkpoint is loaded, and every rank passes
        return datasets_provider(num_samples, vp_stage)

    open_data.is_distributed = True  # type: ignore[attr-defined]
    pretrain(
        pretrain_cfg_container_from_args(args, model_config),
        open_data,
        ModelType.encoder_or_decoder,
        functools.partial(forward_step, session),
    )


def _is_ours(error: ValueError) -> bool:
    """Whether this package raised it, for the user to read; one from elsewhere is a defect and keeps its traceback."""
    innermost = error.__traceback__
    while innermost is not None and innermost.tb_next is not None:
        innermost = innermost.tb_next
    package = innermost.tb_frame.f_globals.get("__package__") if innermost is not None else None
    return (package or "").startswith("paradyse_megatron")


def _refuse(error: ValueError) -> int:
    """Say what is wrong. Peers that wait in a collective end when this process does."""
    sys.stderr.write(f"paradyse: rank {os.environ.get('RANK', '0')}: {error}\n")
    sys.stderr.flush()
    _let_the_others_speak()
    if torch.distributed.is_initialized():
        os._exit(BAD_INPUT)
    return BAD_INPUT


def _let_the_others_speak() -> None:
    """Wait, for some seconds at most, until every rank has refused: torchrun kills them when one ends."""
    if os.environ.get("TORCHELASTIC_USE_AGENT_STORE") != "True":
        return
    from torch.distributed import TCPStore

    address, port = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
    store = TCPStore(address, port, is_master=False, wait_for_workers=False)
    store.add("paradyse/refused", 1)
    end = time.monotonic() + PATIENCE_SECONDS
    while store.add("paradyse/refused", 0) < int(os.environ["WORLD_SIZE"]) and time.monotonic() < end:
        time.sleep(0.05)


if __name__ == "__main__":
    sys.exit(main())
