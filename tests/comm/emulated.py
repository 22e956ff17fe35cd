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

from paradyse_megatron.comm import cuda, symm
from paradyse_megatron.comm.launch import THREADS, Launch
from paradyse_megatron.comm.nvrtc import SOURCES

COMPILER = shutil.which("c++") or shutil.which("g++") or shutil.which("clang++")
MOST_BLOCKS = 3
"""Few, so that threads loop."""
FOLDER = "PARADYSE_EMULATED"
"""An environment variable: where the library is already, for the ranks that a test starts."""

HERE = Path(__file__).parent
FLAGS = "-std=c++17 -O1 -ffp-contract=off -Wall -Wextra -Werror -Wno-unknown-pragmas -fno-strict-aliasing".split()
_CHECKS = "-fsanitize=alignment,bounds,shift,signed-integer-overflow"
"""A vector at an address that is no multiple of its size, which ends a kernel on a GPU, is a complaint here."""

_COMPLAINTS = "complaints"
"""The file where they go, each process with its number behind."""


class Emulated:
    """Kernels in a shared library.

    Attributes:
        launched: names of the kernels that ran.
    """

    def __init__(self, folder: Path):
        self._log = folder / f"{_COMPLAINTS}.{os.getpid()}"
        self._library = ctypes.CDLL(str(folder / "emulated.so"))
        self._library.window_start.restype = ctypes.c_longlong
        self._threads = itertools.cycle((THREADS, 32, 96, 64))
        self.launched: set[str] = set()

    def launch(self, launch: Launch, device: torch.device) -> None:
        """As a GPU would, with blocks of several sizes."""
        self.launched.add(launch.kernel)
        num_bytes = ctypes.c_longlong(len(launch.argument))
        asked = (launch.kernel.encode(), launch.argument, num_bytes, launch.blocks, launch.sections)
        outcome = self._library.launch(*asked, next(self._threads))
        assert outcome != 1, f"there is no kernel {launch.kernel} with an argument of {len(launch.argument)} bytes"
        if outcome == 2:
            raise RuntimeError(f"the kernel {launch.kernel} gave up")

    def window_start(self, *numbers: int) -> int:
        """Of the kernels' own arithmetic."""
        return self._library.window_start(*map(ctypes.c_longlong, numbers))

    def complaints(self) -> list[str]:
        """What the checks found."""
        return self._log.read_text().splitlines() if self._log.exists() else []


@contextmanager
def kernels_on_cpu() -> Iterator[Emulated]:
    """The executors `cuda` and `symm` take CPU tensors; at the end there must be no complaints."""
    emulated = _loaded()
    emulated.launched.clear()
    cuda._device_types.add("cpu")
    try:
        yield emulated
    finally:
        cuda._device_types.discard("cpu")
    assert not emulated.complaints()


@functools.cache
def folder() -> Path:
    """Where the library is; builds it once, for this process and those it starts with `FOLDER` set to this."""
    if FOLDER in os.environ:
        return Path(os.environ[FOLDER])
    made = Path(tempfile.mkdtemp(prefix="paradyse-emulated-"))
    atexit.register(shutil.rmtree, made, ignore_errors=True)
    build_library(made)
    return made


def build_library(into: Path, kernels: Path = SOURCES) -> None:
    """What `FOLDER` then names."""
    log = f'-DCOMPLAINTS="{into / _COMPLAINTS}"'
    build(into / "emulated.so", "emulated.cpp", "-shared", "-fPIC", _CHECKS, log, kernels=kernels)


def kernels_with(fault: tuple[str, str] | None, file: str, folder: Path) -> Path:
    """A copy of the kernels in `folder`; with a fault, (right, wrong) text, in the one place of `file` that has it."""
    kernels = shutil.copytree(SOURCES, folder / "kernels")
    if fault is not None:
        right, wrong = fault
        text = (kernels / file).read_text()
        assert text.count(right) == 1
        (kernels / file).write_text(text.replace(right, wrong))
    return kernels


def build(target: Path, source: str, *flags: str, kernels: Path = SOURCES) -> None:
    """Compile a file of this folder with the kernels."""
    assert COMPILER is not None
    command = [COMPILER, *FLAGS, *flags, "-x", "c++", "-I", kernels, HERE / source, "-o", target]
    subprocess.run(command, check=True, timeout=300)


@functools.cache
def no_thread_sanitizer() -> str | None:
    """Why programs cannot be watched by ThreadSanitizer here, and what to install; None if they can."""
    if COMPILER is None:
        return "there is no C++ compiler"
    with tempfile.TemporaryDirectory(prefix="paradyse-sanitizer-") as into:
        program = Path(into) / "empty"
        command = [COMPILER, "-fsanitize=thread", "-x", "c++", "-", "-o", program]
        built = subprocess.run(command, input="int main() {}", capture_output=True, text=True, timeout=60)
        if built.returncode != 0:
            said = (built.stderr.strip().splitlines() or ["it says nothing"])[-1]
            return (
                f"{COMPILER} does not build with ThreadSanitizer ({said}); install its library: libtsan2 (Debian, "
                "Ubuntu), libtsan (Fedora, RHEL), or for clang compiler-rt"
            )
        ran = subprocess.run([program], capture_output=True, text=True, timeout=60)
    if ran.returncode == 0:
        return None
    said = " ".join(ran.stderr.split()) or f"status {ran.returncode}"
    return f"programs with ThreadSanitizer do not run ({said}); try sysctl vm.mmap_rnd_bits=28"


@functools.cache
def _loaded() -> Emulated:
    """Once in a process, as operators take a kernel but once."""
    emulated = Emulated(folder())
    cuda.register("cpu", emulated.launch, lambda device: MOST_BLOCKS)
    symm.register("cpu")
    return emulated
