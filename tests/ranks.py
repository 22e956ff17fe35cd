"""Runs a function on several ranks (fresh processes, gloo, CPU) and brings back what each returned.

From a test:          results = run_ranks("tests.cpu.test_cpu:some_worker", 2, "argument", option=3)
By hand, to debug it: python -m tests.ranks tests.cpu.test_cpu:some_worker --num-ranks 2 --args '["argument"]'

Every rank is a fresh interpreter with `RANK`, `WORLD_SIZE`, `MASTER_ADDR`, `MASTER_PORT` as under torchrun, one thread
and no visible GPU. The store of the rendezvous lives in the calling process on a port the system picked, so that
launches that run at once cannot collide. When one rank fails, or the time limit passes, all ranks and their children
are killed.
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import pickle
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

from paradyse_megatron.bench.ranks import kill_ranks, wait_for_ranks

REPOSITORY = Path(__file__).resolve().parent.parent
TAIL_LINES = 40


class RanksFailed(RuntimeError):
    """At least one rank raised, died or ran out of time; the message holds the tail of every rank's output."""


def run_ranks(target: str, num_ranks: int, *args: Any, timeout_seconds: float = 120, **kwargs: Any) -> list[Any]:
    """Call `target` ("module:function") as `target(*args, **kwargs)` on `num_ranks` ranks; return values by rank.

    Arguments and return values travel as pickles. The default process group (gloo) is up when `target` is called.
    """
    return _run(target, num_ranks, args, kwargs, timeout_seconds, show_output=False)


Call = tuple[str, tuple[Any, ...]]
"""A target and its positional arguments."""


def each(calls: list[Call]) -> list[Any]:
    """A target of its own: several calls one after the other, for tests that share a launch."""
    return [_resolve(target)(*args) for target, args in calls]


def _run(target: str, num_ranks: int, args: Any, kwargs: Any, timeout_seconds: float, show_output: bool) -> list[Any]:
    from torch.distributed import TCPStore

    store = TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    with tempfile.TemporaryDirectory(prefix="ranks-") as name:
        folder = Path(name)
        (folder / "call.pkl").write_bytes(pickle.dumps((target, args, kwargs, timeout_seconds)))
        processes: list[subprocess.Popen[bytes]] = []
        try:
            for rank in range(num_ranks):
                processes.append(_start(folder, rank, num_ranks, store.port, show_output))
            results = [_result_path(folder, rank) for rank in range(num_ranks)]
            reason = wait_for_ranks(processes, results, timeout_seconds)
        finally:
            kill_ranks(processes)
        if reason is not None:
            raise RanksFailed(f"{target} on {num_ranks} ranks: {reason}\n{_tails(folder, processes)}")
        return [pickle.loads(_result_path(folder, rank).read_bytes()) for rank in range(num_ranks)]


def _start(folder: Path, rank: int, num_ranks: int, port: int, show_output: bool) -> subprocess.Popen[bytes]:
    """One rank in a session of its own (so that its children can be killed with it).

    Its standard input is a pipe that we never write to: it closes when this process dies, however it dies.
    """
    environment = os.environ | {
        "RANK": str(rank),
        "LOCAL_RANK": str(rank),
        "WORLD_SIZE": str(num_ranks),
        "LOCAL_WORLD_SIZE": str(num_ranks),
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(port),
        "TORCHELASTIC_USE_AGENT_STORE": "True",  # all ranks are clients of the store in this process
        "TORCHELASTIC_RESTART_COUNT": "0",
        "OMP_NUM_THREADS": "1",
        "CUDA_VISIBLE_DEVICES": "",
        "PYTHONUNBUFFERED": "1",
        "PYTHONPATH": os.pathsep.join([str(REPOSITORY), *filter(None, [os.environ.get("PYTHONPATH")])]),
    }
    if sys.platform == "linux":
        environment.setdefault("GLOO_SOCKET_IFNAME", "lo")  # the host name may not resolve in a container
    command = [sys.executable, "-m", "tests.ranks", "--worker", str(folder)]
    with open(_log_path(folder, rank), "wb") as log:
        output = None if show_output else log
        return subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=output, stderr=output, env=environment, start_new_session=True
        )


def _tails(folder: Path, processes: list[subprocess.Popen[bytes]]) -> str:
    parts = []
    for rank, process in enumerate(processes):
        lines = _log_path(folder, rank).read_text(errors="replace").splitlines()[-TAIL_LINES:]
        parts.append("\n".join([f"--- rank {rank} (code {process.returncode}), last lines:", *lines]))
    return "\n".join(parts)


def _log_path(folder: Path, rank: int) -> Path:
    return folder / f"rank{rank}.log"


def _result_path(folder: Path, rank: int) -> Path:
    return folder / f"rank{rank}.pkl"


def _work(folder: Path) -> None:
    """What one rank does."""
    threading.Thread(target=_exit_with_parent, daemon=True).start()
    import torch.distributed as dist

    target, args, kwargs, timeout_seconds = pickle.loads((folder / "call.pkl").read_bytes())
    dist.init_process_group("gloo", timeout=timedelta(seconds=timeout_seconds))
    result = _resolve(target)(*args, **kwargs)
    path = _result_path(folder, int(os.environ["RANK"]))
    path.with_suffix(".part").write_bytes(pickle.dumps(result))
    path.with_suffix(".part").rename(path)
    if dist.is_initialized():  # the target may have destroyed it
        dist.barrier()  # no rank leaves while another still talks to it
        dist.destroy_process_group()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)  # a thread of gloo's may still let go of tensors, and aborts when the interpreter has ended meanwhile


def _exit_with_parent() -> None:
    os.read(0, 1)
    os._exit(1)


def _resolve(target: str) -> Callable[..., Any]:
    module, _, function = target.partition(":")
    return getattr(importlib.import_module(module), function)


def _main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.ranks", description=__doc__.splitlines()[0])
    parser.add_argument("target", nargs="?", help="module:function")
    parser.add_argument("--num-ranks", type=int, default=2)
    parser.add_argument("--timeout-seconds", type=float, default=600)
    parser.add_argument("--args", type=json.loads, default=[], help="positional arguments, a JSON list")
    parser.add_argument("--kwargs", type=json.loads, default={}, help="keyword arguments, a JSON object")
    parser.add_argument("--worker", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.worker is not None:
        return _work(options.worker)
    if options.target is None:
        parser.error("name the function to run: module:function")
    results = _run(options.target, options.num_ranks, options.args, options.kwargs, options.timeout_seconds, True)
    for rank, result in enumerate(results):
        print(f"rank {rank}: {result!r}")


if __name__ == "__main__":
    _main()
