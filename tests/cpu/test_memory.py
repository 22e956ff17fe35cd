"""What the C library does with memory that tensors let go, in fresh processes with the environments that ranks get."""

from __future__ import annotations

import json
import os
import subprocess
import sys

from paradyse_megatron.cpu.memory import EXACT, KEEPING
from paradyse_megatron.integration.rank_environment import rank_environment

PROGRAM = """
import json, resource, torch
from paradyse_megatron.cpu.memory import resident_bytes
def make():
    tensor = torch.ones(16 << 20)  # 64 MiB
    del tensor
make()
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(4):
    make()
print(json.dumps([resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before, resident_bytes()]))
"""
MADE = 4 * (64 << 20) // os.sysconf("SC_PAGE_SIZE")
"""Pages that it writes to."""
NEUTRAL = {name: value for name, value in os.environ.items() if name not in EXACT}


def _faults_and_resident_bytes(variables: dict[str, str]) -> tuple[int, int]:
    command = [sys.executable, "-c", PROGRAM]
    done = subprocess.run(command, env=NEUTRAL | variables, capture_output=True, text=True, check=True, timeout=100)
    return tuple(json.loads(done.stdout))


def test_ranks_on_cpus_keep_what_tensors_let_go():
    _, kept_bytes = _faults_and_resident_bytes(KEEPING)
    faults, exact_bytes = _faults_and_resident_bytes(EXACT)
    assert faults > MADE // 2 and kept_bytes - exact_bytes > 60 << 20


def test_exact_memory_undoes_what_keeps_it():
    assert EXACT.keys() >= KEEPING.keys()
    faults, _ = _faults_and_resident_bytes(KEEPING | EXACT)
    assert faults > MADE // 2


def test_memory_is_kept_only_where_the_cpu_is_the_device_and_nobody_says_otherwise(monkeypatch):
    for name in EXACT:
        monkeypatch.delenv(name, raising=False)
    assert rank_environment(2, on_gpu=False).items() >= KEEPING.items()
    assert not rank_environment(2, on_gpu=True).keys() & KEEPING.keys()
    monkeypatch.setenv("MALLOC_ARENA_MAX", "1")
    assert not rank_environment(2, on_gpu=False).keys() & KEEPING.keys()


def test_a_bounded_address_space_gets_all_memory_back():
    program = "from paradyse_megatron.integration import rank_environment as it; print(it.rank_environment(2, False))"
    command = ["bash", "-c", f'ulimit -v {64 << 20}; "{sys.executable}" -c "{program}"']
    done = subprocess.run(command, env=NEUTRAL, capture_output=True, text=True, check=True, timeout=100)
    assert "OMP_NUM_THREADS" in done.stdout and "MALLOC" not in done.stdout
