"""Layout conversions by the torch executor, by the host executor, and a plain copy of the same bytes, in one run.

What is timed are both sides of the wire on rank 0 of P, pack and unpack, without the exchange between them.
`torch` and `host` run as in training, where sent and unpacked tensors are new: torch's are fresh from the system,
those of `host` what it kept of earlier ones. The plain copies are the C library's `memcpy`: `memcpy_fresh` into a new
tensor of torch, `memcpy` into memory that is there already, to which `host_existing`, the host executor's loops alone
into existing memory, is compared. Alternatives run in turn, and a ratio is that of one turn: its median over the turns,
then over the conversions. With one thread the time is what that thread had of a processor, so that what else runs does
not count; with several it is the clock on the wall.
"""

from __future__ import annotations

import ctypes
import statistics
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from operator import truediv
from typing import Any

import torch
from torch import Tensor

from paradyse_megatron.bench.conditions import conditions
from paradyse_megatron.comm import host, permutes
from paradyse_megatron.layouts.conversion import Conversion, Layout, context_to_tokens, qkv_to_heads
from paradyse_megatron.layouts.head_layouts import AttentionSizes
from paradyse_megatron.layouts.heads import HeadDealing
from paradyse_megatron.layouts.section import is_whole

MODELS = {"7B": (32, 32, 128), "70B": (64, 8, 128)}
"""Query heads, key/value heads, head size: Llama 2."""

GROUP_SIZES = (2, 4, 8)
DTYPE = torch.bfloat16
H100_BYTES_PER_S = 3.35e12
"""Memory bandwidth of an H100 SXM by its data sheet."""


@dataclass(frozen=True)
class Case:
    """One conversion on one rank.

    Attributes:
        model: a key of `MODELS`.
        group_size: P.
        conversion: qkv or context.
        direction: forward, or backward, which is the inverse.
        num_threads: of the executors.
    """

    model: str
    group_size: int
    conversion: str
    direction: str
    num_threads: int

    def ends(self, seq_length: int) -> Conversion:
        """The conversion itself, of a sequence of that many tokens."""
        heads, groups, head_dim = MODELS[self.model]
        sizes = AttentionSizes(HeadDealing(heads, groups, self.group_size), head_dim, seq_length // self.group_size, 1)
        conversion = (qkv_to_heads if self.conversion == "qkv" else context_to_tokens)(sizes)
        return conversion if self.direction == "forward" else conversion.inverse


def measure(seq_length: int, repetitions: int, max_threads: int) -> dict[str, Any]:
    """The table and its medians; milliseconds a call. Raises ValueError without the host extension."""
    reason = host.extension()
    if isinstance(reason, str):
        raise ValueError(f"The host executor cannot be measured: {reason}.")
    stated = conditions()
    rows = []
    for num_threads in sorted({1, max_threads}):
        torch.set_num_threads(num_threads)
        clock = time.thread_time if num_threads == 1 else time.perf_counter
        rows += [asdict(case) | _measure(case.ends(seq_length), repetitions, clock) for case in _cases(num_threads)]
    single, several = ([row for row in rows if (row["num_threads"] > 1) == threaded] for threaded in (False, True))
    return {
        **stated,
        "seq_length": seq_length,
        "dtype": str(DTYPE).removeprefix("torch."),
        "repetitions": repetitions,
        **_summary(single),
        "multi_threaded": _summary(several) if several else None,
        "bytes_7B_P8_forward": _forward_bytes(rows),
        "h100_floor_us_7B_P8_forward_computed": round(1e6 * _forward_bytes(rows) / H100_BYTES_PER_S, 1),
        "table": rows,
    }


def _cases(num_threads: int) -> list[Case]:
    return [
        Case(model, group_size, conversion, direction, num_threads)
        for model in MODELS
        for group_size in GROUP_SIZES
        for conversion in ("qkv", "context")
        for direction in ("forward", "backward")
    ]


RATIOS = {
    "host_over_torch_speedup": ("torch", "host"),
    "host_fraction_of_memcpy": ("memcpy", "host_existing"),
    "host_fraction_of_memcpy_fresh": ("memcpy_fresh", "host"),
}
"""Of a conversion: how many times as long the first takes as the second."""


def _summary(rows: list[dict[str, Any]]) -> dict[str, float]:
    medians = {name: round(statistics.median(row[name] for row in rows), 3) for name in RATIOS}
    return {"host_over_torch_speedup_median": medians.pop("host_over_torch_speedup")} | medians


def _forward_bytes(rows: list[dict[str, Any]]) -> int:
    """Read and written by both sides of q, k, v and context of the 7B model at P=8."""
    wanted = {"model": "7B", "group_size": 8, "direction": "forward", "num_threads": 1}
    return sum(row["bytes_read_and_written"] for row in rows if wanted.items() <= row.items())


def _measure(conversion: Conversion, repetitions: int, clock: Callable[[], float]) -> dict[str, Any]:
    """Alternatives in turn, so that what else the machine does meets all of them; medians over the turns."""
    halves = [_Half(conversion.source, to_wire=True), _Half(conversion.target, to_wire=False)]
    num_bytes = sum(half.num_bytes for half in halves)
    alternatives: dict[str, Callable[[_Half], object]] = {
        "torch": lambda half: half.run(permutes),
        "host": lambda half: half.run(host),
        "memcpy_fresh": _Half.copy_fresh,
        "host_existing": _Half.run_into_existing,
        "memcpy": _Half.copy,
    }
    times: dict[str, list[float]] = {name: [] for name in alternatives}
    for repetition in range(repetitions + 1):
        for name, alternative in alternatives.items():
            begin = clock()
            for half in halves:
                alternative(half)
            if repetition > 0:  # the first warms up
                times[name].append(1e3 * (clock() - begin))
    found = {f"{name}_ms": round(statistics.median(of_turns), 4) for name, of_turns in times.items()}
    ratios = {name: round(_ratio(times[over], times[under]), 3) for name, (over, under) in RATIOS.items()}
    return {"bytes_read_and_written": 2 * num_bytes} | found | ratios


def _ratio(over: list[float], under: list[float]) -> float:
    return statistics.median(map(truediv, over, under))


class _Half:
    """One side of the wire, with tensors and buffers of its own."""

    def __init__(self, layout: Layout, to_wire: bool):
        self.layout, self.to_wire = layout, to_wire
        shapes = [*layout.shapes, (sum(layout.blocks_per_peer(0)), layout.block_elements)]
        *self.tensors, self.wire = (torch.zeros(shape, dtype=DTYPE).fill_(1) for shape in shapes)
        strides = tuple(tensor.stride() for tensor in self.tensors)
        sections = layout.sections(0, strides)
        stays = is_whole(sections) if to_wire else layout.is_view(0) or is_whole(sections)
        self.num_bytes = 0 if stays else sum(section.num_elements for section in sections) * self.wire.element_size()
        self._other = torch.zeros_like(self.wire).fill_(1)

    def run(self, executor: Any) -> object:
        """As in training."""
        if self.to_wire:
            return executor.pack(self.tensors, self.layout, 0)
        return executor.unpack(self.wire, self.layout, 0)

    def run_into_existing(self) -> None:
        """The host executor's loops alone."""
        if self.num_bytes:
            host.move(self.layout, 0, self.tensors, self.wire, self.to_wire)

    def copy(self) -> None:
        """As many bytes into existing memory."""
        ctypes.memmove(self._other.data_ptr(), self.wire.data_ptr(), self.num_bytes)

    def copy_fresh(self) -> Tensor | None:
        """As many bytes into fresh memory."""
        if not self.num_bytes:
            return None
        fresh = torch.empty_like(self.wire)
        ctypes.memmove(fresh.data_ptr(), self.wire.data_ptr(), self.num_bytes)
        return fresh
