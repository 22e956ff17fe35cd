"""Compiles the GPU kernels: NVRTC through cuda-core, in memory. Needs neither a GPU nor torch."""

from __future__ import annotations

import functools
import io
import re
from dataclasses import dataclass
from pathlib import Path

from paradyse_megatron.comm.launch import KERNELS

SOURCES = Path(__file__).resolve().parents[1] / "csrc" / "kernels"
ARCHITECTURES = ("sm_80", "sm_90a", "sm_100", "sm_120")
"""A100, H100 and H200, B200, RTX 50. Others compile when they are met."""

_OF_KERNEL = re.compile(
    r"Compiling entry function '(?P<name>\w+)'"
    r".*?(?P<stores>\d+) bytes spill stores, (?P<loads>\d+) bytes spill loads"
    r".*?Used (?P<registers>\d+) registers",
    re.DOTALL,
)


@dataclass(frozen=True)
class Usage:
    """What a thread of a kernel takes.

    Attributes:
        registers: of 32 bits.
        spill_bytes: written to memory and read back for want of registers.
    """

    registers: int
    spill_bytes: int


@dataclass(frozen=True)
class Compiled:
    """All kernels for one architecture.

    Attributes:
        code: cubin.
        usage: by kernel.
    """

    code: bytes
    usage: dict[str, Usage]


@functools.cache
def compiled(architecture: str) -> Compiled:
    """Compile the kernels, once in a process; seconds.

    Raises:
        ValueError: why they cannot be compiled, a clause.
    """
    try:
        from cuda.core import Program, ProgramOptions
    except Exception as error:  # a broken CUDA library raises others than ImportError
        raise ValueError(
            f"cuda-core, which compiles its kernels, does not import ({error}); pip install 'cuda-core[cu13]'"
        ) from error
    log = io.StringIO()
    try:
        options = ProgramOptions(
            name="kernels.cu",
            arch=architecture,
            include_path=str(SOURCES),
            fma=False,  # sums and rotations are those of the host, to the last bit
            ptxas_options=["-v"],
        )
        code = Program((SOURCES / "kernels.cu").read_text(), "c++", options).compile("cubin", logs=log).code
    except Exception as error:  # cuda-core's own, a library's that is not found, or the file system's
        said = " ".join(str(error).split())
        raise ValueError(f"its kernels do not compile for {architecture}: {said}") from error
    return Compiled(bytes(code), usage_of(log.getvalue()))


def usage_of(log: str) -> dict[str, Usage]:
    """What the assembler said of each kernel. Raises ValueError if it said nothing of one."""
    usage = {}
    for entry in re.split(r"(?=ptxas info *: Compiling)", log):
        if found := _OF_KERNEL.search(entry):
            spilled = sum(map(int, re.findall(r"(\d+) bytes spill", entry)))  # of functions that it calls as well
            usage[found["name"]] = Usage(int(found["registers"]), spilled)
    if set(usage) != set(KERNELS):
        raise ValueError(f"the assembler reported on {', '.join(sorted(usage)) or 'no kernel'} alone")
    return usage
