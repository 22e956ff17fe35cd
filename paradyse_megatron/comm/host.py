"""The `host` executor: packs and unpacks on CPUs in one pass over memory, in C++ (`csrc/kernels/host.cpp`).

Large tensors are made of memory that earlier ones left (`csrc/kernels/buffers.h`). Tensors elsewhere, and fake ones,
are left to `comm.permutes`.
"""

from __future__ import annotations

import functools
import importlib
import math
import os
from collections.abc import Sequence
from types import ModuleType

import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensor

from paradyse_megatron.comm.launch import UNROTATED
from paradyse_megatron.comm.one_pass import OnePass
from paradyse_megatron.comm.rotary import Turning
from paradyse_megatron.comm.tables import table_of
from paradyse_megatron.layouts.conversion import Layout

_LARGE_BYTES = 4 << 20
"""Memory of this size comes fresh from the system each time, so the extension keeps what is let go for the next use."""

_GIVES_BACK = "MALLOC_MMAP_THRESHOLD_" in os.environ
"""Not so where the C library was told to give memory back at once (`cpu.memory.EXACT`)."""


@functools.cache
def extension() -> ModuleType | str:
    """The compiled module, or why there is none."""
    try:
        return importlib.import_module("paradyse_megatron.comm._host")
    except ImportError as error:
        return f"the C++ extension of layout conversions is not there ({error}); install the package with a compiler"


def move(layout: Layout, rank: int, tensors: Sequence[Tensor], wire: Tensor, to_wire: bool) -> None:
    """Between tensors and buffer that are there, if anything has to move."""
    sections = table_of(layout, rank, tuple(tensor.stride() for tensor in tensors))
    if sections is not None:
        _move(sections, tensors, wire, to_wire, None)


def _built() -> ModuleType:
    module = extension()
    assert isinstance(module, ModuleType), module
    return module


def _is_here(tensor: Tensor) -> bool:
    return tensor.device.type == "cpu" and not isinstance(tensor, FakeTensor)


def _move(sections: bytes, tensors: Sequence[Tensor], wire: Tensor, to_wire: bool, how: Turning | None) -> None:
    number = str(wire.dtype).removeprefix("torch.")
    addresses = [tensor.data_ptr() for tensor in tensors]
    rotary = UNROTATED if how is None else how.rotary()
    turning = rotary.packed(range(len(rotary.places)))
    _built().move(
        sections, addresses, wire.data_ptr(), to_wire, wire.element_size(), number, torch.get_num_threads(), turning
    )  # fmt: skip


def _fresh(shape: tuple[int, ...], like: Tensor) -> Tensor:
    num_elements = math.prod(shape)
    if _GIVES_BACK or num_elements * like.element_size() < _LARGE_BYTES or not _is_here(like):
        return like.new_empty(shape)
    try:
        buffer = _built().Buffer(num_elements * like.element_size())
    except MemoryError:
        return like.new_empty(shape)  # torch says what is missing
    return torch.frombuffer(buffer, dtype=like.dtype, count=num_elements).view(shape)


executor = OnePass(_is_here, _move, _fresh)
pack, unpack, copy_, empty = executor.pack, executor.unpack, executor.copy_, executor.empty
