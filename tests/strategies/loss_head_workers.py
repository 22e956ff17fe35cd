"""The chunked loss head against torch's and Megatron's cross entropy. Run by hand: see `tests.ranks`."""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from paradyse_megatron.strategies.loss_head import chunked_cross_entropy

HIDDEN, COLUMNS = 12, 10
"""h, and columns of the vocabulary on each rank."""


@dataclass(frozen=True)
class Case:
    """One call of the head.

    Attributes:
        rows: of each rank's shard.
        batch: sequences.
        chunk_rows: rows in a chunk; None for the default.
        labels: "any", "first" or "last" (all among that rank's columns), or "some" (about half are -100).
        gradient: "weighted", "sum" (expanded), or "transposed" (not contiguous).
        scale: of the logits.
        strided: whether the hidden state is a view that is not contiguous.
    """

    rows: int
    batch: int
    chunk_rows: int | None
    labels: str = "any"
    gradient: str = "weighted"
    scale: float = 1.0
    strided: bool = False


CASES = [
    Case(7, 1, 3),
    Case(7, 3, 3),
    Case(5, 3, 1),
    Case(1, 1, 1),
    Case(6, 1, 6),
    Case(6, 2, 2),
    Case(9, 2, None),
    Case(7, 3, 2, gradient="sum"),
    Case(7, 3, 2, gradient="transposed"),
    Case(7, 3, 4, strided=True),
    Case(5, 2, 2, labels="first"),
    Case(5, 2, 2, labels="last"),
    Case(5, 2, 2, labels="some"),
    Case(5, 2, 2, scale=1e4),
    Case(5, 2, 2, scale=1e4, labels="last"),
    Case(5, 2, 2, scale=1e-8),
]


def errors() -> dict[str, float]:
    """Largest relative error of losses and gradients against torch on one device, in fp64, by case and tensor."""
    found = {}
    for case in CASES:
        whole = _inputs(case, torch.float64)
        expected = _whole_head(case, *whole)
        ours = _chunked_head(case, *_own(case, *whole))
        found |= {f"{case} {name}": _error(ours[name], _own_part(name, expected[name])) for name in expected}
    return found


def further() -> dict[str, dict]:
    """All of the functions below, in one launch."""
    return {
        check.__name__: check()
        for check in (
            errors_against_megatron,
            half_precision_errors,
            large_logit_errors,
            largest_tensors,
            particular_uses,
        )
    }


def errors_against_megatron() -> dict[str, float]:
    """The same in fp32 against `vocab_parallel_cross_entropy`, ignored labels and their losses included."""
    from megatron.core.tensor_parallel.cross_entropy import vocab_parallel_cross_entropy

    group, found = dist.group.WORLD, {}
    for case in CASES:
        hidden, weight, labels = _inputs(case, torch.float32)
        own_hidden, own_weight, _ = _own(case, hidden, weight, labels)
        hidden = hidden.detach().requires_grad_()
        losses = vocab_parallel_cross_entropy(hidden @ own_weight.t(), labels.t().contiguous(), tp_group=group).t()
        _backward(case, losses)
        dist.all_reduce(hidden.grad)
        expected = {"losses": losses.detach(), "hidden": _own_part("hidden", hidden.grad), "weight": own_weight.grad}
        own_weight = own_weight.detach().clone().requires_grad_()
        ours = _chunked_head(case, own_hidden, own_weight, labels)
        found |= {f"{case} {name}": _error(ours[name], expected[name]) for name in expected}
    return found


def half_precision_errors() -> dict[str, tuple[float, float]]:
    """Of bf16 against fp64, with eight chunks and with one: what chunking adds to rounding."""
    chunked, whole = (Case(64, 2, rows) for rows in (8, 64))
    inputs = _inputs(chunked, torch.bfloat16)
    exact = _whole_head(whole, *(tensor.double() if tensor.is_floating_point() else tensor for tensor in inputs))
    found = [_chunked_head(case, *_own(case, *inputs)) for case in (chunked, whole)]
    return {name: tuple(_error(each[name], _own_part(name, exact[name])) for each in found) for name in exact}


def large_logit_errors() -> dict[str, float]:
    """Of fp32 against fp64 where all logits are 20,000 and a small whole number, so exact in both."""
    case = Case(7, 2, 3)
    hidden, weight, labels = _inputs(case, torch.float64)
    hidden, weight = hidden.sign(), weight.sign()
    hidden[..., 0], weight[:, 0] = 100, 200
    exact = _whole_head(case, hidden, weight, labels)
    ours = _chunked_head(case, *_own(case, hidden.float(), weight.float(), labels))
    return {name: _error(ours[name], _own_part(name, exact[name])) for name in exact}


def largest_tensors() -> dict[str, int]:
    """Elements of the largest tensor that an operation returned, and of what must not be there."""
    case = Case(60, 2, 4)
    hidden, weight, labels = _own(case, *_inputs(case, torch.float32))
    watch = _Largest()
    with watch:
        chunked_cross_entropy(hidden, weight, labels, dist.group.WORLD, case.chunk_rows).sum().backward()
    tokens = case.rows * case.batch * dist.get_world_size()
    return {
        "largest": watch.num_elements,
        "operations": watch.num_operations,
        "shard": hidden.numel(),
        "all tokens x h": tokens * HIDDEN,
        "all logits": tokens * COLUMNS,
    }


def particular_uses() -> dict[str, bool]:
    """Whether these are right: frozen tensors, evaluation, Megatron's flag on the weight, a rank's logits all -inf."""
    case = Case(5, 2, 2)
    hidden, weight, labels = _own(case, *_inputs(case, torch.float64))
    both = _chunked_head(case, hidden, weight, labels)
    frozen = _chunked_head(case, hidden, weight.detach(), labels)
    weight_only = _chunked_head(case, hidden.detach(), weight, labels)
    weight.grad_added_to_main_grad = True
    flagged = _chunked_head(case, hidden, weight, labels)
    with torch.no_grad():
        losses = chunked_cross_entropy(hidden, weight, labels, dist.group.WORLD, 2)
        of_rank_0 = weight if dist.get_rank() == 0 else torch.full_like(weight, -torch.inf)
        finite = chunked_cross_entropy(hidden.abs(), of_rank_0, labels % COLUMNS, dist.group.WORLD, 2)
    return {
        "frozen weight": frozen["weight"] is None and torch.equal(frozen["hidden"], both["hidden"]),
        "hidden without gradient": weight_only["hidden"] is None and torch.equal(weight_only["weight"], both["weight"]),
        "flag": weight.grad_added_to_main_grad is False and torch.equal(flagged["weight"], both["weight"]),
        "infinities": bool(finite.isfinite().all()),
        "evaluation": torch.equal(losses, both["losses"]) and not losses.requires_grad,
    }


class _Largest(TorchDispatchMode):
    num_elements = num_operations = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        result = func(*args, **(kwargs or {}))
        tensors = [leaf for leaf in tree_leaves(result) if isinstance(leaf, Tensor)]
        self.num_elements = max(
            [self.num_elements, *(tensor.untyped_storage().nbytes() // tensor.itemsize for tensor in tensors)]
        )
        self.num_operations += 1
        return result


def _inputs(case: Case, dtype: torch.dtype) -> tuple[Tensor, Tensor, Tensor]:
    """Of the unsharded head: hidden [s, b, h], weight [V, h], labels [b, s]."""
    num_ranks = dist.get_world_size()
    generator = torch.Generator().manual_seed(3)
    hidden = torch.randn(case.rows * num_ranks, case.batch, HIDDEN, generator=generator, dtype=torch.float64)
    weight = torch.randn(COLUMNS * num_ranks, HIDDEN, generator=generator, dtype=torch.float64)
    first, last = {"first": (0, COLUMNS), "last": (COLUMNS * (num_ranks - 1), COLUMNS * num_ranks)}.get(
        case.labels, (0, COLUMNS * num_ranks)
    )
    labels = torch.randint(first, last, (case.batch, case.rows * num_ranks), generator=generator)
    if case.labels == "some":
        labels = torch.where(torch.rand(labels.shape, generator=generator) < 0.5, -100, labels)
    return (case.scale * hidden).to(dtype), weight.to(dtype), labels


def _own(case: Case, hidden: Tensor, weight: Tensor, labels: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    own_hidden = _own_part("hidden", hidden).clone()
    if case.strided:
        own_hidden = own_hidden.transpose(0, 2).contiguous().transpose(0, 2)
    return own_hidden.requires_grad_(), _own_part("weight", weight).clone().requires_grad_(), labels


def _own_part(name: str, whole: Tensor) -> Tensor:
    return whole if name == "losses" else whole.chunk(dist.get_world_size())[dist.get_rank()]


def _whole_head(case: Case, hidden: Tensor, weight: Tensor, labels: Tensor) -> dict[str, Tensor]:
    hidden, weight = (tensor.detach().clone().requires_grad_() for tensor in (hidden, weight))
    losses = F.cross_entropy((hidden @ weight.t()).permute(1, 2, 0), labels, reduction="none")
    _backward(case, losses)
    return {"losses": losses.detach(), "hidden": hidden.grad, "weight": weight.grad}


def _chunked_head(case: Case, hidden: Tensor, weight: Tensor, labels: Tensor) -> dict[str, Tensor]:
    hidden.grad = weight.grad = None
    losses = chunked_cross_entropy(hidden, weight, labels, dist.group.WORLD, case.chunk_rows)
    _backward(case, losses)
    if case.labels == "some" and losses.dtype == torch.float64:
        losses = torch.where(labels < 0, 0.0, losses)  # torch gives 0 for an ignored label, Megatron and we do not
    return {"losses": losses.detach(), "hidden": hidden.grad, "weight": weight.grad}


def _backward(case: Case, losses: Tensor) -> None:
    """Every token weighs differently, and ignored ones nothing, unless the gradient is that of a plain sum."""
    if case.gradient == "sum":
        return losses.sum().backward()
    weights = torch.arange(losses.numel(), dtype=losses.dtype).sin().view(losses.shape[::-1]).t()
    if case.labels == "some":
        weights = weights * (_inputs(case, losses.dtype)[2] >= 0)
    losses.backward(weights if case.gradient == "transposed" else weights.contiguous())


def _error(found: Tensor, expected: Tensor) -> float:
    error = (found.double() - expected.double()).norm() / expected.double().norm().clamp_min(1e-30)
    return error.item() if error == error else float("inf")
