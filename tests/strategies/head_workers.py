"""Strategies that deal or chunk heads, against attention on one device. Run by hand: see `tests.ranks`."""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import Tensor

from paradyse_megatron.layouts.padding import padding_multiple
from paradyse_megatron.strategies.attention.geometry import AttentionShards, Geometry, HeadPreparation
from paradyse_megatron.strategies.attention.ring import ring_attention
from paradyse_megatron.strategies.attention.ulysses import ulysses_attention
from paradyse_megatron.strategies.attention.upipe import upipe_attention
from paradyse_megatron.strategies.attention.usp import usp_attention
from tests.strategies.workers import _compare, _random, _shards

HEAD_DIM, HIDDEN = 6, 20
STRATEGIES = {"ulysses": ulysses_attention, "ring": ring_attention, "upipe": upipe_attention, "usp": usp_attention}
DIMS = {"hidden": 0, "qkv_weight": 0, "qkv_bias": 0, "proj_weight": 1}

Case = dict[str, Any]
"""`strategy` and its `keywords`; `num_heads`, `num_groups`, `batch`, `bias`, `dtype`, `expanded` (a plain sum)."""


def errors(cases: list[Case]) -> list[dict[str, float]]:
    """For each case the relative error of the output, every gradient and every q/k norm's summed gradient."""
    return [_errors(**case) for case in cases]


def _errors(
    strategy: str,
    num_heads: int,
    num_groups: int,
    batch: int = 2,
    bias: bool = True,
    dtype: str = "float64",
    expanded: bool = False,
    group: dist.ProcessGroup | None = None,
    **keywords: Any,
) -> dict[str, float]:
    group = group or dist.group.WORLD
    assert group is not None
    geometry = Geometry(num_heads, num_groups, HEAD_DIM, 0.4)
    tensors = whole_tensors(geometry, 3 * padding_multiple(group.size()), batch, getattr(torch, dtype))
    if not bias:
        tensors.pop("qkv_bias")
    dims = {name: dim for name, dim in DIMS.items() if name in tensors}
    expected = run(tensors, geometry, lambda h, s, p: _one_device(h, s, geometry, p), 0, expanded)
    first_row = tensors["hidden"].shape[0] // group.size() * group.rank()
    local = _shards(tensors, dims, group) | {name: tensors[name] for name in ("query_norm", "key_norm")}
    found = run(
        local, geometry, lambda h, s, p: STRATEGIES[strategy](h, s, geometry, group, p, **keywords), first_row, expanded
    )
    for name in ("query_norm", "key_norm"):
        dist.all_reduce(found[name], group=group)
    of_norms = {
        name: ((found[name] - expected[name]).norm() / expected[name].norm()).item()
        for name in ("query_norm", "key_norm")
    }
    return _compare(strategy, found, expected, dims | {"output": 0}, group) | of_norms


def whole_tensors(geometry: Geometry, seq_length: int, batch: int, dtype: torch.dtype) -> dict[str, Tensor]:
    num_rows = (geometry.num_heads + 2 * geometry.num_groups) * geometry.head_dim
    return _random(
        {
            "hidden": (seq_length, batch, HIDDEN),
            "qkv_weight": (num_rows, HIDDEN),
            "qkv_bias": (num_rows,),
            "proj_weight": (HIDDEN, geometry.num_heads * geometry.head_dim),
            "query_norm": (geometry.head_dim,),
            "key_norm": (geometry.head_dim,),
        },
        dtype,
    )


def run(
    tensors: dict[str, Tensor], geometry: Geometry, attention: Any, first_row: int, expanded: bool
) -> dict[str, Tensor]:
    """The output and the gradient of every tensor.

    The loss hands back either the expanded gradient of a plain sum, or one that is not contiguous and weighs every
    token differently.
    """
    leaves = {name: tensor.detach().clone().requires_grad_() for name, tensor in tensors.items()}
    shards = AttentionShards(leaves["qkv_weight"], leaves.get("qkv_bias"), leaves["proj_weight"])
    output = attention(leaves["hidden"], shards, preparation(leaves["query_norm"], leaves["key_norm"]))
    weights = 1 + torch.arange(first_row, first_row + output.shape[0]).sin().to(output.dtype)
    loss = output.sum() if expanded else (output.transpose(0, 1).square() * weights.view(1, -1, 1)).sum()
    loss.backward()
    return {"output": output.detach()} | {name: leaf.grad for name, leaf in leaves.items()}


def preparation(query_norm: Tensor, key_norm: Tensor) -> HeadPreparation:
    """A norm with a weight, and a turn of the head's two halves by the token's position."""

    def turn(heads: Tensor, positions: slice | Tensor) -> Tensor:
        angle = torch.arange(1000, dtype=heads.dtype)[positions].view(-1, 1, 1, 1) / 7
        first, second = heads.chunk(2, -1)
        return torch.cat((first * angle.cos() - second * angle.sin(), first * angle.sin() + second * angle.cos()), -1)

    def prepare(query: Tensor, key: Tensor, positions: slice | Tensor) -> tuple[Tensor, Tensor]:
        query = turn(F.rms_norm(query, query.shape[-1:], query_norm, 1e-6), positions)
        return query, turn(F.rms_norm(key, key.shape[-1:], key_norm, 1e-6), positions)

    return HeadPreparation(prepare, (query_norm, key_norm))


def _one_device(hidden: Tensor, shards: AttentionShards, geometry: Geometry, prepare: HeadPreparation) -> Tensor:
    query, key, value = geometry.split(F.linear(hidden, shards.qkv_weight, shards.qkv_bias))
    query, key = prepare(query, key, slice(0, hidden.shape[0]))
    query, key, value = (tensor.permute(1, 2, 0, 3) for tensor in (query, key, value))
    key, value = (tensor.repeat_interleave(geometry.num_heads // geometry.num_groups, 1) for tensor in (key, value))
    scores = query @ key.transpose(-1, -2) * geometry.softmax_scale
    scores = scores.masked_fill(torch.ones(scores.shape[-2:], dtype=torch.bool).triu(1), float("-inf"))
    context = (scores.softmax(-1) @ value).permute(2, 0, 1, 3).flatten(2)
    return context @ shards.proj_weight.t()


def some_ranks_errors(members: list[int], cases: list[Case]) -> list[dict[str, float]] | None:
    """`errors` in a group of some ranks of the world; None on the others."""
    group = dist.new_group(members)
    return [_errors(**case, group=group) for case in cases] if dist.get_rank() in members else None


def used_twice(strategies: list[str]) -> dict[str, bool]:
    """Two micro-batches before their backwards: gradients add up, and parameters stay bit-identical."""
    group = dist.group.WORLD
    assert group is not None
    geometry = Geometry(2 * group.size(), group.size(), HEAD_DIM, 0.4)
    tensors = _shards(whole_tensors(geometry, 4 * group.size(), 2, torch.float64), DIMS, group)
    before = {name: tensor.detach().clone() for name, tensor in tensors.items()}
    shards = AttentionShards(*(tensors[name] for name in ("qkv_weight", "qkv_bias", "proj_weight")))
    found = {}
    for name in strategies:
        grads = []
        for num_uses in (1, 2):
            outputs = [STRATEGIES[name](tensors["hidden"], shards, geometry, group) for _ in range(num_uses)]
            for output in outputs:
                output.square().sum().backward()
            grads.append([tensor.grad for tensor in tensors.values()])
            for tensor in tensors.values():
                tensor.grad = None
        add_up = all(torch.allclose(2 * once, twice, rtol=1e-12) for once, twice in zip(*grads, strict=True))
        found[name] = add_up and all(torch.equal(before[key], tensors[key]) for key in before)
    return found


def frozen(choices: list[list[str]]) -> list[list[str]]:
    """For each choice, which tensors have a gradient after a backward of `upipe` in which only the chosen want one."""
    return [_with_gradient(choice) for choice in choices]


def _with_gradient(trainable: list[str]) -> list[str]:
    group = dist.group.WORLD
    assert group is not None
    geometry = Geometry(2 * group.size(), group.size(), HEAD_DIM, 0.4)
    whole = whole_tensors(geometry, 4 * group.size(), 2, torch.float64)
    tensors = _shards(whole, DIMS, group) | {name: whole[name].detach() for name in ("query_norm", "key_norm")}
    for name, tensor in tensors.items():
        tensor.requires_grad_(name in trainable)
    shards = AttentionShards(*(tensors[name] for name in ("qkv_weight", "qkv_bias", "proj_weight")))
    prepare = preparation(tensors["query_norm"], tensors["key_norm"])
    upipe_attention(tensors["hidden"], shards, geometry, group, prepare).sum().backward()
    return sorted(name for name, tensor in tensors.items() if tensor.grad is not None)


def saved_bytes(num_heads: int, num_groups: int, seq_length: int) -> dict[str, int]:
    """What attention keeps from forward to backward, besides its input and the parameters."""
    group = dist.group.WORLD
    assert group is not None
    geometry = Geometry(num_heads, num_groups, HEAD_DIM, 0.4)
    tensors = _shards(whole_tensors(geometry, seq_length, 1, torch.float32), DIMS, group)
    known = {tensor.untyped_storage().data_ptr() for tensor in tensors.values()}
    shards = AttentionShards(*(tensors[name] for name in ("qkv_weight", "qkv_bias", "proj_weight")))
    found = {}
    for name in ("ulysses", "upipe"):
        storages: dict[int, int] = {}

        def note(tensor: Tensor, storages: dict[int, int] = storages) -> Tensor:
            storage = tensor.untyped_storage()
            if storage.data_ptr() not in known:
                storages[storage.data_ptr()] = storage.nbytes()
            return tensor

        with torch.autograd.graph.saved_tensors_hooks(note, lambda tensor: tensor):
            output = STRATEGIES[name](tensors["hidden"], shards, geometry, group)
        output.sum().backward()
        found[name] = sum(storages.values())
    return found


def half_precision_errors(wishes: list[Any]) -> list[float]:
    """Distance of the output and the input's gradient in bf16 to those in fp64, for each number of chunks."""
    group = dist.group.WORLD
    assert group is not None
    geometry = Geometry(12, 12, HEAD_DIM, 0.4)
    whole = whole_tensors(geometry, 32, 1, torch.bfloat16)
    local = _shards(whole, DIMS, group) | {name: whole[name] for name in ("query_norm", "key_norm")}
    exact = run(
        {name: tensor.double() for name, tensor in local.items()},
        geometry,
        lambda h, s, p: upipe_attention(h, s, geometry, group, p, num_chunks=1),
        0,
        False,
    )
    found = []
    for wish in wishes:
        rounded = run(
            local, geometry, lambda h, s, p, n=wish: upipe_attention(h, s, geometry, group, p, num_chunks=n), 0, False
        )
        found.append(
            max(
                ((rounded[name].double() - exact[name]).norm() / exact[name].norm()).item()
                for name in ("output", "hidden")
            )
        )
    return found


def unnamed_parameters() -> str:
    """What `upipe` says to a preparation of heads that does not name its parameters."""
    group = dist.group.WORLD
    assert group is not None
    geometry = Geometry(2, 2, HEAD_DIM, 0.4)
    whole = whole_tensors(geometry, 4, 1, torch.float64)
    prepare = preparation(whole["query_norm"], whole["key_norm"]).prepare
    shards = AttentionShards(whole["qkv_weight"], None, whole["proj_weight"])
    try:
        upipe_attention(whole["hidden"], shards, geometry, group, prepare)
    except ValueError as error:
        return str(error)
    return "accepted"
