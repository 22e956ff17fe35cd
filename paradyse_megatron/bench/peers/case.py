"""What attention is computed of: random queries, keys and values, the share of a rank, and the true result."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from paradyse_megatron.layouts.zigzag import zigzag_positions
from paradyse_megatron.strategies.attention.geometry import Geometry

Triple = tuple[Tensor, Tensor, Tensor]
"""Query [s, b, a, d], key and value [s, b, g, d], or their gradients."""


@dataclass(frozen=True)
class Case:
    """A shape.

    Attributes:
        num_heads, num_groups, head_dim: of queries, of keys and values, and the size of each.
        seq_length: tokens of all ranks together.
        batch: sequences.
    """

    num_heads: int
    num_groups: int
    head_dim: int
    seq_length: int
    batch: int = 1

    @property
    def name(self) -> str:
        """For tables."""
        return f"a={self.num_heads} g={self.num_groups} d={self.head_dim} s={self.seq_length}"

    @property
    def geometry(self) -> Geometry:
        """As strategies want it."""
        return Geometry(self.num_heads, self.num_groups, self.head_dim, 1 / math.sqrt(self.head_dim))


@dataclass(frozen=True)
class Data:
    """Of a case, whole, the same on every rank.

    Attributes:
        inputs: query, key, value, fp32.
        output_grad: what comes back to the output, [s, b, a, d].
        output: the true result, fp64.
        input_grads: the true gradients, fp64.
    """

    inputs: Triple
    output_grad: Tensor
    output: Tensor
    input_grads: Triple


def make_data(case: Case, seed: int = 0) -> Data:
    """Random inputs, and what one process in fp64 makes of them."""
    draw = torch.Generator().manual_seed(seed)
    heads = (case.num_heads, case.num_groups, case.num_groups, case.num_heads)
    query, key, value, grad = (
        torch.randn(case.seq_length, case.batch, each, case.head_dim, generator=draw) for each in heads
    )
    leaves = [tensor.double().permute(1, 2, 0, 3).requires_grad_() for tensor in (query, key, value)]
    grouped = case.num_groups != case.num_heads
    q, k, v = leaves
    whole = F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=grouped)
    grads = torch.autograd.grad(whole, leaves, grad.double().permute(1, 2, 0, 3))
    query_grad, key_grad, value_grad = (each.permute(2, 0, 1, 3) for each in grads)
    truth = whole.detach().permute(2, 0, 1, 3)
    return Data((query, key, value), grad, truth, (query_grad, key_grad, value_grad))


def tokens_of(rank: int, num_ranks: int, seq_length: int, zigzag: bool) -> Tensor:
    """Global positions that a rank holds, in contiguous or in zigzag order."""
    if zigzag:
        return torch.from_numpy(zigzag_positions(rank, num_ranks, seq_length))
    share = seq_length // num_ranks
    return torch.arange(rank * share, (rank + 1) * share)


def distance(found: Tensor, truth: Tensor) -> float:
    """Relative L2."""
    return float(torch.linalg.vector_norm(found.double() - truth) / torch.linalg.vector_norm(truth))
