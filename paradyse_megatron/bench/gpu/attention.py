"""Attention with its log-sum-exp (`strategies.attention.core`) and strategies of one rank, against fp64 formulas."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial

import torch
import torch.distributed as dist
from torch import Tensor

from paradyse_megatron.bench.gpu.check import Check
from paradyse_megatron.layouts.heads import CHUNKS_WANTED
from paradyse_megatron.strategies.attention.core import Block, attend, attend_backward
from paradyse_megatron.strategies.attention.geometry import AttentionShards, Geometry
from paradyse_megatron.strategies.attention.metp import metp_attention
from paradyse_megatron.strategies.attention.ring import ring_attention
from paradyse_megatron.strategies.attention.ulysses import ulysses_attention
from paradyse_megatron.strategies.attention.upipe import upipe_attention
from paradyse_megatron.strategies.attention.usp import usp_attention

STRATEGIES: dict[str, Callable[..., Tensor]] = {
    "ulysses": ulysses_attention,
    "ring": ring_attention,
    "usp": usp_attention,
    **{name: partial(upipe_attention, num_chunks=wanted) for name, wanted in CHUNKS_WANTED.items()},
    "metp": metp_attention,
}
HALF_BOUND = 2e-2  # relative L2 of bf16, whose numbers have 2^-9
EXACT_BOUND = 1e-10  # relative L2 of fp64
OVER_PLAIN = 1.5  # how much further from fp64 than plain bf16 arithmetic a strategy may be


def attention_with_log_sum_exp(device: torch.device, dtype: torch.dtype, num_tokens: int = 512) -> Iterator[Check]:
    """Output, log-sum-exp and gradients of one block, and of the last half of the rows against the whole's."""
    for heads, groups, head_dim in ((8, 8, 64), (8, 2, 128), (6, 1, 64)):
        for causal in (True, False):
            query, key, value, grad = (
                torch.randn(2, n, num_tokens, head_dim, device=device, dtype=dtype)
                for n in (heads, groups, groups, heads)
            )
            exact = query.double(), key.double(), value.double()
            wanted = _plain(*exact, head_dim**-0.5, causal)
            block = attend(query, key, value, head_dim**-0.5, causal)
            whole = Block(block.output, block.log_sum_exp)  # as after a merge: without the kernel's own state
            grads = attend_backward(grad, query, key, value, whole, head_dim**-0.5, causal)
            wanted_grads = _plain_gradients(grad.double(), *exact, head_dim**-0.5, causal)
            pairs = [(block.output, wanted[0]), (block.log_sum_exp, wanted[1])]
            worst = max(distance(*pair) for pair in [*pairs, *zip(grads, wanted_grads, strict=True)])
            name = f"a={heads}, g={groups}, d={head_dim}, {'causal' if causal else 'all keys'}"
            yield Check("attention", name, worst <= HALF_BOUND, f"relative error {worst:.1e} at most")


def strategies_of_one_rank(device: torch.device, half: torch.dtype = torch.bfloat16) -> Iterator[Check]:
    """Output and every gradient: in fp64 to 1e-10, in half precision no further than plain arithmetic 1.5 times."""
    geometry = Geometry(8, 2, 64, 0.125)
    tensors = _layer(geometry, 64, device)
    formula = partial(_plain_layer, geometry)
    wanted = _gradients(formula, tensors)
    plain = _gradients(formula, [tensor.to(half) for tensor in tensors])
    bounds = [OVER_PLAIN * distance(*pair) for pair in zip(plain, wanted, strict=True)]
    with _one_rank(device) as group:
        for name, strategy in STRATEGIES.items():

            def run(hidden: Tensor, qkv: Tensor, bias: Tensor, proj: Tensor, strategy: Callable = strategy) -> Tensor:
                return strategy(hidden, AttentionShards(qkv, bias, proj), geometry, group)

            worst = max(distance(*pair) for pair in zip(_gradients(run, tensors), wanted, strict=True))
            yield Check("strategies", f"{name}, float64", worst <= EXACT_BOUND, f"relative error {worst:.1e} at most")
            found = _gradients(run, [tensor.to(half) for tensor in tensors])
            ratios = [OVER_PLAIN * distance(*pair) / bound for *pair, bound in zip(found, wanted, bounds, strict=True)]
            told = f"{max(ratios):.2f} times the error of plain arithmetic at most"
            yield Check("strategies", f"{name}, {str(half)[6:]}", max(ratios) <= OVER_PLAIN, told)


def distance(found: Tensor, wanted: Tensor) -> float:
    """Relative L2."""
    return ((found.double() - wanted).norm() / wanted.norm()).item()


def _layer(geometry: Geometry, num_tokens: int, device: torch.device) -> list[Tensor]:
    """Hidden state, fused projection with bias, output projection."""
    generator = torch.Generator().manual_seed(1)
    hidden, rows = 96, (geometry.num_heads + 2 * geometry.num_groups) * geometry.head_dim
    shapes = [(num_tokens, 2, hidden), (rows, hidden), (rows,), (hidden, geometry.num_heads * geometry.head_dim)]
    scales = [1.0, hidden**-0.5, 1.0, rows**-0.5]
    made = [torch.randn(shape, generator=generator, dtype=torch.float64) for shape in shapes]
    # Numbers that half precision has: only arithmetic differs.
    return [(scale * one).to(torch.bfloat16).double().to(device) for one, scale in zip(made, scales, strict=True)]


def _gradients(run: Callable[..., Tensor], tensors: list[Tensor]) -> list[Tensor]:
    """The output and the gradients of all tensors."""
    leaves = [tensor.detach().clone().requires_grad_() for tensor in tensors]
    output = run(*leaves)
    weights = torch.linspace(-1, 1, output.numel(), dtype=torch.float64, device=output.device).view(output.shape)
    output.backward(weights.to(torch.bfloat16).to(output.dtype))
    return [output.detach(), *(leaf.grad for leaf in leaves if leaf.grad is not None)]


def _plain_layer(geometry: Geometry, hidden: Tensor, qkv: Tensor, bias: Tensor, proj: Tensor) -> Tensor:
    heads = geometry.split(hidden @ qkv.t() + bias)
    query, key, value = (part.permute(1, 2, 0, 3) for part in heads)
    context = _plain(query, key, value, geometry.softmax_scale, True)[0]
    return context.permute(2, 0, 1, 3).flatten(2) @ proj.t()


def _plain(query: Tensor, key: Tensor, value: Tensor, scale: float, causal: bool) -> tuple[Tensor, Tensor]:
    key, value = (one.repeat_interleave(query.shape[1] // one.shape[1], 1) for one in (key, value))
    scores = query @ key.transpose(-1, -2) * scale
    if causal:
        hidden = torch.ones(scores.shape[-2:], dtype=torch.bool, device=scores.device).triu(1)
        scores = scores.masked_fill(hidden, float("-inf"))
    return scores.softmax(-1) @ value, scores.logsumexp(-1)


def _plain_gradients(
    grad: Tensor, query: Tensor, key: Tensor, value: Tensor, scale: float, causal: bool
) -> tuple[Tensor, ...]:
    query, key, value = (tensor.clone().requires_grad_() for tensor in (query, key, value))
    return torch.autograd.grad(_plain(query, key, value, scale, causal)[0], (query, key, value), grad)


@contextmanager
def _one_rank(device: torch.device) -> Iterator[dist.ProcessGroup]:
    backend = "nccl" if device.type == "cuda" and dist.is_nccl_available() else "gloo"
    dist.init_process_group(backend, store=dist.HashStore(), rank=0, world_size=1)
    try:
        assert dist.group.WORLD is not None
        yield dist.group.WORLD
    finally:
        dist.destroy_process_group()
