"""Nested runs: maps between places of two buffers that are affine along each of a few axes, and how to chain them.

What a section says of one tensor is such a map from places in the wire to places in the tensor. Two of them, at either
end of the wire, chain to one from tensor to tensor that knows nothing of a wire.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import NamedTuple

from paradyse_megatron.layouts.section import Section


class Axis(NamedTuple):
    """`extent` places, `key` apart in one buffer and `value` apart in the other."""

    extent: int
    key: int
    value: int


@dataclass(frozen=True)
class Nested:
    """Places in a buffer, the keys, and for each a place in another, its value.

    Attributes:
        key, value: of the first element.
        axes: outermost first, by key; what is inside an axis is no longer than its step.
    """

    key: int
    value: int
    axes: tuple[Axis, ...]

    @property
    def span(self) -> int:
        """Elements from the first key to the last one, both included."""
        return 1 + sum((axis.extent - 1) * axis.key for axis in self.axes)

    def cut(self, step: int) -> Nested:
        """The same with an outermost axis of this key step, which is no smaller than its own."""
        if self.axes and self.axes[0].key == step:
            return self
        if self.key % step + self.span <= step:
            return replace(self, axes=(Axis(1, step, 0), *self.axes))
        extent, key, value = self.axes[0]
        assert self.key % step == 0 and step % key == 0 and extent * key % step == 0, f"{self} cut at {step}"
        inner = step // key
        return replace(self, axes=(Axis(extent // inner, step, value * inner), Axis(inner, key, value), *self.axes[1:]))

    def inside(self, step: int, index: int) -> Nested:
        """What is at an index of the outermost axis, keys counted from that axis' last multiple."""
        assert self.key % step + replace(self, axes=self.axes[1:]).span <= step, f"{self} crosses a multiple of {step}"
        return Nested(self.key % step, self.value + index * self.axes[0].value, self.axes[1:])


def of_section(section: Section) -> Nested:
    """From places in the wire to places in the tensor."""
    axes = [Axis(*axis) for axis in zip(section.extents, section.wire, section.local, strict=True) if axis[0] > 1]
    elements = [Axis(section.width, 1, 1)] if section.width > 1 else []
    return Nested(section.wire_start, section.local_start, (*axes, *elements))


def window(first: int, length: int) -> Nested:
    """A range of places, each to its place in the range."""
    return Nested(first, 0, (Axis(length, 1, 1),))


def chained(one: Nested, other: Nested) -> Nested | None:
    """From the values of `one` to those of `other`, where they have a key in common; None if there is none.

    The axes stay in the order of the keys, so those of the result are neither sorted nor nested by its own.
    """
    if not one.axes and not other.axes:
        return Nested(one.value, other.value, ()) if one.key == other.key else None
    step = max(run.axes[0].key for run in (one, other) if run.axes)
    one, other = (run.cut(step) for run in (one, other))
    first_of_one, first_of_other = one.key // step, other.key // step
    first = max(first_of_one, first_of_other)
    stop = min(first_of_one + one.axes[0].extent, first_of_other + other.axes[0].extent)
    if first >= stop:
        return None
    inner = chained(one.inside(step, first - first_of_one), other.inside(step, first - first_of_other))
    if inner is None:
        return None
    if stop - first == 1:
        return inner
    return replace(inner, axes=(Axis(stop - first, one.axes[0].value, other.axes[0].value), *inner.axes))
