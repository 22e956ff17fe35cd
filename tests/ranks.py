"""Runs a function on several ranks (fresh processes, gloo, CPU) and brings back what each returned.

From a test:          results = run_ranks("tests.cpu.test_cpu:some_worker", 2, "argument", option=3)
By hand, to debug it: python -m tests.ranks tests.cpu.test_cpu:some_worker --num-ranks 2 --args '["argument"]'

Every rank is a process of its own with `RANK`, `WORLD_SIZE`, `MASTER_ADDR`, `MASTER_PORT` as under torchrun, one thread
and no visible GPU. It is forked from a server that has imported torch and what Megatron needs, but neither Megatron nor
this package, and run nothing: importing these takes longer than most tests. The store of the rendezvous lives in the
calling process on a port the system picked, so that launches that run at once cannot collide. When one rank fails, or
the time limit passes, all ranks and their children are killed.
"""

from __future__ import annotations

import argparse
import importlib
import json
import multiprocessing
import os
import pickle
import sys
import tempfile
import threading
import traceback
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any
from unittest import mock

from paradyse_megatron.bench.ranks import kill_ranks, wait_for_ranks

REPOSITORY = Path(__file__).resolve().parent.parent
TAIL_LINES = 40

PRELOADED = "torch torch._dynamo torch.distributed.tensor transformers tensorboard wandb scipy.optimize".split()
"""Modules of others that ranks import anyway; those that are missing are passed over."""
OF_ALL_RANKS = {"OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": "", "PYTHONUNBUFFERED": "1"}
_forks = multiprocessing.get_context("forkserver")
_forks.set_forkserver_preload(PRELOADED)


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
        processes: list[_Rank] = []
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


class _Rank:
    """A process of `multiprocessing` with as much of `subprocess.Popen` as those who wait for ranks use."""

    stdin = None

    def __init__(self, *args: Any):
        self._process = _forks.Process(target=_enter, args=args)
        with mock.patch.dict(os.environ, OF_ALL_RANKS):  # for the server, which the first rank starts
            self._process.start()
        self.pid = self._process.pid

    @property
    def returncode(self) -> int | None:
        return self._process.exitcode

    def poll(self) -> int | None:
        return self._process.exitcode

    def wait(self) -> None:
        self._process.kill()  # it may not have had the time to lead a session
        self._process.join()


def _start(folder: Path, rank: int, num_ranks: int, port: int, show_output: bool) -> _Rank:
    environment = (
        os.environ
        | OF_ALL_RANKS
        | {
            "RANK": str(rank),
            "LOCAL_RANK": str(rank),
            "WORLD_SIZE": str(num_ranks),
            "LOCAL_WORLD_SIZE": str(num_ranks),
            "MASTER_ADDR": "127.0.0.1",
            "MASTER_PORT": str(port),
            "TORCHELASTIC_USE_AGENT_STORE": "True",  # all ranks are clients of the store in this process
            "TORCHELASTIC_RESTART_COUNT": "0",
            "PYTHONPATH": os.pathsep.join([str(REPOSITORY), *filter(None, [os.environ.get("PYTHONPATH")])]),
        }
    )
    if sys.platform == "linux":
        environment.setdefault("GLOO_SOCKET_IFNAME", "lo")  # the host name may not resolve in a container
    _log_path(folder, rank).touch()
    return _Rank(folder, dict(environment), show_output)


def _enter(folder: Path, environment: dict[str, str], show_output: bool) -> None:
    """Where a forked rank begins: in a session of its own, so that its children can be killed with it."""
    os.setsid()
    os.environ.clear()
    os.environ.update(environment)
    multiprocessing.set_start_method(None, force=True)  # the server's is inherited, and Megatron needs the default
    sys.argv = ["tests.ranks"]
    if not show_output:
        log = os.open(_log_path(folder, int(environment["RANK"])), os.O_WRONLY)
        for descriptor in (1, 2):
            os.dup2(log, descriptor)
    try:
        _work(folder)
    except BaseException:
        traceback.print_exc()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(1)


def _tails(folder: Path, processes: list[_Rank]) -> str:
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
    """However the process that launched the ranks dies."""
    launcher = multiprocessing.parent_process()
    assert launcher is not None
    launcher.join()
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
    options = parser.parse_args()
    if options.target is None:
        parser.error("name the function to run: module:function")
    results = _run(options.target, options.num_ranks, options.args, options.kwargs, options.timeout_seconds, True)
    for rank, result in enumerate(results):
        print(f"rank {rank}: {result!r}")


if __name__ == "__main__":
    _main()
