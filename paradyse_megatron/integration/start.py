"""Starts the ranks of this node, as torchrun does, or becomes one of them where torchrun has started this program."""

from __future__ import annotations

import os
import signal
import sys
import uuid
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch.distributed.elastic.multiprocessing.errors import ChildFailedError
    from torch.distributed.launcher.api import LaunchConfig

from paradyse_megatron.integration.nodes import Nodes
from paradyse_megatron.integration.orphans import named_launcher
from paradyse_megatron.integration.rank_environment import rank_environment

BAD_INPUT = 2
MEETING_SECONDS = 900
"""How long nodes wait for each other."""


def is_rank() -> bool:
    """Whether torchrun has started this process, as one of its ranks."""
    return "TORCHELASTIC_RUN_ID" in os.environ


def run_ranks(arguments: Sequence[str], num_ranks: int, nodes: Nodes, on_gpu: bool) -> int:
    """Run Python with `arguments` on this node's ranks; 1 when one fails, 2 when that is bad input."""
    from torch.distributed.elastic.multiprocessing import errors
    from torch.distributed.launcher.api import elastic_launch

    for name, value in rank_environment(num_ranks, on_gpu).items():
        os.environ.setdefault(name, value)
    os.environ.setdefault("CUDA_DEVICE_MAX_CONNECTIONS", "1")  # Megatron's overlap needs it
    # Megatron compiles a helper with whatever python3 comes first.
    os.environ["PATH"] = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath)])
    command = [sys.executable, *arguments]
    if is_rank():
        os.execv(command[0], command)
    os.environ.update(named_launcher())  # torchrun runs in this process
    try:
        elastic_launch(_configuration(num_ranks, nodes), command[0])(*command[1:])
    except errors.ChildFailedError as error:
        rank, status = _culprit(error)
        if status == BAD_INPUT:
            return BAD_INPUT
        sys.stderr.write(f"paradyse: training failed: rank {rank} {_end(status)}.\n")
        return 1
    return 0


def _culprit(error: ChildFailedError) -> tuple[int, int]:
    """The first rank to fail, and its exit status. One that was killed comes before those that then missed it."""
    failures = {rank: failure.exitcode for rank, failure in error.failures.items()}
    killed = [rank for rank, status in failures.items() if status < 0 and status != -signal.SIGTERM]
    rank = min(killed) if killed else error.get_first_failure()[0]
    return rank, failures[rank]


def _end(status: int) -> str:
    if status >= 0:
        return f"ended with code {status}, for the reason that it gives above"
    by_whom = ", by somebody or because the machine's memory had run out" if status == -signal.SIGKILL else ""
    return f"was killed by {signal.Signals(-status).name}{by_whom}"


def _configuration(num_ranks: int, nodes: Nodes) -> LaunchConfig:
    """torchrun's: one node by itself, or several that meet at node 0 and keep their numbers."""
    from torch.distributed.launcher.api import LaunchConfig

    is_alone = nodes.num_nodes == 1
    return LaunchConfig(
        min_nodes=nodes.num_nodes,
        max_nodes=nodes.num_nodes,
        nproc_per_node=num_ranks,
        run_id=uuid.uuid4().hex if is_alone else "paradyse",
        rdzv_backend="c10d" if is_alone else "static",
        rdzv_endpoint=f"{nodes.address}:{nodes.port}",
        rdzv_configs={} if is_alone else {"rank": nodes.node_rank, "timeout": MEETING_SECONDS},
        max_restarts=0,
    )
