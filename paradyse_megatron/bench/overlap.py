"""What overlap brings: weights fetched a layer ahead, ring hops behind attention; each on against off, in turn.

Run over an emulated link, as loopback leaves nothing to hide.
"""

from __future__ import annotations

import functools
import statistics
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any

from paradyse_megatron.bench.links import Links
from paradyse_megatron.bench.ranks import run_on_ranks
from paradyse_megatron.costmodel.shape import ModelShape

_WORKER = "paradyse_megatron.bench.overlap:measure"
_RUN_SECONDS = 300


@dataclass(frozen=True)
class Case:
    """A model and an interconnect where what is to be hidden takes at least a third of the time.

    Attributes:
        plan: "ring", for its hops; a plan of gathered weights, for their prefetch.
        shape: of the model.
        seq_length: tokens.
        rate_mbit: of each rank's link.
    """

    plan: str
    shape: ModelShape
    seq_length: int
    rate_mbit: float


def _shape(hidden_size: int, ffn_hidden_size: int) -> ModelShape:
    return ModelShape(hidden_size, 4, 8, ffn_hidden_size, 257, add_bias=False, rms_norm=True, rotary=True, dtype="fp32")


CASES = {
    "prefetch": Case("ulysses", _shape(512, 2048), 512, 900),
    "ring": Case("ring", _shape(256, 256), 4096, 500),
}


def bench(num_ranks: int, repetitions: int) -> dict[str, Any]:
    """Figures of each case, by its name.

    Raises:
        ValueError: no interconnect can be emulated here.
    """
    return {name: _compared(case, num_ranks, repetitions) for name, case in CASES.items()}


def _compared(case: Case, num_ranks: int, repetitions: int) -> dict[str, Any]:
    """Over the link, and over loopback, which tells how much of the time is communication."""
    arguments = {"shape": case.shape.as_dict(), "plan": case.plan, "seq_length": case.seq_length}
    arguments["repetitions"] = repetitions
    with Links(num_ranks, case.rate_mbit) as links:
        slow = run_on_ranks(_WORKER, num_ranks, arguments, links=links, timeout_seconds=_RUN_SECONDS)
    fast = run_on_ranks(_WORKER, num_ranks, arguments, timeout_seconds=_RUN_SECONDS)
    for outcome in (slow, fast):
        if outcome.failure:
            raise RuntimeError(f"the comparison did not end: {outcome.failure}")
    figures: dict[str, Any] = slow.results[0]
    share = 1 - fast.results[0]["off_ms"] / figures["off_ms"]
    return figures | {"rate_mbit": case.rate_mbit, "communication_share_off": share}


def measure(shape: Mapping[str, Any], plan: str, seq_length: int, repetitions: int) -> dict[str, Any]:
    """Worker: median milliseconds of forward and backward with the overlap of `plan` on and off, and off over on.

    Arguments are as in `Case`.
    """
    from paradyse_megatron.bench.model import gpt, step_under
    from paradyse_megatron.planner.plan import Plan
    from paradyse_megatron.profiling import stopwatch

    of_shape = ModelShape(**shape)
    model = gpt(of_shape, seq_length)
    group = model.decoder.layers[0].self_attention.tp_group
    tokens = [token % of_shape.vocab_size for token in range(seq_length + 1)]
    parsed = Plan.parse(plan, of_shape.num_layers)
    off = waiting_hops if plan == "ring" else functools.partial(without_prefetch, model.decoder.layers)

    def timed(condition: AbstractContextManager[None]) -> float:
        with condition:
            return stopwatch.milliseconds(lambda: step_under(model, tokens, parsed), group)

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
