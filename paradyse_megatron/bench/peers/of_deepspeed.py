"""DeepSpeed's `DistributedAttention`: Ulysses around a local attention that it is given."""

from __future__ import annotations

import importlib
import os
from collections.abc import Iterator
from typing import Any

from torch import Tensor

from paradyse_megatron.bench.peers.case import Case
from paradyse_megatron.bench.peers.contestant import TOKENS_FIRST, ULYSSES, Contestant
from paradyse_megatron.comm.collectives import Group
from paradyse_megatron.strategies.attention.ulysses import causal_attention

PACKAGE, REMEDY = "deepspeed", "pip install 'paradyse-megatron[peers]'"
_BATCH_DIM = 1


def contestants(case: Case, group: Group) -> Iterator[Contestant]:
    """With the same local attention as ours."""
    os.environ.setdefault("DS_ACCELERATOR", "cpu")
    import deepspeed.comm
    from deepspeed.sequence.layer import DistributedAttention

    backend: Any = importlib.import_module("deepspeed.comm.torch")
    backend.build_shm_op = lambda: None  # an all-reduce that is compiled for minutes on first use; none is done here
    deepspeed.comm.init_distributed("gloo", dist_init_required=False, verbose=False)

    def local(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        return causal_attention(query, key, value, case.geometry.softmax_scale)

    distributed = DistributedAttention(local, group)

    def attend(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        return distributed(query, key, value, _BATCH_DIM)

    yield Contestant("deepspeed", ULYSSES, False, TOKENS_FIRST, TOKENS_FIRST, attend)
