"""Streamed shards, and the strategies that use them, on plain tensors. Run by hand: see `tests.ranks`."""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from paradyse_megatron.comm.streamed import GradientsToOwners, ShardStream
from paradyse_megatron.strategies.attention.geometry import AttentionShards, Geometry, HeadPreparation, keep_heads
from paradyse_megatron.strategies.attention.metp import metp_attention
from paradyse_megatron.strategies.attention.ring import ring_attention
from paradyse_megatron.strategies.mlp.gathered import MlpShards, gathered_mlp
from paradyse_megatron.strategies.mlp.streamed import streamed_mlp
from tests.strategies import workers

HEADS, GROUPS, HEAD_DIM, HIDDEN, FFN, BATCH = 24, 12, 8, 40, 96, 3
QKV = (HEADS + 2 * GROUPS) * HEAD_DIM
GEOMETRY = Geometry(HEADS, GROUPS, HEAD_DIM, 0.3)
ATTENTION_TOKENS, MLP_TOKENS = 10, 11  # of a rank


def findings() -> dict[str, Any]:
    """Everything that is seen on this rank, so that one launch serves all tests."""
    return {
        "mlp": mlp_errors(),
        "prepared": prepared_differences(),
        "refusals": refusals() if dist.get_world_size() > 1 else {},
        "stream": stream_history(),
        "returned": returned_gradients(),
        "parameters": parameters_afterwards(),
        "largest": largest_tensors(),
        "bf16": half_precision_errors(),
    }


def mlp_errors() -> dict[str, float]:
    """Worst relative error of the streamed MLP against one device: odd token counts, gated or not, expanded or not."""
    found = {}
    for gated, batch, expanded in ((False, 1, True), (False, 3, False), (True, 3, True), (True, 1, False)):
        errors = workers.mlp_errors(5, batch, gated, "float64", expanded)
        found[f"{gated} {batch} {expanded}"] = max(error for name, error in errors.items() if "streamed" in name)
    return found


def prepared_differences() -> dict[str, float]:
    """`metp` against `ring` with q/k norms and rotation: worst relative difference of any local tensor.

    Local gradients of the norms are compared too: both strategies give a rank its own tokens' share.
    """
    found = {}
    for case, frozen in (("all", ()), ("frozen", ("key_norm", "qkv_weight")), ("no bias", ("qkv_bias",))):
        results = []
        for strategy in (ring_attention, metp_attention):
            local = _attention_tensors(frozen)
            bias = None if case == "no bias" else local["qkv_bias"]
            shards = AttentionShards(local["qkv_weight"], bias, local["proj_weight"])
            names = local["query_norm"], local["key_norm"]
            preparation = HeadPreparation(_normalise_and_rotate(*names), names)
            output = strategy(local["hidden"], shards, GEOMETRY, dist.group.WORLD, preparation)
            output.square().sum().backward()
            results.append({"output": output.detach()} | {name: tensor.grad for name, tensor in local.items()})
        ring, metp = results
        assert all((metp[name] is None) == (ring[name] is None) for name in ring)
        assert all(metp[name] is None for name in frozen)
        found[case] = max(_difference(metp[name], ring[name]) for name in ring if ring[name] is not None)
    return found


def refusals() -> dict[str, str]:
    """What `metp` says to a preparation whose parameters it cannot know, and to a key/value head for several ranks."""
    local = _attention_tensors()
    few = Geometry(HEADS, 1, HEAD_DIM, 0.3)
    found = {}
    for case, geometry, prepare in (
        ("unnamed", GEOMETRY, _normalise_and_rotate(local["query_norm"], local["key_norm"])),
        ("few keys", few, keep_heads),
    ):
        try:
            metp_attention(local["hidden"], _attention_shards(local), geometry, dist.group.WORLD, prepare)
        except ValueError as error:
            found[case] = str(error)
    return found


def stream_history() -> list[dict[str, Any]]:
    """For each owner: the values seen, broadcasts begun by then, and which buffers held the shards."""
    rank = dist.get_rank()
    weight, bias = torch.full((3, 5), rank + 1.0), torch.full((3,), rank + 0.5)
    history = []
    with _Calls() as calls:
        for owner, (first, none, second) in ShardStream((weight, None, bias), dist.group.WORLD).owners():
            history.append(
                {
                    "owner": owner,
                    "values": (first.unique().tolist(), none, second.unique().tolist()),
                    "begun": calls.count,
                    "received_in": None if owner == rank else (first.data_ptr(), second.data_ptr()),
                }
            )
    assert torch.equal(weight, torch.full((3, 5), rank + 1.0)) and torch.equal(bias, torch.full((3,), rank + 0.5))
    return history


def returned_gradients() -> tuple[list[float], list[float] | None, bool]:
    """Own shards' sums of rank-and-owner dependent gradients; a parameter without gradients; Megatron's flag after."""
    rank, num_ranks = dist.get_rank(), dist.get_world_size()
    weight = torch.zeros(2, 3)
    weight.grad_added_to_main_grad = True
    gradients = GradientsToOwners(ShardStream((weight, torch.zeros(2)), dist.group.WORLD))
    for owner in range(num_ranks):
        gradients.start(owner, 0, torch.full((3, 2), 100.0 * owner + rank).t())
    own, nothing = gradients.finish()
    return own.unique().tolist(), nothing, weight.grad_added_to_main_grad


def parameters_afterwards() -> bool:
    """Whether every parameter is bit-identical after forward and backward, which broadcast from its memory."""
    local = _attention_tensors() | _mlp_tensors()
    before = {name: tensor.detach().clone() for name, tensor in local.items()}
    attended = metp_attention(local["hidden"], _attention_shards(local), GEOMETRY, dist.group.WORLD)
    streamed_mlp(attended, _mlp_shards(local), dist.group.WORLD, _swiglu).sum().backward()
    return all(torch.equal(before[name], local[name]) for name in before)


def largest_tensors() -> dict[str, int]:
    """Elements of the largest storage that any operation of forward or backward puts out, by strategy."""
    group = dist.group.WORLD
    local = _attention_tensors() | _mlp_tensors()
    hidden = torch.randn(MLP_TOKENS, BATCH, HIDDEN, dtype=torch.float64, requires_grad=True)
    runs = {
        "metp": lambda: metp_attention(local["hidden"], _attention_shards(local), GEOMETRY, group),
        "ring": lambda: ring_attention(local["hidden"], _attention_shards(local), GEOMETRY, group),
        "streamed": lambda: streamed_mlp(hidden, _mlp_shards(local), group, _swiglu),
        "gathered": lambda: gathered_mlp(hidden, _mlp_shards(local), group, _swiglu),
    }
    found = {}
    for name, run in runs.items():
        with _Largest() as largest:
            run().sum().backward()
        found[name] = largest.num_elements
    return found


def half_precision_errors() -> dict[str, float]:
    """Relative errors of outputs and input gradients in bf16, against the same strategy in fp64 on the same numbers."""
    exact = _whole(_attention_tensors) | _whole(_mlp_tensors)
    errors = {}
    for name, run in {
        "metp": lambda local: metp_attention(local["hidden"], _attention_shards(local), GEOMETRY, dist.group.WORLD),
        "streamed": lambda local: streamed_mlp(local["hidden"], _mlp_shards(local), dist.group.WORLD, _swiglu),
    }.items():
        results = []
        for dtype in (torch.float64, torch.bfloat16):
            local = {key: tensor.bfloat16().to(dtype).requires_grad_() for key, tensor in exact.items()}
            output = run(local)
            (output * torch.linspace(-1, 1, HIDDEN).to(dtype)).sum().backward()
            results.append((output.detach(), local["hidden"].grad))
        (output, grad), (rounded_output, rounded_grad) = results
        errors[f"{name} output"] = _difference(rounded_output.double(), output)
        errors[f"{name} gradient"] = _difference(rounded_grad.double(), grad)
    return errors


class _Calls(TorchDispatchMode):
    """Counts collectives."""

    def __init__(self) -> None:
        super().__init__()
        self.count = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.count += func.namespace == "c10d"
        return func(*args, **(kwargs or {}))


class _Largest(TorchDispatchMode):
    """Elements of the largest storage among the outputs of all operations."""

    def __init__(self) -> None:
        super().__init__()
        self.num_elements = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        outputs = func(*args, **(kwargs or {}))
        for output in outputs if isinstance(outputs, (tuple, list)) else (outputs,):
            if isinstance(output, Tensor):
                stored = output.untyped_storage().nbytes() // output.element_size()
                self.num_elements = max(self.num_elements, stored)
        return outputs


def _attention_tensors(frozen: tuple[str, ...] = ()) -> dict[str, Tensor]:
    """This rank's shards of seeded tensors, and the q/k norms, which are the same everywhere."""
    num_ranks = dist.get_world_size()
    whole = workers._random(
        {
            "hidden": (ATTENTION_TOKENS * num_ranks, BATCH, HIDDEN),
            "qkv_weight": (QKV, HIDDEN),
            "qkv_bias": (QKV,),
            "proj_weight": (HIDDEN, HEADS * HEAD_DIM),
            "query_norm": (HEAD_DIM,),
            "key_norm": (HEAD_DIM,),
        },
        torch.float64,
    )
    local = workers._shards(whole, {"hidden": 0, "qkv_weight": 0, "qkv_bias": 0, "proj_weight": 1}, dist.group.WORLD)
    local |= {name: whole[name].detach().clone().requires_grad_() for name in ("query_norm", "key_norm")}
    return {name: tensor.requires_grad_(name not in frozen) for name, tensor in local.items()}


def _mlp_tensors() -> dict[str, Tensor]:
    whole = workers._random(
        {"fc1_weight": (2 * FFN, HIDDEN), "fc1_bias": (2 * FFN,), "fc2_weight": (HIDDEN, FFN)}, torch.float64
    )
    return workers._shards(whole, {"fc1_weight": 0, "fc1_bias": 0, "fc2_weight": 1}, dist.group.WORLD)


def _whole(make: Any) -> dict[str, Tensor]:
    return {name: tensor.detach() for name, tensor in make().items()}


def _attention_shards(local: dict[str, Tensor]) -> AttentionShards:
    return AttentionShards(local["qkv_weight"], local["qkv_bias"], local["proj_weight"])


def _mlp_shards(local: dict[str, Tensor]) -> MlpShards:
    return MlpShards(local["fc1_weight"], local["fc1_bias"], local["fc2_weight"])


def _swiglu(intermediate: Tensor) -> Tensor:
    gate, linear = intermediate.chunk(2, -1)
    return F.silu(gate) * linear


def _normalise_and_rotate(query_norm: Tensor, key_norm: Tensor) -> Any:
    """q/k RMS norms with weights, then a rotation by each token's position, as a model's rotary embedding does."""

    def rotate(heads: Tensor, positions: Any) -> Tensor:
        length = ATTENTION_TOKENS * dist.get_world_size()
        angles = (0.1 * torch.arange(length, dtype=heads.dtype))[positions].view(-1, 1, 1, 1)
        even, odd = heads.chunk(2, -1)
        return torch.cat((even * angles.cos() - odd * angles.sin(), odd * angles.cos() + even * angles.sin()), -1)

    def prepare(query: Tensor, key: Tensor, positions: Any) -> tuple[Tensor, Tensor]:
        return (
            rotate(F.rms_norm(query, (HEAD_DIM,), query_norm), positions),
            rotate(F.rms_norm(key, (HEAD_DIM,), key_norm), positions),
        )

    return prepare


def _difference(found: Tensor, expected: Tensor) -> float:
    return ((found - expected).norm() / expected.norm()).item()
