"""Who takes part in the race: every static configuration a user could choose, a random one, and the plan by length."""

from __future__ import annotations

import random
from collections.abc import Sequence

from paradyse_megatron.planner.plan import Plan
from paradyse_megatron.planner.planner import Planner

STOCK = "stock"
DYNAMIC, DYNAMIC_LIMITED, RANDOM = "dynamic", "dynamic within the limit", "random"
AGAIN = " again"
"""Suffix of a contender that runs twice: how far apart the two are is noise."""

Plans = dict[str, list[str | None]]
"""For each contender the plan's text for each document; None for Megatron's own layers."""


def static_plans(options: Sequence[str], num_documents: int) -> Plans:
    """Each option for all layers of all documents, as one has to choose it without a planner."""
    return {option: [option] * num_documents for option in options}


def stock_plans(num_documents: int) -> Plans:
    """Megatron's tensor and sequence parallelism, in its own layers."""
    return {STOCK: [None] * num_documents}


def random_plans(options: Sequence[str], num_layers: int, num_documents: int, seed: int = 0) -> Plans:
    """An option drawn for each layer of each document: what deciding by length has to beat if it is worth anything."""
    draw = random.Random(seed)
    return {RANDOM: [",".join(draw.choice(options) for _ in range(num_layers)) for _ in range(num_documents)]}


def planned(name: str, planner: Planner, lengths: Sequence[int]) -> Plans:
    """The planner's choice for each document."""
    return {name: [str(planner.plan(length)) for length in lengths]}


def parse(text: str | None, num_layers: int) -> Plan | None:
    """A contender's plan for one document."""
    return None if text is None else Plan.parse(text, num_layers)
