"""A failed allocation on the CPU as the exception that a failed allocation on a GPU raises."""

from __future__ import annotations

import contextlib
import re
import resource
from collections.abc import Iterator

import torch

from paradyse_megatron.cpu.memory import memory_info, resident_bytes

_FAILED = ("can't allocate memory", "not enough memory", "std::bad_alloc")


@contextlib.contextmanager
def translate_out_of_memory() -> Iterator[None]:
    """Inside (or in a function decorated with it), running out of memory raises `torch.OutOfMemoryError`.

    Torch reports it on the CPU as a plain RuntimeError, which callers cannot tell from other failures.
    """
    try:
        yield
    except torch.OutOfMemoryError:
        raise
    except (MemoryError, RuntimeError) as error:
        if isinstance(error, MemoryError) or any(text in str(error) for text in _FAILED):
            raise torch.OutOfMemoryError(_explain(str(error))) from error
        raise


def _explain(message: str) -> str:
    asked = re.search(r"allocate (\d+) bytes", message)
    available_bytes, total_bytes = memory_info()
    limit = resource.getrlimit(resource.RLIMIT_AS)[0]
    source = "the machine" if limit == resource.RLIM_INFINITY else "the address-space limit (ulimit -v)"
    return (
        f"Out of memory on the CPU: {_gib(int(asked[1])) if asked else 'an unknown amount'} asked for, "
        f"{_gib(resident_bytes())} resident, {_gib(available_bytes)} available of the {_gib(total_bytes)} of {source}. "
        f"{message}"
    )


def _gib(num_bytes: int) -> str:
    return f"{num_bytes / 2**30:.2f} GiB"
