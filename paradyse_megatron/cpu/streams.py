"""Streams that run at once, events that take the time."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from typing import Any

import torch

from paradyse_megatron.cpu.replacements import Replacement, own


class Stream:
    """Work on the CPU is done when the call returns: there is nothing to wait for."""

    cuda_stream = 0
    stream_id = 0
    priority = 0
    device = torch.device("cpu")
    device_index = 0

    def __init__(self, *_: Any, **__: Any) -> None:
        pass

    @staticmethod
    def priority_range() -> tuple[int, int]:
        return 0, 0

    def query(self) -> bool:
        return True

    def synchronize(self) -> None:
        pass

    def wait_event(self, event: Event) -> None:
        pass

    def wait_stream(self, stream: Stream) -> None:
        pass

    def record_event(self, event: Event | None = None) -> Event:
        event = event or Event()
        event.record(self)
        return event

    def __enter__(self) -> Stream:
        return self

    def __exit__(self, *_: Any) -> None:
        pass


class Event:
    """Remembers when it was recorded, which on the CPU is when the work before it was done."""

    def __init__(self, *_: Any, **__: Any) -> None:
        self._seconds: float | None = None

    def record(self, stream: Stream | None = None) -> None:
        self._seconds = time.perf_counter()

    def elapsed_time(self, end_event: Event) -> float:
        """Milliseconds."""
        if self._seconds is None or end_event._seconds is None:
            raise ValueError("Both events must be recorded before the time between them is asked for.")
        return (end_event._seconds - self._seconds) * 1e3

    def query(self) -> bool:
        return True

    def synchronize(self) -> None:
        pass

    def wait(self, stream: Stream | None = None) -> None:
        pass


def replacements() -> Iterator[Replacement]:
    """What stands for streams and events."""
    default = Stream()

    def default_stream(*_: Any, **__: Any) -> Stream:
        return default

    def nothing(*_: Any, **__: Any) -> None:
        pass

    def stream(stream: Stream | None) -> contextlib.AbstractContextManager[Stream | None]:
        return contextlib.nullcontext(stream)

    def is_current_stream_capturing() -> bool:
        return False

    yield Replacement(torch.cuda, "Stream", Stream)
    yield Replacement(torch.cuda, "Event", Event)
    yield Replacement(torch.cuda, "stream", stream)
    yield Replacement(torch.cuda, "is_current_stream_capturing", is_current_stream_capturing)
    yield Replacement(torch.cuda, "current_stream", own(default_stream, "current_stream"))
    yield Replacement(torch.cuda, "default_stream", own(default_stream, "default_stream"))
    yield Replacement(torch.accelerator, "current_stream", own(default_stream, "current_stream"))
    for owner, names in (
        (torch.cuda, ("ipc_collect", "set_stream", "synchronize")),
        (torch.cuda.nvtx, ("mark", "range_end", "range_pop", "range_push", "range_start")),
        (torch.accelerator, ("synchronize",)),
    ):
        for name in names:
            yield Replacement(owner, name, own(nothing, name))
