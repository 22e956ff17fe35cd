"""Softmax attention of query rows over one block of keys, with its log-sum-exp.

The kernels are torch's: the aten flash-attention operators, which exist on CPU (any floating dtype) and on
CUDA (half precision), return the log-sum-exp, and in backward take the log-sum-exp and output of the *whole*
row, so that a row's blocks may be differentiated one by one (FlashAttention-2, arXiv 2307.08691, section 3.1).
Elsewhere the plain formula serves.

All tensors here are [b, heads, tokens, d]; keys and values may have fewer heads (grouped queries).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

_aten = torch.ops.aten


@dataclass(frozen=True)
class Block:
    """Attention of some query rows over one block of keys.

    Attributes:
        output: [b, a, q, d], normalised over this block alone.
        log_sum_exp: [b, a, q] of the scaled scores, fp32 (fp64 for fp64 inputs); -inf where a row sees no key.
        kernel_state: what the same kernel's backward wants besides (CUDA random state), empty on CPU.
    """

    output: Tensor
    log_sum_exp: Tensor
    kernel_state: tuple[Any, ...] = ()


def attend(query: Tensor, key: Tensor, value: Tensor, scale: float, causal: bool) -> Block:
    """Attention over one block, not differentiable; `causal` needs as many keys as queries."""
    if query.device.type == "cpu":
        return Block(*_aten._scaled_dot_product_flash_attention_for_cpu(query, key, value, 0.0, causal, scale=scale))
    if _has_cuda_flash(query):
        output, lse, *state = _aten._scaled_dot_product_flash_attention(query, key, value, 0.0, causal, scale=scale)
        return Block(output, lse, tuple(state[:6]))
    return _attend_plain(query, key, value, scale, causal)


def attend_backward(
    grad: Tensor, query: Tensor, key: Tensor, value: Tensor, whole: Block, scale: float, causal: bool
) -> tuple[Tensor, Tensor, Tensor]:
    """Gradients of query, key and value through one block.

    `whole` holds the output and log-sum-exp of the complete rows, all blocks merged.
    """
    if query.device.type == "cpu":
        return _aten._scaled_dot_product_flash_attention_for_cpu_backward(
            grad, query, key, value, whole.output, whole.log_sum_exp, 0.0, causal, scale=scale
        )
    if _has_cuda_flash(query):
        cum_q, cum_k, max_q, max_k, seed, offset = whole.kernel_state or _no_state(query, key)
        return _aten._scaled_dot_product_flash_attention_backward(
            grad,
            query,
            key,
            value,
            whole.output,
            whole.log_sum_exp.contiguous(),  # read without strides (pytorch's flash_api.cpp): some rows may be a view
            cum_q,
            cum_k,
            max_q,
            max_k,
            0.0,
            causal,
            seed,
            offset,
            scale=scale,
        )
    return _attend_plain_backward(grad, query, key, value, whole, scale, causal)


def _has_cuda_flash(query: Tensor) -> bool:
    return query.dtype in (torch.float16, torch.bfloat16) and query.shape[-1] % 8 == 0 and query.shape[-1] <= 256


def _no_state(query: Tensor, key: Tensor) -> tuple[Any, ...]:
    """The kernel's extra arguments when there is neither dropout nor packing."""
    nothing = torch.empty(0, dtype=torch.uint64, device=query.device)
    return None, None, query.shape[2], key.shape[2], nothing, nothing


def _scores(query: Tensor, key: Tensor, scale: float, causal: bool) -> Tensor:
    scores = torch.matmul(query, _repeat_heads(key, query).transpose(-1, -2)) * scale
    if causal:
        hidden = torch.ones(scores.shape[-2:], dtype=torch.bool, device=scores.device).triu(1)
        scores = scores.masked_fill(hidden, float("-inf"))
    return scores


def _attend_plain(query: Tensor, key: Tensor, value: Tensor, scale: float, causal: bool) -> Block:
    precise = torch.promote_types(query.dtype, torch.float32)
    scores = _scores(query.to(precise), key.to(precise), scale, causal)
    output = torch.matmul(scores.softmax(-1), _repeat_heads(value, query).to(precise))
    return Block(output.to(query.dtype), scores.logsumexp(-1))


def _attend_plain_backward(
    grad: Tensor, query: Tensor, key: Tensor, value: Tensor, whole: Block, scale: float, causal: bool
) -> tuple[Tensor, Tensor, Tensor]:
    precise = torch.promote_types(query.dtype, torch.float32)
    q, k, v, g = (tensor.to(precise) for tensor in (query, key, value, grad))
    probs = (_scores(q, k, scale, causal) - whole.log_sum_exp.unsqueeze(-1)).exp()
    row_dots = (g * whole.output.to(precise)).sum(-1, keepdim=True)
    scores_grad = probs * (g @ _repeat_heads(v, q).transpose(-1, -2) - row_dots) * scale
    query_grad = scores_grad @ _repeat_heads(k, q)
    key_grad = _sum_heads(scores_grad.transpose(-1, -2) @ q, key)
    value_grad = _sum_heads(probs.transpose(-1, -2) @ g, value)
    return query_grad.to(query.dtype), key_grad.to(key.dtype), value_grad.to(value.dtype)


def _repeat_heads(tensor: Tensor, query: Tensor) -> Tensor:
    """Each key head for the contiguous run of query heads that share it."""
    return tensor.repeat_interleave(query.shape[1] // tensor.shape[1], dim=1)


def _sum_heads(repeated_grad: Tensor, tensor: Tensor) -> Tensor:
    return repeated_grad.unflatten(1, (tensor.shape[1], -1)).sum(2)
