"""Ranks end with the launcher that started them.

torchrun's ranks are sessions of their own: without this, those of a killed launcher would train on, and write to the
same checkpoints and trace as the run that is started in its place.
"""

from __future__ import annotations

import os
import signal
import threading
import time

_LAUNCHER = "PARADYSE_LAUNCHER_PID"
_POLL_SECONDS = 0.2


def named_launcher() -> dict[str, str]:
    """The variable that tells ranks whose children they are, for their environment: no other process is to have it."""
    return {_LAUNCHER: str(os.getpid())}


def end_with_launcher() -> None:
    """In a rank: end as soon as its launcher is gone. Without a launcher of ours, do nothing."""
    launcher = os.environ.get(_LAUNCHER)
    if launcher is not None:
        threading.Thread(target=_watch, args=(int(launcher),), daemon=True).start()


def _watch(launcher_pid: int) -> None:
    while os.getppid() == launcher_pid:
        time.sleep(_POLL_SECONDS)
    if os.getpgrp() == os.getpid():  # with processes of its own, such as those that write checkpoints
        os.killpg(os.getpid(), signal.SIGKILL)
    os._exit(1)
