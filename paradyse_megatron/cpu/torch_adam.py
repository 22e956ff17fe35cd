"""Resuming Megatron's distributed optimizer when its Adam is torch's.

Without Transformer Engine and Apex, Megatron (0.17 to 0.20) goes wrong in three places, all repaired here: asking a
fresh optimizer for the shape of its state finds no `step` (an AssertionError); loading gives all parameters one and the
same `step` tensor, which every update then advances once per parameter; and loading the moments resets it.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from types import ModuleType
from typing import Any

import torch

from paradyse_megatron.cpu.replacements import Replacement

MODULE = "megatron.core.optimizer.distrib_optimizer"
_ADAM = (torch.optim.Adam, torch.optim.AdamW)


def replacements(module: ModuleType) -> Iterator[Replacement]:
    """What repairs resuming torch's Adam under Megatron's distributed optimizer."""
    if module.HAVE_APEX_OR_TE:
        return
    optimizer_class = module.DistributedOptimizer
    original_state_dict, original_load = optimizer_class.state_dict, optimizer_class.load_state_dict

    @functools.wraps(original_state_dict)
    def state_dict(self: Any, *args: Any, **kwargs: Any) -> Any:
        if isinstance(self.optimizer, _ADAM) and not self.optimizer.state:
            _fill_in_state(self.optimizer)
        return original_state_dict(self, *args, **kwargs)

    @functools.wraps(original_load)
    def load_state_dict(self: Any, *args: Any, **kwargs: Any) -> Any:
        result = original_load(self, *args, **kwargs)
        if isinstance(self.optimizer, _ADAM):
            _set_steps(self.optimizer)
        return result

    yield Replacement(optimizer_class, "state_dict", state_dict)
    yield Replacement(optimizer_class, "load_state_dict", load_state_dict)


def _fill_in_state(adam: torch.optim.Optimizer) -> None:
    """The state that Adam itself would start from (see `torch.optim.Adam._init_group`)."""
    for group in adam.param_groups:
        for parameter in group["params"]:
            adam.state[parameter] = {
                "step": torch.tensor(0.0),
                "exp_avg": torch.zeros_like(parameter),
                "exp_avg_sq": torch.zeros_like(parameter),
            }


def _set_steps(adam: torch.optim.Optimizer) -> None:
    """The step that Megatron saves with, and loads into, the group, as torch keeps it: a tensor for every parameter."""
    for group in adam.param_groups:
        step = group.pop("step", None)
        if step is not None:
            for parameter in group["params"]:
                adam.state[parameter]["step"] = torch.tensor(float(step))
