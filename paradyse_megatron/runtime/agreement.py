"""Ranks that would decide differently are found before the first micro-batch, not by a hang in the middle of one.

Decisions are functions of what is compared at the start. What is brought together later, once a logging interval where
every rank passes, proves that this still holds; it is also what ranks learn from each other (`runtime.feedback`).
"""

from __future__ import annotations

import json
from collections.abc import Sequence

import torch
import torch.distributed as dist

from paradyse_megatron.comm.collectives import Group


def check_agreement(description: dict[str, object], group: Group | None = None) -> None:
    """Compare what decisions depend on among all ranks; raises the same ValueError on each of them when it differs."""
    descriptions: list[dict[str, object]] = [{} for _ in range(dist.get_world_size(group))]
    dist.all_gather_object(descriptions, json.loads(json.dumps(description)), group=group)
    for rank, other in enumerate(descriptions):
        for key in descriptions[0]:
            if other.get(key) != descriptions[0][key]:
                raise ValueError(
                    f"Ranks would choose different plans: rank 0 has {key} {descriptions[0][key]}, rank {rank} "
                    f"has {other.get(key)}. Give every rank the same arguments and the same cost model file."
                )


def bring_together(values: Sequence[float], group: Group | None = None) -> list[list[float]]:
    """What each rank brings, by rank; the same number of values from each. Exact for whole numbers below 2 ** 53."""
    device = torch.cuda.current_device() if dist.get_backend(group) == "nccl" else "cpu"
    own = torch.tensor(values, dtype=torch.float64, device=device)
    rows = torch.empty(dist.get_world_size(group), len(values), dtype=torch.float64, device=device)
    dist.all_gather(list(rows.unbind()), own, group=group)
    return rows.tolist()


def check_followed(rows: Sequence[Sequence[float]], iteration: int) -> None:
    """Of each rank: its replica, a hash of the plans that it followed, a hash of what it decides by.

    Raises the same ValueError on all ranks where those of one replica followed different plans, or any two decide
    by something else.
    """
    first_of: dict[float, int] = {}
    for rank, (replica, followed, decides_by) in enumerate(rows):
        leader = first_of.setdefault(replica, rank)
        if followed != rows[leader][1]:
            raise ValueError(_parted(rank, leader, f"followed other plans, by iteration {iteration},"))
        if decides_by != rows[0][2]:
            raise ValueError(_parted(rank, 0, f"has other corrections of its costs, from iteration {iteration} on,"))


def _parted(rank: int, other: int, what: str) -> str:
    return (
        f"Rank {rank} {what} than rank {other}, though both started with the same arguments and costs. That is a "
        "defect of software or machine: resume from the last checkpoint, without --paradyse-feedback if it was on."
    )
