"""Which elements dropout drops, in forward and when backward computes it again, and what gradients come of it."""

from __future__ import annotations

import zlib
from typing import Any

import torch
from megatron.core.tensor_parallel.random import model_parallel_cuda_manual_seed
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from paradyse_megatron import Plan, use_plan
from tests.layers.equality import loss_and_gradients, start_model_parallel, worst_error, wrapped
from tests.layers.models import NUM_LAYERS

CASES = ["one", "three"]
HIDDEN_PLANS = [
    "tp_sp", "tp_sp+full", "tp_sp+selective", "ulysses", "ulysses+full", "ulysses+selective", "ring", "ring+full",
    "usp+selective", "upipe", "upipe+selective", "upipe/tp_sp+full", "metp", "metp+selective", "metp+full",
    "tp_sp+full,ring/streamed,ulysses+selective",
]  # fmt: skip
ATTENTION_PLANS = ["tp_sp", "tp_sp+full", "tp_sp+selective", "tp_sp/gathered+selective", "tp_sp/streamed+full"]


class Masks(TorchDispatchMode):
    """A checksum of every mask that dropout draws, in order."""

    def __init__(self) -> None:
        super().__init__()
        self.drawn: list[int] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        if func.__name__.startswith("bernoulli"):
            self.drawn.append(zlib.crc32(result.bool().numpy().tobytes()))
        return result


def found() -> dict[str, Any]:
    """On P ranks: by kind of dropout and plan, the masks drawn and the error against `tp_sp` without recompute."""
    start_model_parallel(torch.distributed.get_world_size())
    return {
        "hidden": _by_plan(HIDDEN_PLANS, hidden_dropout=0.3),
        "attention": _by_plan(ATTENTION_PLANS, attention_dropout=0.2, hidden_dropout=0.1),
        "refusal": _refusal(),
    }


def _by_plan(plans: list[str], **dropout: float) -> dict[str, tuple[list[int], float]]:
    model = wrapped("qwen", "float64", torch.distributed.get_world_size(), **dropout)
    results: dict[str, tuple[list[int], float]] = {}
    expected: dict[str, Tensor] = {}
    for plan in plans:
        model_parallel_cuda_manual_seed(7, force_reset_rng=True)
        with Masks() as masks:
            window = [Plan.parse(plan, NUM_LAYERS)] * len(CASES)
            gradients = loss_and_gradients(model, window, CASES, interleaved=True)
        expected = expected or gradients
        results[plan] = masks.drawn, worst_error(gradients, expected)
    return results


def _refusal() -> str:
    model = wrapped("qwen", "float64", torch.distributed.get_world_size(), attention_dropout=0.2)
    try:
        with use_plan(Plan.parse("ulysses", NUM_LAYERS)):
            loss_and_gradients(model, [None], ["one"])
    except ValueError as error:
        return str(error)
    return "accepted"
