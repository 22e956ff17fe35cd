"""Turning the mapping on and off."""

from __future__ import annotations

import logging
import os

import torch

from paradyse_megatron.cpu import devices, megatron_patches, memory, streams
from paradyse_megatron.cpu.replacements import Replacements

_logger = logging.getLogger(__name__)
_active: tuple[Replacements, megatron_patches.Surroundings] | None = None


def enable() -> None:
    """Map `torch.cuda` onto the CPU; harmless when it is already.

    Best called before Megatron is imported. Names that loaded modules copied (`from torch.cuda import current_device`)
    are mapped too; where that is impossible this raises, and nothing is changed.
    """
    global _active
    if _active is not None:
        return
    if torch.cuda.is_available():
        raise RuntimeError(
            "paradyse_megatron.cpu.enable() was called, but there is a GPU (torch.cuda.is_available() is true): train "
            "on it, or hide it with CUDA_VISIBLE_DEVICES= to use the CPU instead."
        )
    replacements = Replacements(
        [*devices.replacements(), *streams.replacements(), *memory.replacements(), *megatron_patches.replacements()]
    )
    replacements.apply()
    _active = replacements, megatron_patches.Surroundings()
    level = logging.WARNING if os.environ.get("RANK", "0") == "0" else logging.INFO
    message = "torch.cuda is mapped onto the CPU (%d threads): for development, tests and trying out."
    _logger.log(level, message, torch.get_num_threads())


def disable() -> None:
    """Put every original object back."""
    global _active
    if _active is None:
        return
    replacements, surroundings = _active
    surroundings.close()
    replacements.restore()
    _active = None


def is_enabled() -> bool:
    """Whether `torch.cuda` is mapped onto the CPU now."""
    return _active is not None
