"""Independent simulations of what a plan holds: of one micro-batch beside others, and of a whole schedule."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

from paradyse_megatron.planner.cost import Cost


def simulated_peak(layers: list[Cost], head_bytes: int, num_in_flight: int, head_buffer_bytes: int = 0) -> int:
    """Runs the forward-backward order step by step over a ledger of named allocations, and watches the total.

    Twice: the buffer that a layer makes late is there when the next micro-batch begins.
    """
    ledger = {
        f"micro-batch {other}, layer {i}": c.saved_bytes
        for other in range(1, num_in_flight)
        for i, c in enumerate(layers)
    }
    totals = [sum(ledger.values())]
    ledger["buffer"] = 0

    def watch(transient: int, in_buffer: int) -> None:
        ledger["buffer"] = max(ledger["buffer"], in_buffer)
        totals.append(sum(ledger.values()) + transient - in_buffer)

    for _ in range(2):
        for i, cost in enumerate(layers):
            ledger[f"saved {i}"] = cost.saved_bytes
            watch(cost.workspace_bytes, cost.buffer_bytes)
        watch(head_bytes, head_buffer_bytes)
        for i in reversed(range(len(layers))):
            watch(layers[i].workspace_bytes, layers[i].buffer_bytes)
            del ledger[f"saved {i}"]
    assert len(ledger) == (num_in_flight - 1) * len(layers) + 1
    return max(totals)


def schedule_peak(layers: list[Cost], head_bytes: int, num_in_flight: int, head_buffer_bytes: int = 0) -> int:
    """Watches a timeline of allocations and frees of a stage that keeps `num_in_flight` micro-batches on their way.

    The stage runs forwards until that many are there, then one backward and one forward in turn, then backwards, as
    under the one-forward-one-backward schedule of PipeDream (arXiv 1806.03377). Each event is a change in bytes.
    """
    order = ["forward"] * num_in_flight + ["backward", "forward"] * 3 + ["backward"] * num_in_flight
    buffer = [0]
    events = [change for turn in order for change in _changes(turn, layers, (head_bytes, head_buffer_bytes), buffer)]
    assert sum(events) == buffer[0]
    return max(itertools.accumulate(events), default=0)


def _changes(turn: str, layers: list[Cost], head: tuple[int, int], buffer: list[int]) -> Iterator[int]:
    """A transient comes and goes; what is saved comes before the transients of its forward, and goes after the last.

    The first item of `buffer` is what has been allocated for that so far: it grows where needed, and never goes.
    """
    if turn == "forward":
        for layer in layers:
            yield layer.saved_bytes
            yield from _transient(layer.workspace_bytes, layer.buffer_bytes, buffer)
        return
    yield from _transient(*head, buffer)
    for layer in reversed(layers):
        yield from _transient(layer.workspace_bytes, layer.buffer_bytes, buffer)
        yield -layer.saved_bytes


def _transient(num_bytes: int, in_buffer: int, buffer: list[int]) -> Iterator[int]:
    yield max(0, in_buffer - buffer[0])
    buffer[0] = max(in_buffer, buffer[0])
    yield from (num_bytes - in_buffer, in_buffer - num_bytes)
