"""Plans that between them follow every option, three layers at a time."""

from __future__ import annotations

import random

from paradyse_megatron.costmodel.shape import ModelShape
from paradyse_megatron.costmodel.support import excluded_reason
from paradyse_megatron.planner.option import all_options

NUM_GROUPS = {"gpt": 24, "llama": 12, "qwen": 24, "blend": 12, "grouped": 2, "mqa": 1}
"""Key/value heads of the families in `models`, which have 24 query heads."""
PLAN_LAYERS = 3


def usable_options(family: str, num_ranks: int) -> list[str]:
    """Every option that the family can follow on so many ranks; none where its heads cannot be dealt."""
    shape = ModelShape(48, PLAN_LAYERS, 24, 96, 96, num_query_groups=NUM_GROUPS[family], head_dim=4)
    return [str(option) for option in all_options() if excluded_reason(option, shape, num_ranks) is None]


def covering_plans(family: str, num_ranks: int, seed: int) -> list[str]:
    """In seeded order, each usable option in one plan at least: attention, MLP and recompute mode mixed in each."""
    options, chooser = usable_options(family, num_ranks), random.Random(f"{family} {seed}")
    chooser.shuffle(options)
    options += options[: -len(options) % PLAN_LAYERS]
    return [",".join(options[first : first + PLAN_LAYERS]) for first in range(0, len(options), PLAN_LAYERS)]
