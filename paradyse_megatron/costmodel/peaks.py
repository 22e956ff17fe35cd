"""Measured peaks of memory beside traced bytes: what a run takes on top, and what has to be multiplied.

A measured peak is taken as overhead + factor x traced bytes, of each option its own. Bytes that are traced are there by
construction: the factor is at least 1. What messages hold on their way is not traced, and differs from one run to the
next: adding up over ranks takes scratch as large as the rank's part of what is added up (gloo's ring), and whether it
is there at the worst moment is a matter of time. So one such part comes on top of what was weighed: a plan that needs
more than predicted ends the run, one that needs less costs little.
"""

from __future__ import annotations

import statistics
from typing import NamedTuple

from paradyse_megatron.costmodel.measurements import Measurements
from paradyse_megatron.costmodel.model import CostModel
from paradyse_megatron.costmodel.polynomial import NOTHING, TOKENS, Polynomial
from paradyse_megatron.planner.cost import Cost
from paradyse_megatron.planner.memory import peak_bytes


class MemoryLine(NamedTuple):
    """Expected peak over traced bytes.

    Attributes:
        on_top: bytes, by length.
        factor: of what is traced.
    """

    on_top: Polynomial
    factor: float


def memory_line(option: str, traced: CostModel, found: Measurements, skip: int | None = None) -> MemoryLine:
    """Of an option: no weighed peak is above it.

    The factor is the slope from its shortest peak to its longest; the overhead is raised until the line is above all of
    them, and at least what is typical. A single peak tells the factor; with none it is 1. A message comes on top.
    Nothing is corrected where nothing was weighed. Peaks at length `skip` are left out.
    """
    if not found.peaks:
        return MemoryLine(NOTHING, 1.0)
    peaks = _peaks(option, traced, found, skip)
    overhead_bytes = process_overhead(traced, found, skip)
    if len(peaks) < 2:
        factor = max([1.0, *((peak - overhead_bytes) / held for held, peak in peaks)])
    else:
        factor = _slope(peaks)
        overhead_bytes = max(overhead_bytes, *(peak - factor * held for held, peak in peaks))
    return MemoryLine(Polynomial(overhead_bytes) + message_bytes(traced), factor)


def message_bytes(traced: CostModel) -> Polynomial:
    """A rank's part of the hidden state."""
    shape = traced.shape
    of_a_row = traced.micro_batch_size * shape.hidden_size * shape.bytes_per_element
    return TOKENS * (of_a_row / traced.group_size)


def process_overhead(traced: CostModel, found: Measurements, skip: int | None = None) -> float:
    """Bytes that a rank's run takes beside what its layers hold: the lower median of all options."""
    overheads = [
        _own_overhead(_peaks(option, traced, found, skip)) for option in found.peaks if option in traced.options
    ]
    known = [num_bytes for num_bytes in overheads if num_bytes is not None]
    return statistics.median_low(known) if known else 0.0


Peaks = list[tuple[int, int]]
"""Traced and measured bytes of one option, by rising length."""


def _peaks(option: str, traced: CostModel, found: Measurements, skip: int | None) -> Peaks:
    peaks = sorted(found.peaks.get(option, {}).items())
    return [
        (stack_bytes(traced.predict(option, length), found.num_layers), peak)
        for length, peak in peaks
        if length != skip
    ]


def _own_overhead(peaks: Peaks) -> float | None:
    """Where the line meets a trace of nothing; at least 0, by a line that rises at least as what is traced."""
    if len(peaks) < 2:
        return None
    held, peak = peaks[-1]
    return max(0.0, peak - _slope(peaks) * held)


def _slope(peaks: Peaks) -> float:
    (low, at_low), (high, at_high) = peaks[0], peaks[-1]
    return max(1.0, (at_high - at_low) / max(1, high - low))


def stack_bytes(cost: Cost, num_layers: int) -> int:
    """Predicted peak of so many equal layers."""
    return peak_bytes([cost] * num_layers)


def memory_errors(traced: CostModel, found: Measurements) -> list[float]:
    """Relative, of each measured peak as predicted by what was measured at other lengths."""
    return [
        abs(expected_peak(option, length, traced, found) / peak - 1)
        for option, peaks in found.peaks.items()
        if option in traced.options and len(peaks) > 1
        for length, peak in peaks.items()
    ]


def expected_peak(option: str, length: int, traced: CostModel, found: Measurements, corrected: bool = True) -> float:
    """Bytes of the stack by what was measured at other lengths.

    The overhead of a process on top; if `corrected`, the option's line instead.
    """
    held = stack_bytes(traced.predict(option, length), found.num_layers)
    if not corrected:
        return held + process_overhead(traced, found, skip=length)
    line = memory_line(option, traced, found, skip=length)
    return line.on_top(length) + line.factor * held
