"""What of Megatron itself stands in the way of a CPU, and the flags it needs."""

from __future__ import annotations

import contextlib
import functools
import importlib.abc
import importlib.util
import logging
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType
from typing import Any

import torch

from paradyse_megatron.cpu import torch_adam
from paradyse_megatron.cpu.replacements import Replacement, Replacements

MEGATRON_FLAGS = (
    "--transformer-impl local --distributed-backend gloo --no-gradient-accumulation-fusion --no-masked-softmax-fusion "
    "--no-persist-layer-norm --no-rope-fusion"
).split()
"""The flags of Megatron that training on the CPU needs: each switches off something that exists on GPUs only."""


def replacements() -> Iterator[Replacement]:
    """What stands for the places where Megatron itself insists on a GPU."""

    def compile(model: Any = None, *_: Any, **__: Any) -> Any:
        """Not compiling: tracing for "cuda" asks the driver."""
        return model if model is not None else lambda model: model

    yield Replacement(torch, "compile", compile)


class Surroundings:
    """What is changed around Megatron that is no attribute of torch; `close()` puts it back."""

    def __init__(self) -> None:
        self._stack = contextlib.ExitStack()
        self._run_compiled_functions_uncompiled()
        self._set_environment()
        self._ignore_random_state_warning()
        self._change_when_imported("megatron.core.datasets.utils", _dataset_helpers)
        self._change_when_imported(torch_adam.MODULE, torch_adam.replacements)

    def close(self) -> None:
        self._stack.close()

    def _run_compiled_functions_uncompiled(self) -> None:
        """Functions that were decorated with `torch.compile` before; there are none if nothing loaded the compiler."""
        if "torch._dynamo" in sys.modules:
            self._stack.enter_context(torch.compiler.set_stance("force_eager"))

    def _set_environment(self) -> None:
        """Megatron insists on it with tensor parallelism; without a GPU nobody reads it."""
        name = "CUDA_DEVICE_MAX_CONNECTIONS"
        if name not in os.environ:
            os.environ[name] = "1"
            self._stack.callback(os.environ.pop, name, None)

    def _ignore_random_state_warning(self) -> None:
        """Megatron warns at every fork of the GPU's random state that draws from the CPU's: here they are the same."""
        logger = logging.getLogger("megatron.core.tensor_parallel.random")
        logger.addFilter(_is_worth_saying)
        self._stack.callback(logger.removeFilter, _is_worth_saying)

    def _change_when_imported(self, name: str, replacements_of: Callable[[ModuleType], Iterator[Replacement]]) -> None:
        """Change a module now if it is loaded, else when it gets loaded: importing it only for that costs seconds."""

        def change(module: ModuleType) -> None:
            replacements = Replacements(replacements_of(module))
            replacements.apply()
            self._stack.callback(replacements.restore)

        if name in sys.modules:
            change(sys.modules[name])
        else:
            finder = _AfterImport(name, change)
            sys.meta_path.insert(0, finder)
            self._stack.callback(finder.remove)


def _is_worth_saying(record: logging.LogRecord) -> bool:
    return "CPU RNG state changed within GPU RNG context" not in record.getMessage()


def _dataset_helpers(module: ModuleType) -> Iterator[Replacement]:
    """Megatron's wheel brings its C++ helper built, but no Makefile: building it again fails and ends the process."""
    original, folder = module.compile_helpers, Path(str(module.__file__)).parent

    @functools.wraps(original)
    def compile_helpers() -> None:
        if (folder / "Makefile").exists() or not list(folder.glob("helpers_cpp*.so")):
            original()

    yield Replacement(module, "compile_helpers", compile_helpers)


class _AfterImport(importlib.abc.MetaPathFinder):
    """Calls `then(module)` when the module of that name has been imported."""

    def __init__(self, name: str, then: Callable[[ModuleType], None]) -> None:
        self._name = name
        self._then = then

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname != self._name:
            return None
        self.remove()  # the other finders find it
        spec = importlib.util.find_spec(fullname)
        if spec is not None and spec.loader is not None:
            execute = spec.loader.exec_module

            def execute_and_then(module: ModuleType) -> None:
                execute(module)
                self._then(module)

            spec.loader.exec_module = execute_and_then  # type: ignore[method-assign]
        return spec

    def remove(self) -> None:
        if self in sys.meta_path:
            sys.meta_path.remove(self)
