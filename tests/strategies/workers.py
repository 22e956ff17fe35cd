"""Strategies on plain tensors, against the same layer on one device. Run by hand: see `tests.ranks`."""

from __future__ import annotations

import torch
import torch.distributed as dist
import torch.nn.functional as F

from paradyse_megatron.layouts.padding import padding_multiple
from paradyse_megatron.strategies.attention.geometry import AttentionShards, Geometry
from paradyse_megatron.strategies.attention.metp import metp_attention
from paradyse_megatron.strategies.attention.ring import ring_attention
from paradyse_megatron.strategies.attention.ulysses import ulysses_attention
from paradyse_megatron.strategies.mlp.gathered import MlpShards, gathered_mlp
from paradyse_megatron.strategies.mlp.streamed import streamed_mlp

HEAD_DIM, HIDDEN = 8, 40
ATTENTION = {"ulysses": ulysses_attention, "ring": ring_attention, "metp": metp_attention}
MLPS = {"gathered": gathered_mlp, "streamed": streamed_mlp}


def attention_errors(
    num_chunks: int, batch: int, num_heads: int, num_groups: int, dtype_name: str, expanded_gradient: bool
) -> dict[str, float]:
    """Largest relative error of output and of every gradient, by strategy and tensor."""
    group, dtype = dist.group.WORLD, getattr(torch, dtype_name)
    geometry = Geometry(num_heads, num_groups, HEAD_DIM, 0.3)
    seq_length = num_chunks * padding_multiple(group.size())
    whole = {
        "hidden": (seq_length, batch, HIDDEN),
        "qkv_weight": ((num_heads + 2 * num_groups) * HEAD_DIM, HIDDEN),
        "qkv_bias": ((num_heads + 2 * num_groups) * HEAD_DIM,),
        "proj_weight": (HIDDEN, num_heads * HEAD_DIM),
    }
    tensors = _random(whole, dtype)
    expected = _gradients(lambda t: _reference_attention(t, geometry), tensors, 0, expanded_gradient)
    first_row = seq_length // group.size() * group.rank()
    errors = {}
    for name, strategy in ATTENTION.items():
        if name in ("ulysses", "metp") and num_groups % group.size():
            continue
        local = _shards(tensors, {"hidden": 0, "qkv_weight": 0, "qkv_bias": 0, "proj_weight": 1}, group)
        found = _gradients(
            lambda t, run=strategy: run(
                t["hidden"], AttentionShards(t["qkv_weight"], t["qkv_bias"], t["proj_weight"]), geometry, group
            ),
            local,
            first_row,
            expanded_gradient,
        )
        errors |= _compare(
            name, found, expected, {"output": 0, "hidden": 0, "qkv_weight": 0, "qkv_bias": 0, "proj_weight": 1}, group
        )
    return errors


def mlp_errors(
    seq_length_per_rank: int, batch: int, gated: bool, dtype_name: str, expanded_gradient: bool = False
) -> dict[str, float]:
    """Each MLP strategy against the whole one, each rank's fc1 shard being [gate_r; linear_r] when gated."""
    group, dtype, ffn = dist.group.WORLD, getattr(torch, dtype_name), 24
    num_rows = 2 * ffn if gated else ffn
    tensors = _random(
        {
            "hidden": (seq_length_per_rank * group.size(), batch, HIDDEN),
            "fc1_weight": (num_rows, HIDDEN),
            "fc1_bias": (num_rows,),
            "fc2_weight": (HIDDEN, ffn),
        },
        dtype,
    )
    activation = (lambda x: F.silu(x.chunk(2, -1)[0]) * x.chunk(2, -1)[1]) if gated else F.gelu
    expected = _gradients(
        lambda t: activation(t["hidden"] @ t["fc1_weight"].t() + t["fc1_bias"]) @ t["fc2_weight"].t(),
        tensors,
        0,
        expanded_gradient,
    )
    order = _gated_rows(ffn, group.size()) if gated else torch.arange(num_rows)
    dims = {"hidden": 0, "fc1_weight": 0, "fc1_bias": 0, "fc2_weight": 1}
    permuted = tensors | {name: tensors[name][order].detach() for name in ("fc1_weight", "fc1_bias")}
    expected = expected | {name: expected[name][order] for name in ("fc1_weight", "fc1_bias")}
    errors = {}
    for name, strategy in MLPS.items():
        found = _gradients(
            lambda t, run=strategy: run(
                t["hidden"], MlpShards(t["fc1_weight"], t["fc1_bias"], t["fc2_weight"]), group, activation
            ),
            _shards(permuted, dims, group),
            seq_length_per_rank * group.rank(),
            expanded_gradient,
        )
        errors |= _compare(name, found, expected, dims | {"output": 0}, group)
    return errors


def gradients_of_one_parameter_used_twice() -> bool:
    """Two micro-batches before a step: gradients add up, and the parameter itself stays bit-identical."""
    group = dist.group.WORLD
    geometry = Geometry(group.size(), group.size(), HEAD_DIM, 0.3)
    tensors = _random(
        {
            "hidden": (4 * group.size(), 1, HIDDEN),
            "qkv_weight": (3 * group.size() * HEAD_DIM, HIDDEN),
            "proj_weight": (HIDDEN, group.size() * HEAD_DIM),
        },
        torch.float64,
    )
    local = _shards(tensors, {"hidden": 0, "qkv_weight": 0, "proj_weight": 1}, group)
    before = {name: tensor.detach().clone() for name, tensor in local.items()}
    shards = AttentionShards(local["qkv_weight"], None, local["proj_weight"])
    for _ in range(2):
        ring_attention(local["hidden"], shards, geometry, group).square().sum().backward()
    twice = local["qkv_weight"].grad.clone()
    local["qkv_weight"].grad = None
    ulysses_attention(local["hidden"], shards, geometry, group).square().sum().backward()
    unchanged = all(torch.equal(before[name], local[name]) for name in before)
    return unchanged and torch.allclose(twice, 2 * local["qkv_weight"].grad, rtol=1e-10, atol=0)


def _random(shapes: dict[str, tuple[int, ...]], dtype: torch.dtype) -> dict[str, torch.Tensor]:
    generator = torch.Generator().manual_seed(1)
    tensors = {}
    for name, shape in shapes.items():
        noise = torch.randn(shape, generator=generator, dtype=torch.float64)
        scale = shape[-1] ** -0.5 if len(shape) == 2 else 1.0
        tensors[name] = (scale * noise).to(dtype).requires_grad_()
    return tensors


def _reference_attention(tensors, geometry):
    query, key, value = geometry.split(tensors["hidden"] @ tensors["qkv_weight"].t() + tensors["qkv_bias"])
    query, key, value = (t.permute(1, 2, 0, 3) for t in (query, key, value))
    key, value = (t.repeat_interleave(geometry.num_heads // geometry.num_groups, 1) for t in (key, value))
    scores = query @ key.transpose(-1, -2) * geometry.softmax_scale
    scores = scores.masked_fill(torch.ones(scores.shape[-2:], dtype=torch.bool).triu(1), float("-inf"))
    context = (scores.softmax(-1) @ value).permute(2, 0, 1, 3).flatten(2)
    return context @ tensors["proj_weight"].t()


def _gradients(run, tensors, first_row=0, expanded_gradient=False):
    """The output and the gradient of every input; the loss weighs every token differently, unless it is a plain sum."""
    tensors = {name: tensor.detach().clone().requires_grad_() for name, tensor in tensors.items()}
    output = run(tensors)
    token_weights = 1 + torch.arange(first_row, first_row + output.shape[0]).sin().to(output.dtype)
    loss = output.sum() if expanded_gradient else (output.square() * token_weights.view(-1, 1, 1)).sum()
    loss.backward()
    return {"output": output.detach()} | {name: tensor.grad for name, tensor in tensors.items()}


def _shards(tensors, dims, group):
    return {
        name: tensors[name].detach().chunk(group.size(), dim)[group.rank()].clone().requires_grad_()
        for name, dim in dims.items()
    }


def _gated_rows(ffn: int, num_ranks: int) -> torch.Tensor:
    gate, linear = torch.arange(2 * ffn).chunk(2)
    return torch.cat(
        [part for pair in zip(gate.chunk(num_ranks), linear.chunk(num_ranks), strict=True) for part in pair]
    )


def _compare(name, found, expected, dims, group):
    errors = {}
    for key, dim in dims.items():
        part = expected[key].chunk(group.size(), dim)[group.rank()].double()
        errors[f"{name}.{key}"] = ((found[key].double() - part).norm() / part.norm()).item()
    return errors


def half_precision_error() -> float:
    """Distance of the bf16 ring to fp64 attention over the same 64 tokens, whatever the number of ranks."""
    from paradyse_megatron.comm.zigzag import local_zigzag_positions
    from paradyse_megatron.strategies.attention.ring import zigzag_ring

    group, length = dist.group.WORLD, 64
    generator = torch.Generator().manual_seed(2)
    query, key, value = (
        torch.randn(length, 1, 4, 16, generator=generator, dtype=torch.float64).to(torch.bfloat16) for _ in range(3)
    )
    positions = local_zigzag_positions(length // group.size(), group)
    found = zigzag_ring(query[positions], key[positions], value[positions], group, 0.5)
    by_head = (tensor.double().permute(1, 2, 0, 3) for tensor in (query, key, value))
    expected = F.scaled_dot_product_attention(*by_head, is_causal=True, scale=0.5).permute(2, 0, 1, 3).flatten(2)
    found = found.flatten(2)
    return ((found.double() - expected[positions]).norm() / expected[positions].norm()).item()
