"""The `host` executor: packs and unpacks on CPUs in one pass over memory, in C++ (`csrc/kernels/host.cpp`).

Byte for byte what `comm.permutes` gives. Tensors elsewhere, and fake ones, are left to that one.
"""

from __future__ import annotations

import functools
import importlib
from collections.abc import Sequence
from types import ModuleType

import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensor

from paradyse_megatron.comm import permutes
from paradyse_megatron.layouts.conversion import Layout
from paradyse_megatron.layouts.section import Axes, Section, Strides, is_whole, table

_HUGE_BYTES = 4 << 20
"""Buffers of this size come fresh from the system, so it is told to map them in large pages."""

_MAX_DIMS = len(Axes._fields) + 1


@functools.cache
def extension() -> ModuleType | str:
    """The compiled module, or why there is none."""
    try:
        return importlib.import_module("paradyse_megatron.comm._host")
    except ImportError as error:
        return f"the C++ extension of layout conversions is not there ({error}); install the package with a compiler"


def pack(tensors: Sequence[Tensor], layout: Layout, rank: int) -> Tensor:
    """As `permutes.pack`."""
    if not all(map(_is_here, tensors)):
        return permutes.pack(tensors, layout, rank)
    tensors = [tensor if tensor.stride(-1) == 1 else tensor.contiguous() for tensor in tensors]
    sections = _table(layout, rank, tuple(tensor.stride() for tensor in tensors))
    shape = (sum(layout.blocks_per_peer(rank)), layout.block_elements)
    if sections is None:
        return tensors[0].reshape(shape)
    wire = empty(shape, tensors[0])
    _move(sections, tensors, wire, to_wire=True)
    return wire


def move(layout: Layout, rank: int, tensors: Sequence[Tensor], wire: Tensor, to_wire: bool) -> None:
    """Between tensors and buffer that are there, if anything has to move."""
    sections = _table(layout, rank, tuple(tensor.stride() for tensor in tensors))
    if sections is not None:
        _move(sections, tensors, wire, to_wire)


def unpack(wire: Tensor, layout: Layout, rank: int) -> tuple[Tensor, ...]:
    """As `permutes.unpack`."""
    if layout.is_view(rank) or not _is_here(wire):
        return permutes.unpack(wire, layout, rank)
    outputs = tuple(empty(shape, wire) for shape in layout.shapes)
    sections = _table(layout, rank, tuple(output.stride() for output in outputs))
    if sections is None:
        return (wire.view(layout.shapes[0]),)
    _move(sections, outputs, wire, to_wire=False)
    return outputs


def copy_(target: Tensor, source: Tensor) -> None:
    """As `target.copy_(source)` of two tensors of one shape and type."""
    if not (_is_here(target) and _is_here(source)) or not _has_pieces(target, source):
        target.copy_(source)
        return
    sections = _table_of_copy(tuple(target.shape), target.stride(), source.stride())
    _move(sections, (source,), target, to_wire=True)


def empty(shape: tuple[int, ...], like: Tensor) -> Tensor:
    """A fresh tensor that is about to be filled."""
    fresh = like.new_empty(shape)
    if fresh.nbytes >= _HUGE_BYTES and _is_here(fresh):
        _built().expect_filling(fresh.data_ptr(), fresh.nbytes)
    return fresh


def _built() -> ModuleType:
    module = extension()
    assert isinstance(module, ModuleType), module
    return module


def _is_here(tensor: Tensor) -> bool:
    return tensor.device.type == "cpu" and not isinstance(tensor, FakeTensor)


def _has_pieces(target: Tensor, source: Tensor) -> bool:
    """Whether elements lie together and the other dimensions are no more than a section has axes."""
    return (
        target.dtype == source.dtype
        and 0 < target.dim() <= _MAX_DIMS
        and target.numel() > 0
        and target.stride(-1) == source.stride(-1) == 1
    )


@functools.lru_cache(maxsize=256)
def _table(layout: Layout, rank: int, strides: tuple[Strides, ...]) -> bytes | None:
    """The sections for the extension; None if nothing has to move."""
    sections = layout.sections(rank, strides)
    return None if is_whole(sections) else table(sections)


@functools.lru_cache(maxsize=256)
def _table_of_copy(shape: tuple[int, ...], target: Strides, source: Strides) -> bytes:
    outer = len(shape) - 1
    ones, zeros = (1,) * (_MAX_DIMS - 1 - outer), (0,) * (_MAX_DIMS - 1 - outer)
    extents, local, wire = (Axes(*numbers) for numbers in (
        (*ones, *shape[:outer]), (*zeros, *source[:outer]), (*zeros, *target[:outer])
    ))  # fmt: skip
    return table([Section(0, shape[-1], extents, local, wire).merged()])


def _move(sections: bytes, tensors: Sequence[Tensor], wire: Tensor, to_wire: bool) -> None:
    number = str(wire.dtype).removeprefix("torch.")
    addresses = [tensor.data_ptr() for tensor in tensors]
    _built().move(
        sections, addresses, wire.data_ptr(), to_wire, wire.element_size(), number, torch.get_num_threads()
    )  # fmt: skip
