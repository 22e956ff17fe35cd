"""The device "cuda" is the CPU: what asks for devices, what names one, and the random state of one.

Naming a device is handled in the few functions that take one (tensor factories, `Tensor.to`, `Tensor.cuda`) instead of
in a `TorchFunctionMode`: the mode costs every operation a microsecond, a wrapper a third of that for its calls.
"""

from __future__ import annotations

import functools
import os
import sys
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import torch
import torch.utils._device

from paradyse_megatron.cpu.memory import total_memory_bytes
from paradyse_megatron.cpu.replacements import Replacement, own

FACTORIES = (
    "arange as_tensor asarray bartlett_window blackman_window empty empty_like empty_permuted empty_strided eye "
    "from_file full full_like hamming_window hann_window kaiser_window linspace logspace normal ones ones_like rand "
    "rand_like randint randint_like randn randn_like randperm range scalar_tensor sparse_bsc_tensor sparse_bsr_tensor "
    "sparse_compressed_tensor sparse_coo_tensor sparse_csc_tensor sparse_csr_tensor tensor tril_indices triu_indices "
    "zeros zeros_like"
).split()
NEW_METHODS = "new_empty new_empty_strided new_full new_ones new_tensor new_zeros".split()

# Ampere: the oldest one with bf16, and nothing in Megatron that newer ones switch on by themselves.
CAPABILITY = (8, 0)


def replacements() -> Iterator[Replacement]:
    """What stands for torch's devices, tensor factories and moves between devices."""
    # `with torch.device(...)` looks factories up in a set that is filled once: let it hold the originals.
    torch.utils._device._device_constructors()
    for name in FACTORIES:
        yield Replacement(torch, name, _on_cpu(getattr(torch, name)))
    for name in NEW_METHODS:
        yield Replacement(torch.Tensor, name, _on_cpu(getattr(torch.Tensor, name)))
    yield from _tensor_methods()
    yield from _questions()
    yield from _random_state()
    yield Replacement(torch.utils.data.DataLoader, "__init__", _data_loader(torch.utils.data.DataLoader.__init__))


def _on_cpu(function: Callable[..., Any]) -> Callable[..., Any]:
    """`function`, reading the device "cuda" (also 0, "cuda:1", a `torch.device`) as the CPU, and pinning no memory."""

    @functools.wraps(function)
    def on_cpu(*args: Any, **kwargs: Any) -> Any:
        if kwargs:
            if _is_cuda(kwargs.get("device")):
                kwargs["device"] = "cpu"
            if kwargs.get("pin_memory"):
                kwargs["pin_memory"] = False
        return function(*args, **kwargs)

    return on_cpu


def _is_cuda(device: Any) -> bool:
    if device is None:
        return False
    if isinstance(device, torch.device):
        return device.type == "cuda"
    if isinstance(device, str):
        return device.startswith("cuda")
    return isinstance(device, int) and not isinstance(device, bool)


def _tensor_methods() -> Iterator[Replacement]:
    """Methods of `torch.Tensor`; `Module.to`, `Module.cuda` and `Module.to_empty` go through them and the factories."""
    original_to, original_type = torch.Tensor.to, torch.Tensor.type

    @functools.wraps(original_to)
    def to(self: torch.Tensor, *args: Any, **kwargs: Any) -> torch.Tensor:
        if args and _is_cuda(args[0]):
            args = ("cpu", *args[1:])
        elif kwargs and _is_cuda(kwargs.get("device")):
            kwargs["device"] = "cpu"
        return original_to(self, *args, **kwargs)

    @functools.wraps(original_type)
    def type_(self: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
        """Gradient clipping and the mixed-precision optimizers of Megatron, and only they, insist on 'torch.cuda.…'."""
        result = original_type(self, *args, **kwargs)
        if isinstance(result, str) and sys._getframe(1).f_globals.get("__name__", "").startswith("megatron."):
            return result.replace("torch.", "torch.cuda.", 1)
        return result

    def same(self: torch.Tensor, *_: Any, **__: Any) -> torch.Tensor:
        return self

    def nothing(self: torch.Tensor, *_: Any, **__: Any) -> None:
        """Memory of the CPU is not given to another stream while it is in use."""

    yield Replacement(torch.Tensor, "to", to)
    yield Replacement(torch.Tensor, "type", type_)
    yield Replacement(torch.Tensor, "cuda", own(same, "cuda"))
    yield Replacement(torch.Tensor, "pin_memory", own(same, "pin_memory"))
    yield Replacement(torch.Tensor, "record_stream", nothing)


def _questions() -> Iterator[Replacement]:
    """What may be asked about devices. Every process has one, number 0."""
    properties = SimpleNamespace(
        name="CPU",
        major=CAPABILITY[0],
        minor=CAPABILITY[1],
        total_memory=total_memory_bytes(),
        multi_processor_count=os.cpu_count() or 1,
    )
    answers: dict[str, Any] = {
        "is_available": True,
        "is_bf16_supported": True,
        "device_count": 1,
        "current_device": 0,
        "set_device": None,
        "_exchange_device": 0,  # what `with torch.cuda.device(i):` calls
        "_maybe_exchange_device": 0,
        "get_device_capability": CAPABILITY,
        "get_device_name": "CPU",
        "get_device_properties": properties,
    }
    for name, answer in answers.items():
        yield Replacement(torch.cuda, name, _always(answer, name))
    # No accelerator: data loaders then do not pin, and optimizers do not ask whether a graph is being captured.
    for name, answer in {"is_available": False, "device_count": 0, "current_accelerator": None}.items():
        yield Replacement(torch.accelerator, name, _always(answer, name))
    yield Replacement(torch.accelerator, "current_device_index", _always(0, "current_device_index"))


def _always(answer: Any, name: str) -> Callable[..., Any]:
    def question(*_: Any, **__: Any) -> Any:
        return answer

    question.__name__ = name
    return question


def _random_state() -> Iterator[Replacement]:
    """The generator of device 0 is the CPU's: the one that dropout and initialisation on the CPU draw from.

    With it in place torch's own functions (`get_rng_state`, `manual_seed`, ...) and Megatron's state tracker work as
    they are, as long as they do not wait for CUDA to be initialised.
    """
    yield Replacement(torch.cuda, "default_generators", (torch.default_generator,))
    yield Replacement(torch.cuda, "_initialized", True)


def _data_loader(initialise: Callable[..., None]) -> Callable[..., None]:
    """Data loaders that do not pin memory, and that draw their seeds from a generator of their own.

    With a GPU, a new loader leaves the generator alone that dropout draws from. It must here too: training that resumes
    from a checkpoint makes a new loader where training that was not interrupted did not.
    """
    host_generator = torch.Generator()

    @functools.wraps(initialise)
    def initialise_on_cpu(self: Any, *args: Any, **kwargs: Any) -> None:
        initialise(self, *args, **kwargs)
        self.pin_memory = False
        if self.generator is None:
            self.generator = host_generator

    return initialise_on_cpu
