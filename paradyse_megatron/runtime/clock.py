"""Points in time, on the CPU at once, on a GPU as events of the current stream that are read later."""

from __future__ import annotations

import time
from typing import Protocol

import torch


class Moment(Protocol):
    """A point in time."""

    def milliseconds_until(self, later: Moment) -> float:
        """How long it took from here to `later`; waits for a GPU to get there."""


class HostMoment:
    """A reading of the host's monotonic clock."""

    def __init__(self) -> None:
        self._seconds = time.perf_counter()

    def milliseconds_until(self, later: Moment) -> float:
        """See `Moment`."""
        assert isinstance(later, HostMoment)
        return 1e3 * (later._seconds - self._seconds)


class StreamMoment:
    """An event on the current CUDA stream."""

    def __init__(self) -> None:
        self._event = torch.cuda.Event(enable_timing=True)
        self._event.record()

    def milliseconds_until(self, later: Moment) -> float:
        """See `Moment`."""
        assert isinstance(later, StreamMoment)
        later._event.synchronize()
        return self._event.elapsed_time(later._event)


def now(tensor: torch.Tensor) -> Moment:
    """This moment, in the time of the device that computes `tensor`."""
    return StreamMoment() if tensor.is_cuda else HostMoment()
