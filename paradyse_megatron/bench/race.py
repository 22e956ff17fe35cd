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

from paradyse_megatron.bench.contenders import AGAIN

if TYPE_CHECKING:
    import torch.distributed as dist

RACE = "paradyse_megatron.bench.race:race"
REACH = "paradyse_megatron.bench.race:reach"


FIRST_TOKENS = 16
"""Of the document that makes what stays before memory is limited; what it takes itself comes on top of the limit."""
MAX_ROUNDS = 4
"""After the first round all documents run again, as far as time allows: of noisy machines medians tell more."""
CLOSE = 1.5
"""Who took longer than that many times the fastest for a document does not run it again: nothing hangs on how much."""


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
        For each contender and document, one measurement or several. Contenders with one plan for a document share them.
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
    times: dict[str, list[list[float]]] = {name: [] for name in plans}
    lengths = [len(document) for document in documents]
    for turn, document in enumerate(turns(lengths)):
        sharers = sharing({name: of[document] for name, of in plans.items()})
        running = _told(rotated([name for name in sharers if is_close(name, document, times)], turn), group)
        wanted_ms = expected_ms(document, lengths, {name: times[name] for name in running}) if turn else 0.0
        if turn and budget_seconds is not None and _is_over(begin + budget_seconds - wanted_ms / 1000, group):
            if turn < len(documents):
                break
            continue  # a shorter one may still have its turn
        if turn < len(documents):
            for of in times.values():
                of.append([])
        for name in running:
            took = milliseconds(document, plans[name][document])
            for sharer in sharers[name]:
                times[sharer][document].append(took)
    return times


def sharing(plans: Mapping[str, str | None]) -> dict[str, list[str]]:
    """By one contender of each plan, all with it; who runs for the noise (`contenders.AGAIN`) shares with nobody."""
    found: dict[str | None, list[str]] = {}
    for name, plan in plans.items():
        found.setdefault(name if name.endswith(AGAIN) else plan, []).append(name)
    return {names[0]: names for names in found.values()}


def is_close(name: str, document: int, times: Mapping[str, Sequence[Sequence[float]]]) -> bool:
    """Whether a contender has not run a document, or took not much longer than the fastest."""
    if document >= len(times[name]):
        return True
    return min(times[name][document]) <= CLOSE * min(min(of[document]) for of in times.values())


def rotated(names: Sequence[str], turn: int) -> list[str]:
    """Another one first each turn."""
    first = turn % len(names)
    return [*names[first:], *names[:first]]


def expected_ms(document: int, lengths: Sequence[int], times: Mapping[str, Sequence[Sequence[float]]]) -> float:
    """What these contenders together will take for a document, from one that has run: itself, or the nearest longer.

    In proportion to the length, which is too little for short ones; where none is longer, the longest.
    """
    num_run = min(map(len, times.values()))
    if document < num_run:
        return sum(min(of[document]) for of in times.values())
    longer = [other for other in range(num_run) if lengths[other] >= lengths[document]]
    other = min(longer, key=lengths.__getitem__) if longer else max(range(num_run), key=lengths.__getitem__)
    return sum(min(of[other]) for of in times.values()) * lengths[document] / lengths[other]


def turns(lengths: Sequence[int]) -> list[int]:
    """Documents by number in the order in which they are raced: as they are, then longest first, several times.

    One long document is as much time as many short ones, and one disturbance in it would decide.
    """
    longest_first = sorted(range(len(lengths)), key=lambda document: -lengths[document])
    return [*range(len(lengths)), *longest_first * (MAX_ROUNDS - 1)]


def _told(names: list[str], group: dist.ProcessGroup) -> list[str]:
    """What the first rank says: each has its own times."""
    import torch.distributed as dist

    box = [names]
    dist.broadcast_object_list(box, group=group, group_src=0)
    return box[0]


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
