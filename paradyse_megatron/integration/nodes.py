"""Which nodes a run has, and which one this is: from SLURM, from the variables that torchrun and its schedulers use, or
this machine alone.

Every node runs the launch script once, and it starts a rank for each device.
"""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass

DEFAULT_PORT = 29500


@dataclass(frozen=True)
class Nodes:
    """The nodes of a run.

    Attributes:
        num_nodes: how many.
        node_rank: this one's number, from 0.
        address: name or address of node 0, for the others to meet at.
        port: there; 0 for any free one, which a single node may take.
    """

    num_nodes: int = 1
    node_rank: int = 0
    address: str = "localhost"
    port: int = 0


def find_nodes(environment: Mapping[str, str]) -> Nodes:
    """NNODES and NODE_RANK where they are set, else those of a SLURM step, else one.

    MASTER_ADDR and MASTER_PORT say where node 0 waits; in SLURM that is by default the job's first node.

    Raises:
        ValueError: what is set does not name one of several nodes, or is not enough to find node 0.
    """
    if "NNODES" in environment:
        num_nodes = _number(environment, "NNODES", 1)
        node_rank = _number(environment, "NODE_RANK", 0) if num_nodes > 1 else 0
    elif "SLURM_STEP_NUM_NODES" in environment:
        num_nodes, node_rank = _of_slurm(environment)
    else:
        _refuse_idle_nodes(environment)
        return Nodes()
    if node_rank >= num_nodes:
        raise ValueError(f"NODE_RANK is {node_rank}, but with NNODES {num_nodes} the last node is {num_nodes - 1}.")
    if num_nodes == 1:
        return Nodes()
    port = _number(environment, "MASTER_PORT", 1) if "MASTER_PORT" in environment else DEFAULT_PORT
    return Nodes(num_nodes, node_rank, environment.get("MASTER_ADDR") or _first_host(environment), port)


def _of_slurm(environment: Mapping[str, str]) -> tuple[int, int]:
    """Number of nodes and this one's, of the step that srun started."""
    num_nodes = _number(environment, "SLURM_STEP_NUM_NODES", 1)
    num_tasks = environment.get("SLURM_STEP_NUM_TASKS", str(num_nodes))
    if num_tasks != str(num_nodes):
        raise ValueError(
            f"srun started {num_tasks} tasks on {num_nodes} nodes; this script wants one a node and starts the ranks "
            "itself: srun --ntasks-per-node=1."
        )
    return num_nodes, _number(environment, "SLURM_NODEID", 0)


def _refuse_idle_nodes(environment: Mapping[str, str]) -> None:
    allocated = environment.get("SLURM_JOB_NUM_NODES", "1")
    if allocated != "1":
        raise ValueError(
            f"This SLURM job has {allocated} nodes, and the script runs on one of them: start it with "
            "srun --ntasks-per-node=1, or set NNODES=1 to train on this node alone."
        )


def _first_host(environment: Mapping[str, str]) -> str:
    hosts = environment.get("SLURM_JOB_NODELIST", "")
    if hosts and shutil.which("scontrol"):
        command = ["scontrol", "show", "hostnames", hosts]
        named = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60).stdout.split()
        if named:
            return named[0]
    raise ValueError("MASTER_ADDR is not set: give the name of node 0, the same on every node.")


def _number(environment: Mapping[str, str], name: str, least: int) -> int:
    text = environment.get(name, "")
    if not text.isdecimal() or int(text) < least:
        found = f"is '{text}'" if text else "is not set"
        raise ValueError(f"{name} {found}; it is a whole number of at least {least}.")
    return int(text)
