"""Executors that move one end of a conversion in one pass over memory: what host and GPU have in common.

Byte for byte what `comm.permutes` gives. Tensors that a kernel cannot reach are left to that one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from torch import Tensor

from paradyse_megatron.comm import permutes
from paradyse_megatron.comm.rotary import Rotation, Turning, nested, turning
from paradyse_megatron.comm.tables import is_section, table_of, table_of_copy
from paradyse_megatron.layouts.conversion import Layout

Move = Callable[[bytes, Sequence[Tensor], Tensor, bool, Turning | None], None]
"""(table of sections, tensors, wire, whether to the wire, how some are rotated): moves all sections."""


@dataclass(frozen=True)
class OnePass:
    """An `executors.Executor` around one kernel.

    Attributes:
        reaches: whether the kernel can work on a tensor.
        move: the kernel.
        fresh: a new tensor of this shape, of the kind of another, that is about to be filled.
    """

    reaches: Callable[[Tensor], bool]
    move: Move
    fresh: Callable[[tuple[int, ...], Tensor], Tensor]

    def pack(self, tensors: Sequence[Tensor], layout: Layout, rank: int, rotation: Rotation | None = None) -> Tensor:
        """As `permutes.pack`."""
        if not all(map(self.reaches, tensors)):
            return permutes.pack(tensors, layout, rank, rotation)
        tensors = [tensor if tensor.stride(-1) == 1 else tensor.contiguous() for tensor in tensors]
        shape = (sum(layout.blocks_per_peer(rank)), layout.block_elements)
        if rotation is not None:
            return self._rotated(tensors, layout, rank, rotation, self.fresh(shape, tensors[0]))
        sections = table_of(layout, rank, tuple(tensor.stride() for tensor in tensors))
        if sections is None:
            return tensors[0].reshape(shape)
        wire = self.fresh(shape, tensors[0])
        self.move(sections, tensors, wire, True, None)
        return wire

    def _rotated(
        self, tensors: Sequence[Tensor], layout: Layout, rank: int, rotation: Rotation, wire: Tensor
    ) -> Tensor:
        tensors = list(map(nested, tensors))
        strides = tuple(tensor.stride() for tensor in tensors)
        sections, how = turning(rotation, layout, rank, strides, wire.dtype)
        self.move(sections, tensors, wire, True, how)
        return wire

    def unpack(self, wire: Tensor, layout: Layout, rank: int) -> tuple[Tensor, ...]:
        """As `permutes.unpack`."""
        if layout.is_view(rank) or not self.reaches(wire):
            return permutes.unpack(wire, layout, rank)
        outputs = tuple(self.fresh(shape, wire) for shape in layout.shapes)
        sections = table_of(layout, rank, tuple(output.stride() for output in outputs))
        if sections is None:
            return (wire.view(layout.shapes[0]),)
        self.move(sections, outputs, wire, False, None)
        return outputs

    def copy_(self, target: Tensor, source: Tensor) -> None:
        """As `target.copy_(source)` of two tensors of one shape and type."""
        if not (self.reaches(target) and self.reaches(source)) or not is_section(target, source):
            target.copy_(source)
            return
        sections = table_of_copy(tuple(target.shape), target.stride(), source.stride())
        self.move(sections, (source,), target, True, None)

    def empty(self, shape: tuple[int, ...], like: Tensor) -> Tensor:
        """A fresh tensor that is about to be filled."""
        return self.fresh(shape, like)
