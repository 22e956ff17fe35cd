"""Partial attention results of the same query rows over different keys become one.

With blocks (o1, l1) and (o2, l2) of output and log-sum-exp: l = log(e^l1 + e^l2), o = o1 e^(l1-l) + o2 e^(l2-l)
(FlashAttention, arXiv 2205.14135, algorithm 1; ring attention, arXiv 2310.01889). Only differences of
log-sum-exps are exponentiated, and those are never positive: nothing overflows.
"""

from __future__ import annotations

import torch
from torch import Tensor


def accumulator_dtype(dtype: torch.dtype) -> torch.dtype:
    """fp32 for half precision, so that the error does not grow with the number of blocks; else the dtype itself."""
    return torch.promote_types(dtype, torch.float32)


def merge_block_(output: Tensor, log_sum_exp: Tensor, block_output: Tensor, block_log_sum_exp: Tensor) -> None:
    """Add one block to the running result, in place.

    Shapes: outputs [b, a, q, d], log-sum-exps [b, a, q]; `output` in `accumulator_dtype`. A row that saw no key so
    far has -inf and contributes nothing, on either side or on both.
    """
    merged = torch.logaddexp(log_sum_exp, block_log_sum_exp)
    output.mul_(_weight(log_sum_exp, merged)).add_(block_output.to(output.dtype) * _weight(block_log_sum_exp, merged))
    log_sum_exp.copy_(merged)


def _weight(part: Tensor, merged: Tensor) -> Tensor:
    """e^(part - merged) as [b, a, q, 1], exactly zero for a part without keys."""
    return torch.where(part == float("-inf"), 0.0, (part - merged).exp()).unsqueeze(-1)
