"""The race: every contender on every document, in turn, in one process group; and how long a document each can take.

Contenders differ in nothing but the plan, so they run on the same weights, one after another on the same document, in
an order that rotates; what drifts on the machine hits all alike.
"""

from __future__ import annotations

import resource
import sys
import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch.distributed as dist

RACE = "paradyse_megatron.bench.race:race"
REACH = "paradyse_megatron.bench.race:reach"


FIRST_TOKENS = 16
"""Of the document that makes what stays before memory is limited; what it takes itself comes on top of the limit."""
MAX_ROUNDS = 4
"""After the first round all documents run again, as far as time allows: of noisy machines medians tell more."""


def race(
    shape: Mapping[str, Any],
    documents: Sequence[Sequence[int]],
    plans: Mapping[str, Sequence[str | None]],
    budget_seconds: float | None,
) -> dict[str, list[list[float]]]:
    """Worker: milliseconds of each contender on each document, forward and backward, on the slowest rank.

    Args:
        budget_seconds: no further document begins after that; None for no limit.

    Returns:
        For each contender and document, one measurement or several: in later rounds the shortest come first.
    """
    from paradyse_megatron.bench.contenders import parse
    from paradyse_megatron.bench.model import gpt, step_under
    from paradyse_megatron.costmodel.shape import ModelShape
    from paradyse_megatron.profiling import stopwatch

    of_shape, begin = ModelShape(**shape), time.monotonic()
    longest = max(map(len, documents)) + 64
    models = {stock: gpt(of_shape, longest, stock) for stock in (False, True)}
    group = models[False].decoder.layers[0].self_attention.tp_group

    def milliseconds(document: int, plan: str | None) -> float:
        parsed = parse(plan, of_shape.num_layers)
        return stopwatch.milliseconds(lambda: step_under(models[plan is None], documents[document], parsed), group)

    shortest = min(range(len(documents)), key=lambda document: len(documents[document]))
    for of_documents in plans.values():  # what is made on first use
        milliseconds(shortest, of_documents[shortest])
    names = list(plans)
    times: dict[str, list[list[float]]] = {name: [] for name in names}
    lengths = [len(document) for document in documents]
    for turn, document in enumerate(turns(lengths)):
        wanted_ms = expected_ms(document, lengths, times) if turn else 0.0
        if turn and budget_seconds is not None and _is_over(begin + budget_seconds - wanted_ms / 1000, group):
            if turn < len(documents):
                break
            continue  # a shorter one may still have its turn
        for name in names[turn % len(names) :] + names[: turn % len(names)]:
            if turn < len(documents):
                times[name].append([])
            times[name][document].append(milliseconds(document, plans[name][document]))
    return times


def expected_ms(document: int, lengths: Sequence[int], times: Mapping[str, Sequence[Sequence[float]]]) -> float:
    """What all contenders together will take for a document, from those that have run: its own, or the nearest longer.

    In proportion to the length, which is too little for short ones; where none is longer, the longest.
    """
    num_run = min(map(len, times.values()))
    if document < num_run:
        return sum(min(of[document]) for of in times.values())
    longer = [other for other in range(num_run) if lengths[other] >= lengths[document]]
    other = min(longer, key=lengths.__getitem__) if longer else max(range(num_run), key=lengths.__getitem__)
    return sum(min(of[other]) for of in times.values()) * lengths[document] / lengths[other]


def turns(lengths: Sequence[int]) -> list[int]:
    """Documents by number in the order in which they are raced: as they are, then shortest first, several times."""
    shortest_first = sorted(range(len(lengths)), key=lambda document: lengths[document])
    return [*range(len(lengths)), *shortest_first * (MAX_ROUNDS - 1)]


def _is_over(end: float, group: dist.ProcessGroup) -> bool:
    """Whether it is later than `end` on rank 0's clock, the same answer on every rank."""
    import torch
    import torch.distributed as dist

    over = torch.tensor([time.monotonic() > end])
    dist.broadcast(over, group=group, group_src=0)
    return bool(over)


def reach(
    shape: Mapping[str, Any],
    documents: Sequence[Sequence[int]],
    plans: Sequence[str | None],
    allowance_bytes: int,
    notes: str,
) -> None:
    """Worker: train on ever longer documents with only so much memory left, until an allocation fails.

    Args:
        documents: shortest first.
        allowance_bytes: address space that may be added to what weights, gradients, and a document too short to count,
            took.
        notes: file into which rank 0 writes the length of each document that was trained.
    """
    import torch.distributed as dist

    from paradyse_megatron.bench.contenders import parse
    from paradyse_megatron.bench.model import gpt, step_under
    from paradyse_megatron.costmodel.shape import ModelShape

    of_shape = ModelShape(**shape)
    model = gpt(of_shape, max(map(len, documents)) + 64, plans[0] is None)
    step_under(model, documents[0][: FIRST_TOKENS + 1], parse(plans[0], of_shape.num_layers))
    resource.setrlimit(resource.RLIMIT_AS, (_address_space_bytes() + allowance_bytes,) * 2)
    for document, plan in zip(documents, plans, strict=True):
        step_under(model, document, parse(plan, of_shape.num_layers))
        dist.barrier()
        if dist.get_rank() == 0:
            with open(notes, "a") as file:
                file.write(f"{len(document)}\n")
    sys.stdout.flush()


def _address_space_bytes() -> int:
    with open("/proc/self/statm") as file:
        return int(file.read().split()[0]) * resource.getpagesize()
