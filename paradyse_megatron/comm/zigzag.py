"""Contiguous to zigzag token order and back: one uneven all-to-all, planned by `layouts.token_layouts`."""

from __future__ import annotations

import torch
from torch import Tensor

from paradyse_megatron.comm.collectives import Group
from paradyse_megatron.comm.conversion import convert
from paradyse_megatron.comm.subgroups import Peers
from paradyse_megatron.layouts.conversion import contiguous_to_zigzag
from paradyse_megatron.layouts.zigzag import zigzag_positions


def to_zigzag(local: Tensor, group: Group, subgroup_size: int = 1) -> Tensor:
    """[s/P, ...] in contiguous order to [s/P, ...] in zigzag order (over sub-groups); differentiable."""
    if subgroup_size == group.size():
        return local
    return _reordered(local, group, subgroup_size, back=False)


def to_contiguous(local: Tensor, group: Group, subgroup_size: int = 1) -> Tensor:
    """The inverse of `to_zigzag`; differentiable."""
    if subgroup_size == group.size():
        return local
    return _reordered(local, group, subgroup_size, back=True)


def local_zigzag_positions(num_tokens: int, group: Peers) -> slice | Tensor:
    """Global positions of this rank's `num_tokens` = s/P tokens in zigzag order."""
    if group.size() == 1:
        return slice(0, num_tokens)
    return torch.from_numpy(zigzag_positions(group.rank(), group.size(), num_tokens * group.size()))


def _reordered(local: Tensor, group: Group, subgroup_size: int, back: bool) -> Tensor:
    chunks = local.reshape(2, -1)
    conversion = contiguous_to_zigzag(group.size(), subgroup_size, chunks.shape[1])
    return convert(conversion.inverse if back else conversion, group, chunks)[0].view(local.shape)
