"""The longest document that each contender trains within a memory limit, by real allocations on loopback."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from paradyse_megatron.bench.budget import TimeBudget
from paradyse_megatron.bench.race import REACH
from paradyse_megatron.bench.ranks import run_on_ranks
from paradyse_megatron.costmodel.shape import ModelShape
from paradyse_megatron.cpu.memory import EXACT

RUN_SECONDS = 900
LEAST_SECONDS = 30
"""With less left no further contender is tried: starting ranks alone takes half of that."""

_HONEST = EXACT | {"MALLOC_ARENA_MAX": "1"}
"""Without arenas of threads: each reserves 64 MiB of address space, from which tensors come once a limit is reached."""
BESIDE_TENSORS = 8 * 2**20
"""Address space on top of a limit, which is one of tensors: for what messages and the C library take."""
_ALLOCATION = ("allocate", "OutOfMemory", "MemoryError", "bad_alloc", "Cannot allocate")


@dataclass
class Reach:
    """What was found.

    Attributes:
        longest: real tokens that each contender trained; 0 for none.
        out_of_memory: length at which an allocation of each contender failed, where one did.
        untried: contenders for which there was no time.
    """

    longest: dict[str, int] = field(default_factory=dict)
    out_of_memory: dict[str, int] = field(default_factory=dict)
    untried: list[str] = field(default_factory=list)


def find_reach(
    shape: ModelShape,
    lengths: Sequence[int],
    plans: Mapping[str, Sequence[str | None]],
    limit_bytes: int,
    num_ranks: int,
    budget: TimeBudget,
    notes: Path,
) -> Reach:
    """Try every contender, in order, on documents of `lengths`, shortest first, for as long as `budget` lasts.

    Args:
        plans: of each contender, for each length.
        notes: a file for what ranks have trained.
    """
    documents = [[token % shape.vocab_size for token in range(length + 1)] for length in lengths]
    found = Reach()
    for name, of_documents in plans.items():
        if budget.at_most(RUN_SECONDS) < LEAST_SECONDS:
            found.untried.append(name)
            continue
        notes.unlink(missing_ok=True)
        arguments = {
            "shape": shape.as_dict(),
            "documents": documents,
            "plans": of_documents,
            "allowance_bytes": limit_bytes + BESIDE_TENSORS,
            "notes": str(notes),
        }
        seconds = budget.at_most(RUN_SECONDS)
        outcome = run_on_ranks(REACH, num_ranks, arguments, timeout_seconds=seconds, environment=_HONEST)
        num_trained = len(notes.read_text().split()) if notes.exists() else 0
        found.longest[name] = lengths[num_trained - 1] if num_trained else 0
        if outcome.failure and num_trained < len(lengths) and any(text in outcome.failure for text in _ALLOCATION):
            found.out_of_memory[name] = lengths[num_trained]
        sys.stderr.write(f"within {limit_bytes / 2**20:,.0f} MiB {name} trains up to {found.longest[name]:,} tokens\n")
    return found
