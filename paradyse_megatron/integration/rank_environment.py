"""Environment variables that all ranks of a node get, whoever starts them; what the user has set comes first."""

from __future__ import annotations

import os


def rank_environment(num_ranks: int) -> dict[str, str]:
    """What the ranks of a node of `num_ranks` have beside this process's environment.

    Tensors of the CPU from 2 MiB are made of large pages (torch reads that when it makes its first one). Beyond 32 MiB
    the C library gives every tensor back, so that its pages are made anew the next time: attention that stores scores
    was seen to take 1.4 times as long at 4,096 tokens with small pages, and to follow no power of the length.
    """
    return {
        "OMP_NUM_THREADS": str(max(1, (os.cpu_count() or 1) // num_ranks)),
        "PYTHONWARNINGS": "ignore",  # Megatron warns of every library that is not installed
        "THP_MEM_ALLOC_ENABLE": "1",
    }
