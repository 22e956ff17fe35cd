"""What this machine computes on, asked in a process of its own: the asking one may need to see no GPU."""

from __future__ import annotations

import json
import os
import platform
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from paradyse_megatron.costmodel.cluster import Cluster
from paradyse_megatron.costmodel.configs import shipped

CLUSTERS = {"A100": "dgx-a100", "H200": "h200", "4090": "8x4090-pcie"}
"""By a part of a GPU's name, the shipped description of machines with it."""

_ASK = """
import json, torch
found = torch.cuda.device_count()
print(json.dumps([found, torch.cuda.get_device_name() if found else "", torch.cuda.mem_get_info()[1] if found else 0]))
"""


@dataclass(frozen=True)
class Machine:
    """This one.

    Attributes:
        name: number and name of its GPUs, or without any of its processor's cores.
        cluster: the shipped description that is most like it.
        num_gpus: 0 where ranks run on the CPU.
        memory_bytes: of a GPU, or of the whole machine.
    """

    name: str
    cluster: str
    num_gpus: int
    memory_bytes: int

    def rank_memory_bytes(self, num_ranks: int) -> int:
        """Of one of so many ranks."""
        return self.memory_bytes if self.num_gpus else self.memory_bytes // num_ranks


def this_machine(environment: Mapping[str, str]) -> Machine:
    """As seen by processes with this environment."""
    asked = subprocess.run(
        [sys.executable, "-c", _ASK], env=dict(environment), capture_output=True, text=True, check=False
    )
    num_gpus, gpu, gpu_bytes = json.loads(asked.stdout) if asked.returncode == 0 else (0, "", 0)
    if num_gpus:
        cluster = next((name for part, name in CLUSTERS.items() if part in gpu), "dgx-h100")
        return Machine(f"{num_gpus} x {gpu}", cluster, num_gpus, gpu_bytes)
    total_bytes = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return Machine(f"{os.cpu_count()} cores of {processor()}", "cpu-2core", 0, total_bytes)


def described_machine(name: str, num_ranks: int) -> Cluster:
    """A shipped description, or a file's; of CPUs with so many ranks on one machine, which share what it has."""
    cluster = Cluster.from_yaml(shipped("clusters", name))
    return cluster.shared_by(num_ranks) if is_of_cpus(name) else cluster


def is_of_cpus(name: str) -> bool:
    """Whether a description is of a machine without GPUs."""
    return "cpu" in Path(name).stem


def processor() -> str:
    """Name of the processor."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        lines = []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or platform.machine()
