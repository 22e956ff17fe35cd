"""Loss and gradients of Megatron models under any plan, against the unsharded stock model. Runs on any rank count."""

from __future__ import annotations

import math
import random
from contextlib import nullcontext
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from paradyse_megatron import Plan, cpu, pad_to_multiple, use_plan

cpu.enable()

from megatron.core import parallel_state  # noqa: E402
from megatron.core.distributed import DistributedDataParallel, DistributedDataParallelConfig, finalize_model_grads  # noqa: E402
from megatron.core.tensor_parallel.mappings import gather_from_tensor_model_parallel_region  # noqa: E402

from paradyse_megatron.layers.active import planned_head  # noqa: E402
from paradyse_megatron.layers.loss_head import planned_loss  # noqa: E402
from tests.comm import chosen  # noqa: E402
from tests.layers.models import NUM_LAYERS, VOCAB, build, start_model_parallel, unshard  # noqa: E402
from tests.layers.plans import covering_plans  # noqa: E402

CASES = {"one": (37,), "three": (21, 37, 3), "tiny": (2,), "masked": (9, 0), "nothing": (-9,)}
"""Real tokens of each sample; 0 or less stands for a sample without a single token that counts."""
FAMILY_NAMES = ["gpt", "llama", "qwen", "blend", "grouped", "mqa"]
"""The last two have two and one key/value heads: fewer than ranks."""
CASES_OF_WINDOWS = [["one", "nothing", "three", "tiny", "masked", "one"], ["masked", "masked"], ["nothing", "nothing"]]
UNIFORM = [
    f"{attention}/{mlp}{recompute}"
    for attention in ("tp_sp", "ulysses", "ring")
    for mlp in ("tp_sp", "gathered")
    for recompute in ("", "+full")
]
STREAMED_PLANS = ["metp", "metp/tp_sp", "metp/gathered+full", "metp+full", "tp_sp/streamed", "ulysses/streamed+full"]
SELECTIVE_PLANS = ["tp_sp+selective", "ulysses+selective", "usp+selective", "upipe+selective", "metp+selective"]
HEAD_PLANS = ["usp", "upipe", "usp/tp_sp+full", "upipe2/tp_sp", "upipe+full"]


def mixed_plans(count: int, seed: int) -> list[str]:
    """Seeded plans with an option of its own for each layer, for families with many key/value heads."""
    chooser = random.Random(seed)
    options = [*UNIFORM, *STREAMED_PLANS, *HEAD_PLANS, *SELECTIVE_PLANS]
    return [",".join(chooser.choices(options, k=NUM_LAYERS)) for _ in range(count)]


def references() -> dict[str, dict[str, Tensor]]:
    """On one rank: loss and gradients of the stock, unsharded model, by family, case and dtype."""
    start_model_parallel(1)
    return {
        f"{family} {case} {dtype}": loss_and_gradients(wrapped(family, dtype, 1, stock=True), [None], [case])
        for family in FAMILY_NAMES
        for case in CASES
        for dtype in ("float64", "float32")
    }


def errors(expected: dict[str, dict[str, Tensor]], plans_of: dict[str, list[str]]) -> dict[str, float]:
    """On P ranks: the worst relative error over loss and gradients, for each reference and each of its plans."""
    num_ranks = torch.distributed.get_world_size()
    start_model_parallel(num_ranks)
    found: dict[str, float] = {}
    for key, plans in plans_of.items():
        family, case, dtype = key.split()
        model = wrapped(family, dtype, num_ranks)
        for plan in plans:
            gradients = loss_and_gradients(model, [Plan.parse(plan, NUM_LAYERS)], [case])
            found[f"{key} {plan}"] = worst_error(gradients, expected[key])
    return found


def errors_by_executor(*arguments: Any) -> dict[str, dict[str, float]]:
    """As `errors`, with layouts converted by each executor that runs here."""
    found = {}
    for executor in chosen.runnable():
        chosen.choose(executor)
        found[executor] = errors(*arguments)
        kernels = {"cuda": {"copy_sections"}, "symm": {"store_sections", "meet_peers"}}.get(executor, set())
        assert kernels <= chosen.launched, f"{executor} launched {chosen.launched}"
    chosen.choose("auto")
    return found


def window_errors() -> dict[str, float]:
    """On P ranks: accumulation windows whose micro-batches follow different plans, against the same under tp_sp.

    As in a pipeline, the first backward runs when all forwards have, and other plans have been current.
    """
    num_ranks = torch.distributed.get_world_size()
    start_model_parallel(num_ranks)
    found = {}
    for family in FAMILY_NAMES:
        model = wrapped(family, "float64", num_ranks)
        for cases in CASES_OF_WINDOWS:
            stock = loss_and_gradients(model, [None] * len(cases), cases)
            texts = covering_plans(family, num_ranks, seed=5)[: len(cases)]
            mixed = loss_and_gradients(model, [Plan.parse(text, NUM_LAYERS) for text in texts], cases, interleaved=True)
            found[f"{family} {cases}"] = worst_error(mixed, stock)
    return found


def worst_error(found: dict[str, Tensor], expected: dict[str, Tensor]) -> float:
    """Largest relative L2 error of any tensor; NaN and missing tensors count as infinite."""
    assert found.keys() == expected.keys(), f"{found.keys() ^ expected.keys()}"
    errors = [
        ((found[name] - expected[name]).norm() / expected[name].norm().clamp_min(1e-30)).item() for name in expected
    ]
    return max(errors) if all(map(math.isfinite, errors)) else math.inf  # `max` passes over NaN


def loss_and_gradients(
    model: DistributedDataParallel, plans: list[Plan | None], cases: list[str], interleaved: bool = False
) -> dict[str, Tensor]:
    """One accumulation window: a micro-batch per plan and case, then Megatron's own gradient finalisation.

    The gradients are unsharded, per token over the whole window. `interleaved`: all forwards before the backwards.
    """
    model.zero_grad_buffer()
    total_loss = torch.zeros((), dtype=torch.float64)
    num_tokens = torch.zeros((), dtype=torch.int)
    waiting: list[Tensor] = []
    for plan, case in zip(plans, cases, strict=True):
        batch = make_batch(CASES[case], parallel_state.get_tensor_model_parallel_world_size())
        with use_plan(plan) if plan else nullcontext():
            loss = token_losses(model, batch).sum()
        if interleaved:
            waiting.append(loss)
        else:
            loss.backward()
        total_loss += loss.detach()
        num_tokens += int(batch["loss_mask"].sum())
    for loss in waiting:
        loss.backward()
    finalize_model_grads([model], num_tokens)
    config = model.module.config
    return {"loss": total_loss / num_tokens.clamp_min(1)} | {
        name: unshard(name, parameter.main_grad, parameter, config).double().clone()
        for name, parameter in model.module.named_parameters()
    }


def make_batch(lengths: tuple[int, ...], num_ranks: int) -> dict[str, Tensor]:
    """Seeded tokens, padded on the right; what is padded does not count."""
    longest = max(map(abs, lengths))
    padded = pad_to_multiple(longest, num_ranks)
    text = torch.randint(
        VOCAB, (len(lengths), longest + 1), generator=torch.Generator().manual_seed(sum(map(abs, lengths)))
    )
    mask = torch.tensor([[position < length for position in range(padded)] for length in lengths])
    grow = (0, padded - longest)
    return {
        "tokens": F.pad(text[:, :-1], grow),
        "labels": F.pad(text[:, 1:], grow),
        "loss_mask": mask,
        "position_ids": torch.arange(padded).repeat(len(lengths), 1),
    }


def token_losses(model: DistributedDataParallel, batch: dict[str, Tensor]) -> Tensor:
    """Of every token, 0 where it does not count. In fp64 without Megatron's cross entropy, which computes in fp32."""
    if planned_head() == "chunked":
        arguments = {"labels": batch["labels"], "output_processor": planned_loss}
        losses = model(batch["tokens"], batch["position_ids"], None, **arguments).flatten()
    elif model.module.config.params_dtype == torch.float64:
        logits = model(batch["tokens"], batch["position_ids"], None)
        logits = gather_from_tensor_model_parallel_region(logits)
        losses = F.cross_entropy(logits.flatten(0, 1), batch["labels"].flatten(), reduction="none")
    else:
        losses = model(batch["tokens"], batch["position_ids"], None, labels=batch["labels"]).flatten()
    return torch.where(batch["loss_mask"].flatten(), losses, 0.0)


def wrapped(family: str, dtype_name: str, num_ranks: int, **extra: Any) -> DistributedDataParallel:
    model = build(family, getattr(torch, dtype_name), num_ranks, calculate_per_token_loss=True, **extra)
    settings = DistributedDataParallelConfig(grad_reduce_in_fp32=model.config.bf16)
    return DistributedDataParallel(model.config, settings, model)
