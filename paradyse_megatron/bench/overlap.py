"""What overlap brings: weights fetched a layer ahead, ring hops behind attention; each on against off, in turn.

Run over an emulated link, as loopback leaves nothing to hide.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

WORKER = "paradyse_megatron.bench.overlap:measure"


def measure(
    seq_length: int, repetitions: int, num_layers: int, hidden_size: int, num_heads: int, num_groups: int
) -> dict[str, Any]:
    """Worker: median milliseconds of forward and backward with each overlap on and off, and the ratio off over on."""
    import torch
    from megatron.core import parallel_state

    from paradyse_megatron.bench.model import gpt, micro_batch
    from paradyse_megatron.layers.active import use_plan
    from paradyse_megatron.layers.prefetch import link_layers
    from paradyse_megatron.planner.plan import Plan

    model = gpt(num_layers, hidden_size, num_heads, num_groups, vocab_size=256, max_length=seq_length)
    tokens = micro_batch(seq_length, vocab_size=256, seed=1)
    link_layers(model.decoder.layers, parallel_state.get_tensor_model_parallel_group())

    def step(plan: str) -> None:
        with use_plan(Plan.parse(plan, num_layers)):
            model(**tokens).sum().backward()

    def timed(plan: str, condition: AbstractContextManager[None]) -> float:
        with condition:
            torch.distributed.barrier()
            begin = time.perf_counter()
            step(plan)
            torch.distributed.barrier()
            return 1e3 * (time.perf_counter() - begin)

    cases: dict[str, tuple[str, Callable[[], AbstractContextManager[None]]]] = {
        "prefetch": ("ulysses", lambda: without_prefetch(model.decoder.layers)),
        "ring": ("ring", waiting_hops),
    }
    figures = {}
    for name, (plan, off) in cases.items():
        step(plan)
        pairs = [(timed(plan, nullcontext()), timed(plan, off())) for _ in range(repetitions)]
        on_ms, off_ms = (statistics.median(side) for side in zip(*pairs, strict=True))
        ratio = statistics.median(off_time / on_time for on_time, off_time in pairs)
        figures[name] = {"plan": plan, "on_ms": on_ms, "off_ms": off_ms, "off_over_on": ratio}
    return figures


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
