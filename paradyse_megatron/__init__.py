"""ParaDySe for Megatron-LM: chooses, per sequence and per layer, how a Transformer is computed in parallel.

Importing this package loads neither torch nor Megatron and reads nothing: the names below load their module when used.
"""

import importlib
from typing import Any

__version__ = "0.1.0"

_HOMES = {
    "CostModel": "paradyse_megatron.costmodel.model",
    "Plan": "paradyse_megatron.planner.plan",
    "Planner": "paradyse_megatron.planner.planner",
    "hybrid_stack_spec": "paradyse_megatron.layers.hybrid",
    "layer_spec": "paradyse_megatron.layers.spec",
    "pad_to_multiple": "paradyse_megatron.layouts.padding",
    "use_plan": "paradyse_megatron.layers.active",
}

__all__ = ["__version__", "cpu", *_HOMES]


def __getattr__(name: str) -> Any:
    if name == "cpu":
        return importlib.import_module("paradyse_megatron.cpu")
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
