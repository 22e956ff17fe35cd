"""Ranks end with the launcher that started them.

torchrun's ranks are sessions of their own: without this, those of a killed launcher would train on, and write to the
same checkpoints and trace as the run that is started in its place.
"""

from __future__ import annotations

import os
import threading
import time

_LAUNCHER = "PARADYSE_LAUNCHER_PID"
_POLL_SECONDS = 0.2


def announce_launcher() -> None:
    """In the launcher, before it starts ranks: tell them whose children they are."""
    os.environ[_LAUNCHER] = str(os.getpid())


def end_with_launcher() -> None:
    """In a rank: end as soon as its launcher is gone. Without a launcher of ours, do nothing."""
    launcher = os.environ.get(_LAUNCHER)
    if launcher is not None:
        threading.Thread(target=_watch, args=(int(launcher),), daemon=True).start()


def _watch(launcher_pid: int) -> None:
    while os.getppid() == launcher_pid:
        time.sleep(_POLL_SECONDS)
    os._exit(1)
