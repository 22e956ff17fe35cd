"""Bad input: one sentence on standard error, on every rank, and exit status 2."""

from __future__ import annotations

import contextlib
import os
import sys
import time
from collections.abc import Iterator

import torch

BAD_INPUT = 2
PATIENCE_SECONDS = 10.0


@contextlib.contextmanager
def refusals() -> Iterator[None]:
    """End the process with BAD_INPUT where this package raises a ValueError: that is for the user to read."""
    try:
        yield
    except ValueError as error:
        if not _is_ours(error):
            raise
        _refuse(error)


def _is_ours(error: ValueError) -> bool:
    """Whether this package raised it; one from elsewhere is a defect and keeps its traceback."""
    innermost = error.__traceback__
    while innermost is not None and innermost.tb_next is not None:
        innermost = innermost.tb_next
    package = innermost.tb_frame.f_globals.get("__package__") if innermost is not None else None
    return (package or "").startswith("paradyse_megatron")


def _refuse(error: ValueError) -> None:
    """Say what is wrong. Peers that wait in a collective end when this process does."""
    sys.stderr.write(f"paradyse: rank {os.environ.get('RANK', '0')}: {error}\n")
    sys.stderr.flush()
    _let_the_others_speak()
    if torch.distributed.is_initialized():
        os._exit(BAD_INPUT)
    sys.exit(BAD_INPUT)


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
