"""Measured peaks of memory beside traced bytes: what a run takes on top, and what has to be multiplied.

A measured peak is taken as overhead + factor x traced bytes, of each option its own. Bytes that are traced are there by
construction: the factor is at least 1. What messages hold on their way differs from one run to the next by as much as
the whole overhead of some options, so none is taken to have less than most have, and none of its peaks to be above its
line: a plan that needs more than predicted ends the run, one that needs less costs little.
"""

from __future__ import annotations

from paradyse_megatron.costmodel.measurements import Measurements
from paradyse_megatron.costmodel.model import CostModel
from paradyse_megatron.planner.cost import Cost
from paradyse_megatron.planner.memory import peak_bytes

TYPICAL, MOST = 0.5, 0.75
"""Shares of all options that keep to an overhead."""


def memory_line(option: str, traced: CostModel, found: Measurements, skip: int | None = None) -> tuple[float, float]:
    """(overhead in bytes, factor) of an option: a line with no peak above it, measured over traced.

    The factor is the slope from its shortest peak to its longest; the overhead is raised until the line is above all of
    them, and at least what `MOST` options keep to. A single peak tells the factor; with none it is 1. Peaks at length
    `skip` are left out.
    """
    peaks = _peaks(option, traced, found, skip)
    overhead_bytes = process_overhead(traced, found, skip, MOST)
    if len(peaks) < 2:
        return overhead_bytes, max([1.0, *((peak - overhead_bytes) / held for held, peak in peaks)])
    factor = _slope(peaks)
    return max(overhead_bytes, *(peak - factor * held for held, peak in peaks)), factor


def process_overhead(traced: CostModel, found: Measurements, skip: int | None = None, share: float = TYPICAL) -> float:
    """Bytes that a rank's run takes beside what its layers hold, as that `share` of all options keep to."""
    overheads = [
        _own_overhead(_peaks(option, traced, found, skip)) for option in found.peaks if option in traced.options
    ]
    known = sorted(num_bytes for num_bytes in overheads if num_bytes is not None)
    return known[int(share * (len(known) - 1))] if known else 0.0


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

    The overhead of a process on top; if `corrected`, the option's own overhead and factor instead.
    """
    held = stack_bytes(traced.predict(option, length), found.num_layers)
    if not corrected:
        return held + process_overhead(traced, found, skip=length)
    overhead_bytes, factor = memory_line(option, traced, found, skip=length)
    return overhead_bytes + factor * held
