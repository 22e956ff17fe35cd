"""Counts what real Megatron layers send, collective by collective, and compares plans with stock layers bit by bit."""

from __future__ import annotations

from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from paradyse_megatron import Plan, cpu, use_plan

cpu.enable()

from megatron.core import parallel_state  # noqa: E402
from megatron.core.transformer.transformer_block import TransformerBlock  # noqa: E402

from paradyse_megatron.layers.spec import stock_layer_spec  # noqa: E402
from tests.layers.models import NUM_LAYERS, build, make_config, start_model_parallel  # noqa: E402

HALF_CHUNKS, BATCH = 3, 2


class Traffic(TorchDispatchMode):
    """Elements that this rank sends to others, and the calls that send them."""

    def __init__(self) -> None:
        super().__init__()
        self.elements, self.calls = 0, 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func.namespace == "c10d":
            self._count(func.__name__.split(".")[0], args)
        return func(*args, **(kwargs or {}))

    def _count(self, name: str, args: Any) -> None:
        others = torch.distributed.get_world_size() - 1
        if name == "recv_":
            return
        self.calls += 1
        if name == "send":
            self.elements += args[0][0].numel()
        elif name == "_allgather_base_":
            self.elements += args[1].numel() * others
        elif name == "_reduce_scatter_base_":
            self.elements += args[0].numel() * others
        elif name == "alltoall_base_":
            sent, splits = args[1], args[4]
            rank = torch.distributed.get_rank()
            own = sent.numel() // (others + 1) if not splits else splits[rank] * (sent.numel() // sent.shape[0])
            self.elements += sent.numel() - own
        elif name == "broadcast_":
            self.elements += args[0][0].numel() * others * (args[2] == torch.distributed.get_rank())
        elif name == "reduce_":
            self.elements += args[0][0].numel() * (args[3] != torch.distributed.get_rank())
        else:
            raise AssertionError(f"an unexpected collective: {name}")


def sent_by_layers(family: str, plans: list[str]) -> dict[str, tuple[int, int, int, int]]:
    """Elements and calls, forward and backward, of three layers on this rank, under one plan after the other."""
    num_ranks = torch.distributed.get_world_size()
    start_model_parallel(num_ranks)
    decoder = build(family, torch.float32, num_ranks).decoder
    rotary = torch.randn(2 * num_ranks * HALF_CHUNKS, 1, 1, 4) if family in ("llama", "grouped") else None
    found = {}
    for plan in plans:
        hidden = torch.randn(2 * HALF_CHUNKS, BATCH, 48, requires_grad=True)
        with Traffic() as forward, use_plan(Plan.parse(plan, NUM_LAYERS)):
            output = decoder(hidden, None, rotary_pos_emb=rotary)
        with Traffic() as backward:
            output.sum().backward()
        found[plan] = (forward.elements, backward.elements, forward.calls, backward.calls)
    return found


def stock_difference() -> dict[str, bool]:
    """Whether `tp_sp` gives the same bits as stock layers with the same norm: output and every gradient, by family."""
    num_ranks = torch.distributed.get_world_size()
    start_model_parallel(num_ranks)
    return {f"{family} {plan}": _same_bits(family, plan) for family in ("gpt", "llama") for plan in ("tp_sp", "none")}


def _same_bits(family: str, plan: str) -> bool:
    num_ranks = torch.distributed.get_world_size()
    ours = build(family, torch.float32, num_ranks).decoder
    config = make_config(family, torch.float32, num_ranks)
    stock = TransformerBlock(config, stock_layer_spec(config))
    stock.load_state_dict(ours.state_dict())
    rotary = torch.randn(2 * num_ranks * HALF_CHUNKS, 1, 1, 4) if family == "llama" else None
    hidden = torch.randn(2 * HALF_CHUNKS, BATCH, 48)
    results = []
    for block in (ours, stock):
        block_input = hidden.clone().requires_grad_()
        if block is ours and plan != "none":
            with use_plan(Plan.parse(plan, NUM_LAYERS)):
                output = block(block_input, None, rotary_pos_emb=rotary)
        else:
            output = block(block_input, None, rotary_pos_emb=rotary)
        output.square().sum().backward()
        results.append([output.detach(), block_input.grad, *(p.grad for p in block.parameters())])
    return len(results[0]) > 20 and all(torch.equal(a, b) for a, b in zip(*results, strict=True))


def refusals() -> dict[str, str]:
    """What a strategy says to attention that is not plain and causal, by case."""
    num_ranks = torch.distributed.get_world_size()
    start_model_parallel(num_ranks)
    decoder = build("gpt", torch.float32, num_ranks).decoder
    length = 2 * HALF_CHUNKS * num_ranks
    causal = torch.ones(1, 1, length, length, dtype=torch.bool).triu(1)
    window = causal | causal.new_ones(length, length).tril(-4)
    cases: dict[str, tuple[Any, dict[str, Any]]] = {
        "causal": (causal, {}),
        "window": (window, {}),
        "bias": (None, {"attention_bias": torch.zeros(1)}),
    }
    found = {}
    for name, (mask, keywords) in cases.items():
        for plan in ("ulysses", "ring", *(["ring+selective"] if name == "causal" else [])):
            try:
                with use_plan(Plan.parse(plan, NUM_LAYERS)):
                    decoder(torch.randn(2 * HALF_CHUNKS, 1, 48), mask, **keywords)
                found[f"{name} {plan}"] = "accepted"
            except ValueError as error:
                found[f"{name} {plan}"] = str(error)
    return found


def influence_of_the_first_token(plans: list[str]) -> dict[str, float]:
    """How much the last token's output moves when the first token changes: attention really spans the sequence."""
    num_ranks = torch.distributed.get_world_size()
    start_model_parallel(num_ranks)
    decoder = build("gpt", torch.float64, num_ranks).decoder
    first, last = parallel_state.get_tensor_model_parallel_rank() == 0, -1
    found = {}
    for plan in plans:
        outputs = []
        for change in (0.0, 1.0):
            hidden = torch.randn(
                2 * HALF_CHUNKS, 1, 48, dtype=torch.float64, generator=torch.Generator().manual_seed(3)
            )
            if first:
                hidden[0] += change * hidden[1]
            with use_plan(Plan.parse(plan, NUM_LAYERS)), torch.no_grad():
                outputs.append(decoder(hidden, None)[last])
        found[plan] = (outputs[0] - outputs[1]).abs().max().item()
    return found
