"""Runs a function on several CPU ranks for a benchmark, over loopback or emulated links, and brings back its results.

A worker is "module:function", called as `function(**arguments)` once the default process group (gloo) is up and
`torch.cuda` is mapped onto the CPU; what it returns must be JSON.
"""

from __future__ import annotations

import importlib
import json
import os
import re
import resource
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

from paradyse_megatron.bench.links import Links
from paradyse_megatron.integration.orphans import end_with_launcher, named_launcher
from paradyse_megatron.integration.rank_environment import rank_environment

TAIL_LINES = 25
GRACE_SECONDS = 3.0  # after a first failure the others may still say why they fail


@dataclass(frozen=True)
class Outcome:
    """What became of one run.

    Attributes:
        results: what the worker returned, by rank; None where it did not get there.
        failure: why the run did not end well, with the last lines of a failed rank's output; None when it did.
    """

    results: list[Any]
    failure: str | None


def run_on_ranks(
    worker: str,
    num_ranks: int,
    arguments: Mapping[str, Any],
    *,
    links: Links | None = None,
    timeout_seconds: float,
    address_space_bytes: int | None = None,
    environment: Mapping[str, str] | None = None,
) -> Outcome:
    """Run `worker` on `num_ranks` fresh processes; all of them are gone when this returns.

    Args:
        links: networks to run on; None for loopback.
        address_space_bytes: bound on each process's address space, beyond which an allocation fails.
        environment: variables that the processes have beside this one's.
    """
    with tempfile.TemporaryDirectory(prefix="paradyse-bench-") as name:
        folder = Path(name)
        call = {"worker": worker, "arguments": dict(arguments), "timeout_seconds": timeout_seconds}
        call["address_space_bytes"] = address_space_bytes
        (folder / "call.json").write_text(json.dumps(call))
        variables = (_loopback() if links is None else links.environment()) | dict(environment or {})
        processes: list[subprocess.Popen[bytes]] = []
        try:
            for rank in range(num_ranks):
                processes.append(_start(folder, rank, num_ranks, variables, links))
            results = [folder / f"result{rank}.json" for rank in range(num_ranks)]
            reason = wait_for_ranks(processes, results, timeout_seconds)
        finally:
            kill_ranks(processes)
        failure = reason and f"{reason}\n{_tail(folder, reason)}"
        return Outcome([_read(folder / f"result{rank}.json") for rank in range(num_ranks)], failure)


def _loopback() -> dict[str, str]:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free.getsockname()[1]), "GLOO_SOCKET_IFNAME": "lo"}


def _start(
    folder: Path, rank: int, num_ranks: int, variables: Mapping[str, str], links: Links | None
) -> subprocess.Popen[bytes]:
    environment = os.environ | rank_environment(num_ranks, on_gpu=False) | named_launcher() | dict(variables)
    environment |= {"RANK": str(rank), "LOCAL_RANK": str(rank), "CUDA_VISIBLE_DEVICES": ""}
    environment |= {"WORLD_SIZE": str(num_ranks), "LOCAL_WORLD_SIZE": str(num_ranks)}
    command = [sys.executable, "-m", "paradyse_megatron.bench.ranks", str(folder)]
    if links is not None:
        command = links.inside(rank, command)
    with open(folder / f"rank{rank}.log", "wb") as log:
        return subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=environment, start_new_session=True
        )


def wait_for_ranks(
    processes: Sequence[subprocess.Popen[bytes]], results: Sequence[Path], timeout_seconds: float
) -> str | None:
    """Wait for one process a rank, each of which leaves a file; the reason when that did not end well.

    The reason names the ranks that failed first; others that fail later do so because of these.
    """
    end = time.monotonic() + timeout_seconds
    reason = None
    while time.monotonic() < end:
        codes = [process.poll() for process in processes]
        failed = [r for r, code in enumerate(codes) if code is not None and (code or not results[r].exists())]
        if failed and reason is None:
            reason = ", ".join(f"rank {rank} ended with code {codes[rank]} and no result" for rank in failed)
            end = min(end, time.monotonic() + GRACE_SECONDS)
        if None not in codes:
            return reason
        time.sleep(0.02)
    unfinished = [rank for rank, process in enumerate(processes) if process.poll() is None]
    return reason or f"ranks {unfinished} had not ended after {timeout_seconds:g} seconds"


def kill_ranks(processes: Sequence[subprocess.Popen[bytes]]) -> None:
    """End processes, each started in a session of its own, and their children."""
    for process in processes:
        try:
            os.killpg(process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
    for process in processes:
        process.wait()
        if process.stdin is not None:
            process.stdin.close()


def _tail(folder: Path, reason: str) -> str:
    """The end of the output of the first rank that the reason names."""
    named = re.search(r"rank (\d+)", reason)
    lines = (folder / f"rank{named[1] if named else 0}.log").read_text(errors="replace").splitlines()
    return "\n".join(lines[-TAIL_LINES:])


def _read(path: Path) -> Any:
    return json.loads(path.read_text()) if path.exists() else None


def _work(folder: Path) -> None:
    """What one rank does."""
    end_with_launcher()
    call = json.loads((folder / "call.json").read_text())
    import torch.distributed as dist

    from paradyse_megatron import cpu

    cpu.enable()
    if call["address_space_bytes"] is not None:
        resource.setrlimit(resource.RLIMIT_AS, (call["address_space_bytes"],) * 2)
    dist.init_process_group("gloo", timeout=timedelta(seconds=call["timeout_seconds"]))
    module, _, function = call["worker"].partition(":")
    result = getattr(importlib.import_module(module), function)(**call["arguments"])
    path = folder / f"result{os.environ['RANK']}.json"
    path.with_suffix(".part").write_text(json.dumps(result))
    path.with_suffix(".part").rename(path)
    dist.barrier()  # no rank leaves while another still talks to it
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)  # a thread of gloo's may still let go of tensors, and aborts when the interpreter has ended meanwhile


if __name__ == "__main__":
    _work(Path(sys.argv[1]))
