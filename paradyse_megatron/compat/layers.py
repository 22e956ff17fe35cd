"""How a layer's spec names the classes it is built from."""

from __future__ import annotations

import copy
import functools
from typing import Any


def with_mlp_class(stock: Any, mlp_class: Any) -> Any:
    """A spec's `mlp` with our subclass of `MLP` in place of it; anything else, such as experts, stays Megatron's.

    From 0.18 on a partial of `MLP.as_mlp_submodule`, before a `ModuleSpec`; drop the latter with 0.17.
    """
    from megatron.core.transformer.mlp import MLP
    from megatron.core.transformer.spec_utils import ModuleSpec

    if isinstance(stock, ModuleSpec):
        if stock.module is not MLP:
            return stock
        ours = copy.copy(stock)
        ours.module = mlp_class
        return ours
    if isinstance(stock, functools.partial) and stock.func == MLP.as_mlp_submodule:
        return functools.partial(mlp_class.as_mlp_submodule, *stock.args, **stock.keywords)
    return stock
