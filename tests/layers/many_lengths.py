"""What is left behind by many micro-batches of different lengths under different plans."""

from __future__ import annotations

import ctypes
import gc
import random
from pathlib import Path

import torch
import torch.distributed as dist
import torch.nn.functional as F
from megatron.core.models.common.embeddings.rotary_pos_embedding import RotaryEmbedding
from torch.distributed import distributed_c10d

from paradyse_megatron import Plan, pad_to_multiple, use_plan
from tests.layers.equality import start_model_parallel, token_losses, wrapped
from tests.layers.models import NUM_LAYERS, VOCAB
from tests.layers.plans import covering_plans

FAMILY, NUM_MICRO_BATCHES, NUM_FIRST = "llama", 200, 20


def left_behind() -> list[dict[str, int]]:
    """After the first 20 and after all 200 micro-batches, and one more that is the same both times.

    Live tensors, process groups, resident bytes.
    """
    num_ranks = dist.get_world_size()
    start_model_parallel(num_ranks)
    model = wrapped(FAMILY, "float32", num_ranks)
    plans = [Plan.parse(text, NUM_LAYERS) for text in covering_plans(FAMILY, num_ranks, seed=1)]
    lengths = list(range(1, NUM_MICRO_BATCHES + 1))
    random.Random(4).shuffle(lengths)
    lengths.sort(key=lambda length: length < NUM_MICRO_BATCHES - 1)  # the two longest come first
    found = []
    for number, length in enumerate(lengths):
        _train(model, length, plans[number % len(plans)], num_ranks)
        if number + 1 in (NUM_FIRST, NUM_MICRO_BATCHES):
            _train(model, NUM_FIRST, plans[0], num_ranks)
            found.append(_held())
    return found


def _train(model: torch.nn.Module, length: int, plan: Plan, num_ranks: int) -> None:
    model.zero_grad_buffer()
    padded = pad_to_multiple(length, num_ranks)
    text = F.pad(torch.randint(VOCAB, (1, length + 1)), (0, padded - length))
    batch = {
        "tokens": text[:, :-1],
        "labels": text[:, 1:],
        "loss_mask": torch.arange(padded).unsqueeze(0) < length,
        "position_ids": torch.arange(padded).unsqueeze(0),
    }
    with use_plan(plan):
        loss = token_losses(model, batch).sum()
    loss.backward()


def _held() -> dict[str, int]:
    RotaryEmbedding.forward.cache_clear()  # Megatron's tables of the last 32 lengths
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)  # what C's allocator holds on to is no leak
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return {
        "tensors": sum(isinstance(thing, torch.Tensor) for thing in gc.get_objects()),
        "groups": len(distributed_c10d._world.pg_map),
        "resident_bytes": pages * 4096,
    }
