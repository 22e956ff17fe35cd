"""See `tests.stand_ins`: what Megatron's checkpointing and random states ask for."""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any


class CudaRNGStatesTracker:
    """A name that Megatron subclasses."""


def activation_recompute_forward(*args: Any, **kwargs: Any) -> nullcontext:
    """Nothing: it is for fp8."""
    return nullcontext()
