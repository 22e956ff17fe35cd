"""The `cuda` executor: packs and unpacks on GPUs in one pass over memory (`csrc/kernels/conversion.cu`).

The kernels are torch operators, so that a trace on fake tensors sees them, and run on the current stream. Tensors
elsewhere are left to `comm.permutes`.
"""

from __future__ import annotations

import ctypes
import functools
import os
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from paradyse_megatron.comm import nvrtc
from paradyse_megatron.comm.launch import KERNELS, THREADS, Launch, launches
from paradyse_megatron.comm.one_pass import OnePass
from paradyse_megatron.comm.rotary import Turning, integers_of, rotary_of

_BLOCKS_OF_MULTIPROCESSOR = 10

Launcher = Callable[[Launch, torch.device], None]


def unavailable_reason() -> str | None:
    """Why the kernels cannot run here, a clause; compiles them, for this rank's GPU, and loads them."""
    if not has_gpu():
        return "there is no GPU"
    try:
        _loaded(architecture(int(os.environ.get("LOCAL_RANK", 0))))
    except ValueError as error:
        return str(error)
    return None


def has_gpu() -> bool:
    """Whether torch sees one, whatever stands in for `torch.cuda`; no context is made on it."""
    count = getattr(torch._C, "_cuda_getDeviceCount", None)
    return count is not None and count() > 0


def register(device_type: str, launcher: Launcher, most_blocks: Callable[[torch.device], int]) -> None:
    """Let the operators run on tensors of such devices; `most_blocks` keep one busy."""
    launchers[device_type] = launcher, most_blocks

    def run(
        tensors: Sequence[Tensor],
        wire: Tensor,
        table: Sequence[int],
        to_wire: bool,
        turning: Sequence[Tensor] = (),
        rotary: Sequence[int] = (),
    ) -> None:
        number = str(wire.dtype).removeprefix("torch.")
        addresses = [tensor.data_ptr() for tensor in tensors]
        where = (addresses, wire.data_ptr(), to_wire, wire.element_size(), number, most_blocks(wire.device))
        for launch in launches(table, *where, rotary_of(turning, rotary)):
            launcher(launch, wire.device)

    def to_wire(
        tensors: Sequence[Tensor], wire: Tensor, table: Sequence[int], turning: Sequence[Tensor], rotary: Sequence[int]
    ) -> None:
        run(tensors, wire, table, True, turning, rotary)

    _library.impl("to_wire", to_wire, device_type.upper())
    _library.impl("from_wire", lambda wire, tensors, table: run(tensors, wire, table, False), device_type.upper())
    _device_types.add(device_type)


launchers: dict[str, tuple[Launcher, Callable[[torch.device], int]]] = {}
"""What `register` was given, by device type."""

_device_types: set[str] = set()
_library = torch.library.Library("paradyse", "DEF")
_library.define("to_wire(Tensor[] tensors, Tensor(a!) wire, int[] table, Tensor[] turning, int[] rotary) -> ()")
_library.define("from_wire(Tensor wire, Tensor(a!)[] tensors, int[] table) -> ()")
for _name in ("paradyse::to_wire", "paradyse::from_wire"):
    torch.library.register_fake(_name, lambda *arguments: None)  # they write into what is there


def _launch(launch: Launch, device: torch.device) -> None:
    from cuda.bindings import driver
    from cuda.core import Device

    kernel = _loaded(architecture(device.index))[launch.kernel]
    argument = ctypes.create_string_buffer(launch.argument, len(launch.argument))
    parameters = (ctypes.c_void_p * 1)(ctypes.addressof(argument))
    with torch.cuda.device(device):
        Device(device.index).set_current()  # autograd's threads may have no context yet
        stream = torch.cuda.current_stream().cuda_stream
        grid, block = (launch.blocks, launch.sections, 1), (THREADS, 1, 1)
        (status,) = driver.cuLaunchKernel(kernel, *grid, *block, 0, stream, ctypes.addressof(parameters), 0)
    if status != driver.CUresult.CUDA_SUCCESS:
        raise RuntimeError(f"The kernel {launch.kernel} was not launched on {device}: {status.name}.")


@functools.cache
def _most_blocks(device: torch.device) -> int:
    return _BLOCKS_OF_MULTIPROCESSOR * torch.cuda.get_device_properties(device).multi_processor_count


@functools.cache
def architecture(index: int) -> str:
    """Of a GPU, as the compiler calls it. Asks the driver, as torch would make a context."""
    try:
        from cuda.core import Device

        capability = Device(index).compute_capability
    except Exception as error:  # a driver that is not found or too old
        raise ValueError(f"the driver does not say what GPU {index} is ({error})") from error
    name = f"sm_{capability.major}{capability.minor}"
    return "sm_90a" if name == "sm_90" else name


@functools.cache
def _loaded(architecture: str) -> dict[str, Any]:
    """The kernels, as the driver's functions. Raises ValueError with a clause."""
    code = nvrtc.compiled(architecture).code
    try:
        from cuda.bindings import driver
        from cuda.core import ObjectCode

        module = ObjectCode.from_cubin(code)
        return {name: driver.CUfunction(int(module.get_kernel(name).handle)) for name in KERNELS} | {"": module}
    except Exception as error:
        raise ValueError(f"the driver does not load its kernels ({error})") from error


@functools.lru_cache(maxsize=256)
def _integers(table: bytes) -> list[int]:
    return np.frombuffer(table, np.int64).tolist()


def _move(table: bytes, tensors: Sequence[Tensor], wire: Tensor, to_wire: bool, how: Turning | None = None) -> None:
    if to_wire:
        torch.ops.paradyse.to_wire(tensors, wire, _integers(table), *integers_of(how))
    else:
        torch.ops.paradyse.from_wire(wire, tensors, _integers(table))


def reaches(tensor: Tensor) -> bool:
    """Whether the kernels can work on it, or on what it stands for."""
    return tensor.device.type in _device_types


register("cuda", _launch, _most_blocks)
executor = OnePass(reaches, _move, lambda shape, like: like.new_empty(shape))
pack, unpack, copy_, empty = executor.pack, executor.unpack, executor.copy_, executor.empty
