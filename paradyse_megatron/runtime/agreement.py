"""Ranks that would decide differently are found before the first micro-batch, not by a hang in the middle of one."""

from __future__ import annotations

import json

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
