"""The GPU kernels' own source, built for the CPU by a C++ compiler; a launch runs every thread of every block."""

from __future__ import annotations

import atexit
import ctypes
import functools
import itertools
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import torch

from paradyse_megatron.comm import cuda
from paradyse_megatron.comm.launch import Launch
from paradyse_megatron.comm.nvrtc import SOURCES

COMPILER = shutil.which("c++") or shutil.which("g++") or shutil.which("clang++")
MOST_BLOCKS = 3
"""Few, so that threads loop."""

_FLAGS = "-std=c++17 -O1 -shared -fPIC -Wall -Wextra -Werror -Wno-unknown-pragmas -fno-strict-aliasing -x c++".split()
_CHECKS = "-fsanitize=alignment,bounds,shift,signed-integer-overflow"
"""A vector at an address that is no multiple of its size, which ends a kernel on a GPU, is a complaint here."""


class Emulated:
    """Kernels in a shared library.

    Attributes:
        launched: names of the kernels that ran.
    """

    def __init__(self, folder: Path):
        library = folder / "emulated.so"
        source = Path(__file__).with_name("emulated.cpp")
        assert COMPILER is not None
        subprocess.run(
            [COMPILER, *_FLAGS, _CHECKS, "-I", SOURCES, source, "-o", library], check=True, timeout=300
        )  # fmt: skip
        self._log = folder / "complaints"
        os.environ["UBSAN_OPTIONS"] = f"log_path={self._log}"  # read when the library is loaded
        self._library = ctypes.CDLL(str(library))
        self._threads = itertools.cycle((128, 32, 96, 64))
        self.launched: set[str] = set()

    def launch(self, launch: Launch, device: torch.device) -> None:
        """As a GPU would, with blocks of several sizes."""
        assert len(launch.move) == self._library.bytes_of_move()
        self.launched.add(launch.kernel)
        asked = (launch.kernel.encode(), launch.move, launch.blocks, launch.sections, next(self._threads))
        assert self._library.launch(*asked), f"there is no kernel {launch.kernel}"

    def complaints(self) -> list[str]:
        """What the checks found."""
        return [line for file in self._log.parent.glob("complaints*") for line in file.read_text().splitlines()]


@contextmanager
def kernels_on_cpu() -> Iterator[Emulated]:
    """The `cuda` executor takes CPU tensors; at the end there must be no complaints."""
    emulated = _built()
    emulated.launched.clear()
    cuda._device_types.add("cpu")
    try:
        yield emulated
    finally:
        cuda._device_types.discard("cpu")
    assert not emulated.complaints()


@functools.cache
def _built() -> Emulated:
    """Once in a process, as operators take a kernel but once."""
    folder = tempfile.mkdtemp(prefix="paradyse-emulated-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    emulated = Emulated(Path(folder))
    cuda.register("cpu", emulated.launch, lambda device: MOST_BLOCKS)
    return emulated
