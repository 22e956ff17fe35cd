"""Environment variables that all ranks of a node get, whoever starts them; what the user has set comes first."""

from __future__ import annotations

import os
import resource

from paradyse_megatron.cpu.memory import KEEPING


def rank_environment(num_ranks: int, on_gpu: bool) -> dict[str, str]:
    """What the ranks of a node of `num_ranks` have beside this process's environment.

    Ranks whose device is the CPU keep memory for the next tensors, as a GPU's allocator does (`cpu.memory.KEEPING`),
    unless the user has set the C library's allocator or bounded the address space, where it has to be exact.
    """
    variables = {
        "OMP_NUM_THREADS": str(max(1, (os.cpu_count() or 1) // num_ranks)),
        "PYTHONWARNINGS": "ignore",  # Megatron warns of every library that is not installed
    }
    is_set = any(name.startswith("MALLOC_") or name == "GLIBC_TUNABLES" for name in os.environ)
    is_bounded = resource.getrlimit(resource.RLIMIT_AS)[0] != resource.RLIM_INFINITY
    return variables if on_gpu or is_set or is_bounded else variables | KEEPING
