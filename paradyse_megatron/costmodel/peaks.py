"""Measured peaks of memory beside traced bytes: what a run takes on top, and what has to be multiplied.

A measured peak is taken as overhead + factor x traced bytes, of each option its own. Bytes that are traced are there by
construction: the overhead is at least 0, the factor 1.
"""

from __future__ import annotations

import statistics

from paradyse_megatron.costmodel.measurements import Measurements
from paradyse_megatron.costmodel.model import CostModel
from paradyse_megatron.planner.cost import Cost
from paradyse_megatron.planner.memory import peak_bytes


def process_overhead(traced: CostModel, found: Measurements, skip: int | None = None) -> float:
    """Bytes that a rank's run takes beside what its layers hold: the median of all options' own overheads."""
    overheads = [_own_overhead(option, traced, found, skip) for option in found.peaks if option in traced.options]
    known = [num_bytes for num_bytes in overheads if num_bytes is not None]
    return statistics.median(known) if known else 0.0


def option_overhead(option: str, traced: CostModel, found: Measurements, skip: int | None = None) -> float:
    """Bytes that a rank's run with one option takes beside what its layers hold, whatever the length.

    The process's overhead where the option was not weighed at two lengths other than `skip`.
    """
    own = _own_overhead(option, traced, found, skip)
    return process_overhead(traced, found, skip) if own is None else own


def _own_overhead(option: str, traced: CostModel, found: Measurements, skip: int | None) -> float | None:
    """What a line through the shortest and the longest peak, measured over traced, leaves where nothing is traced.

    At least 0, and by a line that rises at least as what is traced; None without two lengths.
    """
    peaks = {length: peak for length, peak in found.peaks.get(option, {}).items() if length != skip}
    if len(peaks) < 2:
        return None
    ends = min(peaks), max(peaks)
    low, high = (stack_bytes(traced.predict(option, length), found.num_layers) for length in ends)
    slope = max(1.0, (peaks[ends[1]] - peaks[ends[0]]) / max(1, high - low))
    return max(0.0, peaks[ends[1]] - slope * high)


def memory_factor(
    option: str, traced: CostModel, found: Measurements, overhead_bytes: float, skip: int | None = None
) -> float:
    """Measured over predicted peak, at the longest measured length other than `skip`; 1 where nothing was measured.

    Never below 1: traced bytes are there by construction, and a resident set that grew by less reused what a run before
    had left behind.

    Args:
        overhead_bytes: of the measured peak, what layers have no part in.
    """
    peaks = {length: peak for length, peak in found.peaks.get(option, {}).items() if length != skip}
    if not peaks:
        return 1.0
    longest = max(peaks)
    held = stack_bytes(traced.predict(option, longest), found.num_layers)
    return max(1.0, (peaks[longest] - overhead_bytes) / held)


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
    overhead_bytes = option_overhead(option, traced, found, skip=length)
    return overhead_bytes + held * memory_factor(option, traced, found, overhead_bytes, skip=length)
