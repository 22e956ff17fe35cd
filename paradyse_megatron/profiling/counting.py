"""Counts what code does on fake tensors, operation by operation: memory, arithmetic, memory traffic, messages."""

from __future__ import annotations

import weakref
from collections import defaultdict
from dataclasses import dataclass, field
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch._subclasses.fake_tensor import DataDependentOutputException
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

FLASH_BACKWARD = 2.5
"""Arithmetic of flash attention's backward over its forward's: five products instead of two (arXiv 2307.08691)."""

_PRODUCTS = {"mm": (0, 1), "addmm": (1, 2), "addmm_": (1, 2), "bmm": (0, 1), "baddbmm": (1, 2)}
_ALLOCATIONS = {"empty", "new_empty", "empty_like", "empty_strided", "new_empty_strided"}
_KINDS = {
    "_allgather_base_": "gather",
    "_reduce_scatter_base_": "gather",
    "allreduce_": "gather",
    "alltoall_base_": "exchange",
    "send": "hop",
    "broadcast_": "broadcast",
    "reduce_": "broadcast",
}


@dataclass
class Sent:
    """What left this rank in collectives of one kind."""

    elements: int = 0
    num_bytes: int = 0
    calls: int = 0


@dataclass
class Part:
    """What was done between two moments.

    Attributes:
        held_bytes: bytes in existence after each operation.
        product_flops: of matrix products.
        attention_flops: of attention kernels, causal pairs only.
        product_bytes: read and written by matrix products and attention kernels.
        moved_bytes: read and written by all other kernels.
        kernels: operations that read or write memory.
        sent: by kind: gather (with reduce-scatter), exchange, hop, broadcast (with reduce).
    """

    held_bytes: list[int] = field(default_factory=list)
    product_flops: int = 0
    attention_flops: int = 0
    product_bytes: int = 0
    moved_bytes: int = 0
    kernels: int = 0
    sent: dict[str, Sent] = field(default_factory=lambda: defaultdict(Sent))


class Counter(TorchDispatchMode):
    """Enter it inside a `FakeTensorMode`. What is done after `begin` is counted in the part that it returns.

    Args:
        balanced: the number that code gets which asks a fake tensor for its value, which routers of experts do.
    """

    def __init__(self, balanced: int = 0):
        super().__init__()
        self.balanced = balanced
        self.held_bytes = 0
        self._sizes: dict[int, int] = {}
        self._references: dict[int, weakref.ref[torch.UntypedStorage]] = {}
        self._part = Part()

    def begin(self) -> Part:
        """A new part, into which everything is counted from now on."""
        self._part = Part()
        return self._part

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = func.__name__.split(".")[0]
        if name == "_local_scalar_dense":
            return self._value(func, args)
        results = func(*args, **(kwargs or {}))
        outputs = [leaf for leaf in tree_leaves(results) if isinstance(leaf, Tensor)]
        for tensor in outputs:
            self._notice(tensor)
        self._part.held_bytes.append(self.held_bytes)
        if func.namespace == "c10d":
            self._count_message(name, args)
        elif not func.is_view and name not in _ALLOCATIONS:
            inputs = [leaf for leaf in tree_leaves((args, kwargs or {})) if isinstance(leaf, Tensor)]
            self._count_kernel(func, name, args, inputs, outputs)
        return results

    def _value(self, func: Any, args: Any) -> Any:
        """Of a constant, which fake tensors remember, what it is; of anything else, `balanced`."""
        try:
            return func(*args)
        except DataDependentOutputException:
            return self.balanced

    def _notice(self, tensor: Tensor) -> None:
        """Count a storage when it is first seen, and again when it has been resized; until nothing refers to it."""
        storage = tensor.untyped_storage()
        key, num_bytes = id(storage), storage.nbytes()
        if key not in self._references:
            self._references[key] = weakref.ref(storage, lambda _: self._forget(key))
        self.held_bytes += num_bytes - self._sizes.get(key, 0)
        self._sizes[key] = num_bytes

    def _forget(self, key: int) -> None:
        del self._references[key]
        self.held_bytes -= self._sizes.pop(key)

    def _count_kernel(self, func: Any, name: str, args: Any, inputs: list[Tensor], outputs: list[Tensor]) -> None:
        held = {id(tensor.untyped_storage()) for tensor in inputs}
        if not func._schema.is_mutable and all(id(tensor.untyped_storage()) in held for tensor in outputs):
            return
        part = self._part
        part.kernels += 1
        num_bytes = sum(_touched_bytes(tensor) for tensor in (*inputs, *outputs))
        if name in _PRODUCTS:
            left, right = (args[index] for index in _PRODUCTS[name])
            part.product_flops += 2 * left.numel() * right.shape[-1]
            part.product_bytes += num_bytes
        elif name.startswith("_scaled_dot_product_flash_attention"):
            part.attention_flops += _attention_flops(name, args)
            part.product_bytes += num_bytes
        else:
            part.moved_bytes += num_bytes

    def _count_message(self, name: str, args: Any) -> None:
        if name not in _KINDS:
            assert name in ("recv_", "barrier"), f"an unexpected collective: {name}"
            return
        tensor, num_elements = _sent(name, args)
        sent = self._part.sent[_KINDS[name]]
        sent.elements += num_elements
        sent.num_bytes += num_elements * tensor.element_size()
        sent.calls += 1


def _touched_bytes(tensor: Tensor) -> int:
    """Of a view only what it shows; of an expanded tensor what there is."""
    return min(tensor.numel() * tensor.element_size(), tensor.untyped_storage().nbytes())


def _attention_flops(name: str, args: Any) -> int:
    is_backward = name.endswith("_backward")
    query, key = args[1:3] if is_backward else args[:2]
    causal = args[7] if is_backward else args[4] if len(args) > 4 else False
    batch, heads, num_queries, head_dim = query.shape
    flops = 4 * batch * heads * head_dim * num_queries * key.shape[2] // (2 if causal else 1)
    return int(FLASH_BACKWARD * flops) if is_backward else flops


def _sent(name: str, args: Any) -> tuple[Tensor, int]:
    """A tensor of a message, and the elements of it that leave this rank."""
    if name == "send":
        return args[0][0], args[0][0].numel()
    others, rank = dist.get_world_size() - 1, dist.get_rank()
    if name == "_allgather_base_":
        return args[1], args[1].numel() * others
    if name == "_reduce_scatter_base_":
        return args[0], args[0].numel() * others
    if name == "allreduce_":
        return args[0][0], 2 * args[0][0].numel() * others // (others + 1)
    if name == "alltoall_base_":
        rows, splits = args[1], args[4]
        own = rows.numel() // (others + 1) if not splits else splits[rank] * (rows.numel() // max(1, rows.shape[0]))
        return rows, rows.numel() - own
    tensor = args[0][0]
    is_owner = args[2 if name == "broadcast_" else 3] == rank
    return tensor, tensor.numel() * (others * is_owner if name == "broadcast_" else not is_owner)
