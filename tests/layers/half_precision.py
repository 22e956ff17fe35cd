"""How far bf16 training under a plan is from fp64, as multiples of how far plain bf16 is. Runs on any rank count."""

from __future__ import annotations

import re
from typing import Any

import torch
from torch import Tensor

from paradyse_megatron import Plan, use_plan
from tests.layers.equality import finalize_model_grads, make_batch, start_model_parallel, token_losses, wrapped
from tests.layers.models import unshard

FAMILY, NUM_LAYERS, LENGTH = "qwen", 16, 48

Gradients = dict[str, Tensor]


def exact_and_plain() -> tuple[Gradients, dict[str, float]]:
    """On one rank: the stock model in fp64, and the distance of the stock model in bf16 to it."""
    start_model_parallel(1)
    exact = _losses_and_gradients(_model(torch.float64, 1, stock=True), None)
    return exact, _distances(_losses_and_gradients(_model(torch.bfloat16, 1, stock=True), None), exact)


def distances(exact: Gradients, plans: list[str]) -> dict[str, dict[str, float]]:
    """On P ranks: by plan, the distance of the losses and of each kind of parameter's gradient."""
    num_ranks = torch.distributed.get_world_size()
    start_model_parallel(num_ranks)
    model = _model(torch.bfloat16, num_ranks)
    return {plan: _distances(_losses_and_gradients(model, Plan.parse(plan, NUM_LAYERS)), exact) for plan in plans}


def _model(dtype: torch.dtype, num_ranks: int, **extra: Any) -> Any:
    """With weights that bf16 can represent, in both precisions."""
    model = wrapped(FAMILY, str(dtype).split(".")[1], num_ranks, num_layers=NUM_LAYERS, **extra)
    for parameter in model.parameters():
        parameter.data.copy_(parameter.data.bfloat16())
    return model


def _losses_and_gradients(model: Any, plan: Plan | None) -> Gradients:
    model.zero_grad_buffer()
    batch = make_batch((LENGTH,), torch.distributed.get_world_size())
    with use_plan(plan or Plan.parse("tp_sp", NUM_LAYERS)):
        losses = token_losses(model, batch)
    losses.sum().backward()
    finalize_model_grads([model], batch["loss_mask"].sum().int())
    config = model.module.config
    return {"losses": losses.detach().double()[:LENGTH]} | {
        name: unshard(name, parameter.main_grad, parameter, config).double().clone()
        for name, parameter in model.module.named_parameters()
    }


def _distances(found: Gradients, exact: Gradients) -> dict[str, float]:
    """Relative L2 distance, over all layers for each kind of parameter: one tensor's is too noisy to compare."""
    squares: dict[str, list[float]] = {}
    for name, expected in exact.items():
        of_kind = squares.setdefault(re.sub(r"layers\.\d+\.", "", name), [0.0, 0.0])
        of_kind[0] += (found[name] - expected).square().sum().item()
        of_kind[1] += expected.square().sum().item()
    return {kind: (error / norm) ** 0.5 for kind, (error, norm) in squares.items()}
