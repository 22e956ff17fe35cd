"""How the loss head of a training step comes to follow the plan. Run by hand: see `tests.ranks`."""

from __future__ import annotations

import sys
from typing import Any

import torch

from paradyse_megatron import Plan, cpu

cpu.enable()

from megatron.core.num_microbatches_calculator import unset_num_microbatches_calculator  # noqa: E402
from megatron.training.global_vars import destroy_global_vars  # noqa: E402

from paradyse_megatron import compat  # noqa: E402
from paradyse_megatron.integration import forward_step, setup  # noqa: E402
from paradyse_megatron.integration.pretrain import settle  # noqa: E402
from paradyse_megatron.layers import loss_head  # noqa: E402
from paradyse_megatron.runtime.controller import Controller  # noqa: E402
from paradyse_megatron.runtime.decision import FixedPlan  # noqa: E402
from tests.layers.models import NUM_LAYERS, VOCAB, build, start_model_parallel  # noqa: E402


class OldModel:
    """As `GPTModel` of 0.17."""

    def forward(self, input_ids: Any, labels: Any = None) -> None: ...


def found(defaults: list[str]) -> dict[str, Any]:
    """What arguments lead to with this Megatron and with one that has no `output_processor`, and which head ran."""
    answers: dict[str, Any] = {"installed": compat.has_output_processor(), "old": compat.has_output_processor(OldModel)}
    answers["fixed"] = _decider(defaults, "--paradyse-plan ring").longest_whole_head
    answers["auto"] = _decider(defaults, "").planner.heads
    answers["ran"] = _heads_that_ran()
    setup.has_output_processor = lambda model_class: False
    answers["old fixed"] = _decider(defaults, "--paradyse-plan ring").longest_whole_head
    answers["old auto"] = _decider(defaults, "").planner.heads
    answers["old chunked"] = str(_decider(defaults, "--paradyse-plan ring;head=chunked"))
    return answers


def _decider(defaults: list[str], arguments: str) -> Any:
    """The decider, or the error that says why there is none."""
    sys.argv = ["pretrain", *defaults, *arguments.split()]
    destroy_global_vars()
    unset_num_microbatches_calculator()
    try:
        return settle()[2]._decider
    except ValueError as error:
        return error


def _heads_that_ran() -> dict[str, Any]:
    """Two micro-batches in a pipeline's order: a long one's backward runs after a short one's forward.

    By name: the lengths (of a rank's shard) that went through the chunked head, whether gradients are those that each
    micro-batch has by itself, and the answer for stock layers.
    """
    start_model_parallel(torch.distributed.get_world_size())
    model = build("llama", torch.float32, torch.distributed.get_world_size())
    group = torch.distributed.group.WORLD
    controller = Controller(FixedPlan(Plan.parse("ring", NUM_LAYERS), group.size(), 20), group, None, lambda: 1)
    controller.attach(model.decoder)
    chunked = _watch_chunked_head()

    def losses(length: int) -> torch.Tensor:
        tokens = torch.arange(length).view(1, length) % VOCAB
        arguments = forward_step._head_arguments(model, controller)
        return model(tokens, tokens % 64, None, labels=tokens.flip(1), **arguments).sum()

    def gradient(*sums: torch.Tensor) -> torch.Tensor:
        model.zero_grad()
        for each in sums:
            each.backward()
        return model.output_layer.weight.grad.clone()

    alone = gradient(losses(32)) + gradient(losses(16))
    together = gradient(losses(32), losses(16))
    forward_step.get_args().dynamic_parallel = False
    return {
        "lengths": chunked,
        "same gradients": torch.allclose(alone, together, rtol=1e-4, atol=1e-6),
        "stock": forward_step._head_arguments(model, controller),
    }


def _watch_chunked_head() -> list[int]:
    lengths: list[int] = []
    chunked_cross_entropy = loss_head.chunked_cross_entropy

    def watching(hidden: torch.Tensor, *arguments: Any) -> torch.Tensor:
        lengths.append(len(hidden))
        return chunked_cross_entropy(hidden, *arguments)

    loss_head.chunked_cross_entropy = watching
    return lengths
