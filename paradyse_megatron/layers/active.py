"""Which plan a forward pass follows.

`use_plan` is read once per layer, when its forward begins; the option travels from there by argument and closure.
Nothing reads it in backward or in recomputation, which may run after another micro-batch has installed its own plan.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass

from paradyse_megatron.layers.weights import GATHER_ON_USE, LayerWeights
from paradyse_megatron.planner.option import Option
from paradyse_megatron.planner.plan import Plan

STOCK = Option.parse("tp_sp")


@dataclass(frozen=True)
class LayerCall:
    """What a layer hands down to its attention and MLP for one forward call.

    Attributes:
        option: how to compute.
        weights: gathered weights on their way already; what is not among them is gathered on use.
    """

    option: Option
    weights: LayerWeights = GATHER_ON_USE


_plan: ContextVar[Plan | None] = ContextVar("paradyse_plan", default=None)
_call: ContextVar[LayerCall] = ContextVar("paradyse_layer_call", default=LayerCall(STOCK))  # noqa: B039


@contextmanager
def use_plan(plan: Plan) -> Iterator[Plan]:
    """Forward passes inside follow `plan`, and so do their backward passes, wherever those run."""
    token = _plan.set(plan)
    try:
        yield plan
    finally:
        _plan.reset(token)


def planned_option(layer_number: int) -> Option:
    """The option of a layer (Megatron counts from 1) under the current plan; Megatron's own path without a plan."""
    plan = _plan.get()
    if plan is None:
        return STOCK
    if layer_number > len(plan.layer_options):
        raise ValueError(
            f"The plan '{plan}' has {len(plan.layer_options)} layers, but the model has a layer "
            f"{layer_number}. Give --paradyse-plan one option for each layer."
        )
    return plan.layer_options[layer_number - 1]


def planned_head() -> str:
    """How to compute the loss head under the current plan; Megatron's own way without a plan."""
    plan = _plan.get()
    return "whole" if plan is None else plan.head


@contextmanager
def layer_scope(call: LayerCall) -> Iterator[None]:
    """Hands `call` down for the duration of one forward call."""
    token = _call.set(call)
    try:
        yield
    finally:
        _call.reset(token)


def current_call() -> LayerCall:
    """What the enclosing layer handed down."""
    return _call.get()
