"""Which executor converts layouts in this process.

What travels is the same byte for byte, so ranks may differ in their choice and need not agree on it; but for `symm`,
which exchanges by other means than a collective, so that all ranks use it or none.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Sequence
from typing import Protocol

from torch import Tensor

from paradyse_megatron.comm import cuda, host, permutes, symm
from paradyse_megatron.comm.rotary import Rotation
from paradyse_megatron.layouts.conversion import Layout

logger = logging.getLogger(__name__)


class Executor(Protocol):
    """How one end of a conversion is carried out; `comm.permutes` is the reference."""

    def pack(self, tensors: Sequence[Tensor], layout: Layout, rank: int, rotation: Rotation | None = None) -> Tensor:
        """What the rank holds, queries and keys rotated, as blocks [n, elements] in the order of their ranks."""
        ...

    def unpack(self, wire: Tensor, layout: Layout, rank: int) -> tuple[Tensor, ...]:
        """What came, blocks in the order of the ranks they come from, as the tensors of the rank."""
        ...

    def empty(self, shape: tuple[int, ...], like: Tensor) -> Tensor:
        """A fresh tensor that is about to be filled."""
        ...

    def copy_(self, target: Tensor, source: Tensor) -> None:
        """Write `source` into `target`, strided tensors of one shape and type."""
        ...


_EXECUTORS: dict[str, Executor] = {"torch": permutes, "host": host, "cuda": cuda, "symm": symm}
_current: Executor | None = None


def current() -> Executor:
    """The executor of this process; without a choice that of `auto`."""
    if _current is None:
        choose("auto", on_cpu=not cuda.has_gpu())
    assert _current is not None
    return _current


def choose(name: str, on_cpu: bool = True) -> None:
    """Let `name` convert layouts from now on: torch, host, cuda, symm, or auto: host or cuda where that can be.

    To be called before the first collective: kernels are compiled here.

    Raises:
        ValueError: it cannot run here.
    """
    global _current
    if name == "auto":
        name = "host" if on_cpu else "cuda"
        reason = unavailable_reason(name, on_cpu)
        if reason is not None:
            level = logging.INFO if on_cpu else logging.WARNING
            logger.log(level, "layout conversions are executed by torch: %s", reason)
            name = "torch"
    reason = unavailable_reason(name, on_cpu)
    if reason is not None:
        raise ValueError(f"--paradyse-a2a {name} cannot be used: {reason}. Use torch or auto.")
    _current = _EXECUTORS[name]


def unavailable_reason(name: str, on_cpu: bool = True) -> str | None:
    """Why an executor cannot run here, without the full stop; None if it can."""
    if name == "host":
        if not on_cpu:
            return "it converts tensors in host memory, and there is a GPU"
        found = host.extension()
        return found if isinstance(found, str) else None
    if name == "torch":
        return None
    if on_cpu:
        return "it converts tensors on a GPU, and training runs on the CPU"
    reason = cuda.unavailable_reason()
    if reason is None and name == "symm":
        reason = symm.unavailable_reason(int(os.environ.get("LOCAL_WORLD_SIZE", 1)))
    return reason
