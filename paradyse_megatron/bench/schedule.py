"""Independent simulations of what a plan holds: of one micro-batch beside others, and of a whole schedule."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

from paradyse_megatron.planner.cost import Cost


def simulated_peak(layers: list[Cost], head_bytes: int, num_in_flight: int) -> int:
    """Runs the forward-backward order step by step over a ledger of named allocations, and watches the total."""
    ledger = {
        f"micro-batch {other}, layer {i}": c.saved_bytes
        for other in range(1, num_in_flight)
        for i, c in enumerate(layers)
    }
    totals = [sum(ledger.values())]

    def watch(transient: int) -> None:
        totals.append(sum(ledger.values()) + transient)

    for i, cost in enumerate(layers):
        ledger[f"saved {i}"] = cost.saved_bytes
        watch(cost.workspace_bytes)
    watch(head_bytes)
    for i in reversed(range(len(layers))):
        watch(layers[i].workspace_bytes)
        del ledger[f"saved {i}"]
    assert len(ledger) == (num_in_flight - 1) * len(layers)
    return max(totals)


def schedule_peak(layers: list[Cost], head_bytes: int, num_in_flight: int) -> int:
    """Watches a timeline of allocations and frees of a stage that keeps `num_in_flight` micro-batches on their way.

    The stage runs forwards until that many are there, then one backward and one forward in turn, then backwards, as
    under the one-forward-one-backward schedule of PipeDream (arXiv 1806.03377). Each event is a change in bytes.
    """
    order = ["forward"] * num_in_flight + ["backward", "forward"] * 3 + ["backward"] * num_in_flight
    events = [change for turn in order for change in _changes(turn, layers, head_bytes)]
    assert sum(events) == 0
    return max(itertools.accumulate(events), default=0)


def _changes(turn: str, layers: list[Cost], head_bytes: int) -> Iterator[int]:
    """A transient comes and goes; what is saved comes before the transients of its forward, and goes after the last."""
    if turn == "forward":
        for layer in layers:
            yield from (layer.saved_bytes, layer.workspace_bytes, -layer.workspace_bytes)
        return
    yield from (head_bytes, -head_bytes)
    for layer in reversed(layers):
        yield from (layer.workspace_bytes, -layer.workspace_bytes, -layer.saved_bytes)
