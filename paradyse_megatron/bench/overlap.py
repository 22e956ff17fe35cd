"""What overlap brings: weights fetched a layer ahead, ring hops behind attention; each on against off, in turn.

Run over an emulated link, as loopback leaves nothing to hide.
"""

from __future__ import annotations

import functools
import statistics
import time
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

WORKER = "paradyse_megatron.bench.overlap:measure"


def measure(shape: Mapping[str, Any], plan: str, seq_length: int, repetitions: int) -> dict[str, Any]:
    """Worker: median milliseconds of forward and backward with the overlap of `plan` on and off, and off over on.

    Args:
        plan: "ring", for its hops; a plan of gathered weights, for their prefetch.
    """
    import torch

    from paradyse_megatron.bench.model import gpt, step_under
    from paradyse_megatron.costmodel.shape import ModelShape
    from paradyse_megatron.planner.plan import Plan

    of_shape = ModelShape(**shape)
    model = gpt(of_shape, seq_length)
    tokens = [token % of_shape.vocab_size for token in range(seq_length + 1)]
    parsed = Plan.parse(plan, of_shape.num_layers)
    off = waiting_hops if plan == "ring" else functools.partial(without_prefetch, model.decoder.layers)

    def timed(condition: AbstractContextManager[None]) -> float:
        with condition:
            torch.distributed.barrier()
            begin = time.perf_counter()
            step_under(model, tokens, parsed)
            torch.distributed.barrier()
            return 1e3 * (time.perf_counter() - begin)

    step_under(model, tokens, parsed)
    pairs = [(timed(nullcontext()), timed(off())) for _ in range(repetitions)]
    on_ms, off_ms = (statistics.median(side) for side in zip(*pairs, strict=True))
    ratio = statistics.median(off_time / on_time for on_time, off_time in pairs)
    return {"plan": plan, "seq_length": seq_length, "on_ms": on_ms, "off_ms": off_ms, "off_over_on": ratio}


@contextmanager
def without_prefetch(layers: Any) -> Iterator[None]:
    """Weights are gathered when they are used."""
    from paradyse_megatron.layers.prefetch import Prefetch

    linked = [layer.prefetch for layer in layers]
    for layer in layers:
        layer.prefetch = Prefetch()
    try:
        yield
    finally:
        for layer, prefetch in zip(layers, linked, strict=True):
            layer.prefetch = prefetch


@contextmanager
def waiting_hops() -> Iterator[None]:
    """A hop is waited for as soon as it is sent."""
    from paradyse_megatron.comm.ring import Hop
    from paradyse_megatron.strategies.attention import ring

    class WaitingHop(Hop):
        def __init__(self, *args: Any):
            super().__init__(*args)
            self.wait()

        def wait(self) -> Any:
            received, self._works = super().wait(), []
            return received

    ring.Hop = WaitingHop  # type: ignore[assignment,misc]
    try:
        yield
    finally:
        ring.Hop = Hop  # type: ignore[misc]
