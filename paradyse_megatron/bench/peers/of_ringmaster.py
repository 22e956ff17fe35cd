"""axolotl-ringmaster's rings: of contiguous tokens, and zigzag.

On CPUs they compute attention by explicit softmax, zigzag only with document masks (here of one document). So that
rings are compared and not kernels, each runs a second time around the kernel that ours has, lent in the place of
flash-attn's, whose interface they call on GPUs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor

from paradyse_megatron.bench.peers.case import Case
from paradyse_megatron.bench.peers.contestant import BATCH_FIRST, FLASH, HEADS_FIRST, RING, Contestant
from paradyse_megatron.comm.collectives import Group
from paradyse_megatron.strategies.attention.core import Block, attend, attend_backward

PACKAGE, REMEDY = "axolotl-ringmaster", "pip install 'paradyse-megatron[peers]'"
_EXPLICIT = "explicit softmax"


def contestants(case: Case, group: Group) -> Iterator[Contestant]:
    """Both rings as they run on CPUs, both with the kernel lent, and zigzag as it is called on GPUs."""
    from ringmaster.ring import p2p_attn, zigzag

    for module in (p2p_attn, zigzag):
        module._flash_ops = lambda *_: (_lent_forward, _lent_backward)  # asked for where inputs say that they are CUDA
    scale = case.geometry.softmax_scale
    one_document = torch.tensor([0, case.seq_length * case.batch], dtype=torch.int32)

    def ring(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        return p2p_attn.ring_p2p_attention(query, key, value, group=group, causal=True, scaling=scale)

    def masked(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        return zigzag.zigzag_ring_attention(query, key, value, group=group, scaling=scale, cu_seqlens=one_document)

    def dense(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        return zigzag.zigzag_ring_attention(query, key, value, group=group, scaling=scale)

    for name, is_zigzag, run, kernel in (
        ("ringmaster ring", False, ring, _EXPLICIT),
        ("ringmaster zigzag", True, masked, _EXPLICIT),
        ("ringmaster zigzag, unmasked", True, dense, _EXPLICIT),
        ("ringmaster ring, kernel lent", False, _saying_cuda(ring), FLASH),
        ("ringmaster zigzag, kernel lent", True, _saying_cuda(dense), FLASH),
    ):
        yield Contestant(name, RING, is_zigzag, HEADS_FIRST, BATCH_FIRST, run, kernel)


class _SaysCuda(Tensor):
    """A tensor on the CPU that says it is not; results computed from it are ordinary tensors."""

    is_cuda = True
    __torch_function__: Any = torch._C._disabled_torch_function_impl


def _saying_cuda(run: Callable[..., Tensor]) -> Callable[..., Tensor]:
    return lambda *inputs: run(*(tensor.as_subclass(_SaysCuda) for tensor in inputs))


def _lent_forward(
    query: Tensor, key: Tensor, value: Tensor, dropout: float, scale: float, causal: bool, *_: Any
) -> tuple[Tensor, Tensor, None, None]:
    """In the place of flash-attn's `_flash_attn_forward`: [b, t, heads, d] to output and log-sum-exp [b, heads, t]."""
    q, k, v = _heads_first(query, key, value)
    block = attend(q, k, v, scale, causal)
    return block.output.transpose(1, 2), block.log_sum_exp, None, None


def _lent_backward(
    grad: Tensor, query: Tensor, key: Tensor, value: Tensor, output: Tensor, log_sum_exp: Tensor,
    query_grad: Tensor, key_grad: Tensor, value_grad: Tensor, dropout: float, scale: float, causal: bool, *_: Any,
) -> None:  # fmt: skip
    """In the place of its `_flash_attn_backward`; gradients become those that were handed in, without a copy."""
    whole = Block(output.transpose(1, 2), log_sum_exp)
    g, q, k, v = _heads_first(grad, query, key, value)
    found = attend_backward(g, q, k, v, whole, scale, causal)
    for into, gradient in zip((query_grad, key_grad, value_grad), found, strict=True):
        into.set_(gradient.transpose(1, 2))  # type: ignore[call-overload]


def _heads_first(*tensors: Tensor) -> list[Tensor]:
    return [tensor.transpose(1, 2) for tensor in tensors]
