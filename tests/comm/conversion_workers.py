"""Conversions over a real process group. Run by hand: see `tests.ranks`."""

from __future__ import annotations

import ctypes
import gc
import logging
import logging.handlers
import random
import time
import weakref

import numpy as np
import torch
import torch.distributed as dist
from megatron.core.models.common.embeddings.rope_utils import _apply_rotary_pos_emb_bshd

from paradyse_megatron.comm import windows
from paradyse_megatron.comm.conversion import convert
from paradyse_megatron.comm.rotary import Rotation
from paradyse_megatron.comm.subgroups import Subgroup
from paradyse_megatron.comm.zigzag import local_zigzag_positions
from paradyse_megatron.layouts.blocks import block_plan
from paradyse_megatron.layouts.conversion import Conversion, context_to_tokens, contiguous_to_zigzag, qkv_to_heads
from paradyse_megatron.layouts.head_layouts import AttentionSizes
from paradyse_megatron.layouts.heads import HeadDealing
from paradyse_megatron.layouts.subgroups import ring_of
from tests.comm.chosen import choose


def exchanged(names: list[str]) -> dict[str, bool]:
    """Whether conversions and their gradients put every element where the integer plan says, by executor and case."""
    found = {}
    for name in names:
        choose(name if name != "mixed" else ["host", "torch"][dist.get_rank() % 2])
        for case, (conversion, peers, by_tokens_first) in _cases().items():
            found[f"{name} {case}"] = _equals_plan(conversion, peers, by_tokens_first)
    return found


def _cases():
    """Conversion, peers, whether its source is the layout by tokens."""
    world, num_ranks = dist.group.WORLD, dist.get_world_size()
    cases = {}
    for heads, groups in ((2 * num_ranks, num_ranks), (6 * num_ranks, 3 * num_ranks), (num_ranks, 1)):
        sizes = AttentionSizes(HeadDealing(heads, groups, num_ranks), 3, 5, 2)
        cases[f"qkv {heads}/{groups}"] = (qkv_to_heads(sizes), world, True)
        cases[f"context {heads}"] = (context_to_tokens(sizes), world, False)
    cases["zigzag"] = (contiguous_to_zigzag(num_ranks, 1, 7), world, True)
    cases["from zigzag"] = (contiguous_to_zigzag(num_ranks, 1, 7).inverse, world, False)
    if num_ranks % 2 == 0:
        cases["zigzag of pairs"] = (contiguous_to_zigzag(num_ranks, 2, 3), world, True)
        first = dist.get_rank() // 2 * 2
        pair = Subgroup(world, (first, first + 1))
        cases["qkv in pairs"] = (qkv_to_heads(AttentionSizes(HeadDealing(4, 2, 2), 3, 5, 2)), pair, True)
    return cases


def _equals_plan(conversion: Conversion, peers, by_tokens_first: bool) -> bool:
    num_ranks, rank = peers.size(), peers.rank()
    ends = (conversion.source, conversion.target)
    by_tokens, other = ends if by_tokens_first else ends[::-1]
    plan = block_plan(by_tokens, other, num_ranks)
    plan = plan if by_tokens_first else plan.inverse()
    whole = [_numbers(conversion.source, place) for place in range(num_ranks)]
    mine = [tensor.requires_grad_() for tensor in _split(torch.from_numpy(whole[rank]).clone(), conversion.source)]
    outputs = convert(conversion, peers, *mine)
    expected = _moved(whole, plan, rank, conversion.target)
    forward = np.array_equal(_flat(outputs), expected)
    weights = [_numbers(conversion.target, place) for place in range(num_ranks)]
    given = _split(torch.from_numpy(weights[rank]), conversion.target)
    torch.autograd.backward(outputs, given)
    backward = np.array_equal(
        _flat([tensor.grad for tensor in mine]), _moved(weights, plan.inverse(), rank, conversion.source)
    )
    shapes = [tuple(output.shape) for output in outputs] == list(conversion.target.shapes)
    return forward and backward and shapes


def _numbers(layout, place: int) -> np.ndarray:
    """A number for each element of a rank, different on every rank; small enough that sums of copies are exact."""
    return np.arange(_num_elements(layout), dtype=np.float64) * 16 + place


def _num_elements(layout) -> int:
    return sum(int(np.prod(shape)) for shape in layout.shapes)


def _split(flat: torch.Tensor, layout) -> list[torch.Tensor]:
    parts = flat.split([int(np.prod(shape)) for shape in layout.shapes])
    return [part.view(shape).detach() for part, shape in zip(parts, layout.shapes, strict=True)]


def _flat(tensors) -> np.ndarray:
    return np.concatenate([tensor.detach().numpy().ravel() for tensor in tensors])


def _moved(whole: list[np.ndarray], plan, rank: int, layout) -> np.ndarray:
    result = np.zeros(_num_elements(layout))
    for source, pairs in enumerate(plan.direct):
        for start, stop, length in pairs[rank]:
            result[stop : stop + length] += whole[source][start : start + length]
    return result


def rotated(names: list[str]) -> dict[str, bool]:
    """Whether a conversion that rotates gives what converting and rotating by Megatron's formula do, by case."""
    found = {}
    for name in names:
        choose(name if name != "mixed" else ["host", "torch"][dist.get_rank() % 2])
        for case, (conversion, peers, positions) in _rotary_cases().items():
            for interleaved, num_rotated in ((False, 8), (True, 4)):
                found[f"{name} {case} {interleaved}"] = _rotates(conversion, peers, positions, interleaved, num_rotated)
    return found


def _rotary_cases():
    """Conversion, peers, positions of the tokens of all peers."""
    world, num_ranks = dist.group.WORLD, dist.get_world_size()
    cases = {}
    for heads, groups in ((2 * num_ranks, num_ranks), (6 * num_ranks, 3 * num_ranks), (num_ranks, 1)):
        sizes = AttentionSizes(HeadDealing(heads, groups, num_ranks), 8, 5, 2)
        cases[f"qkv {heads}/{groups}"] = (qkv_to_heads(sizes), world, slice(0, 5 * num_ranks))
    if num_ranks % 2 == 0:
        first = dist.get_rank() // 2 * 2
        pair, ring = Subgroup(world, (first, first + 1)), Subgroup(world, ring_of(dist.get_rank(), num_ranks, 2))
        sizes = AttentionSizes(HeadDealing(4, 2, 2), 8, 5, 2)
        cases["zigzag in pairs"] = (qkv_to_heads(sizes), pair, local_zigzag_positions(10, ring))
    return cases


def _rotates(conversion: Conversion, peers, positions, interleaved: bool, num_rotated: int) -> bool:
    """In fp32, to the last bit."""
    angles = torch.arange(40).outer(10_000 ** (-torch.arange(num_rotated) / num_rotated))
    (mine,) = _split(torch.from_numpy(_numbers(conversion.source, peers.rank())).float().sin(), conversion.source)
    both = []
    for fused in (True, False):
        local = mine.clone().requires_grad_()
        rotation = Rotation(angles, positions, interleaved) if fused else None
        query, key, value = convert(conversion, peers, local, rotation=rotation)
        if not fused:
            query, key = (
                _apply_rotary_pos_emb_bshd(each, angles[positions][:, None, None], rotary_interleaved=interleaved)
                for each in (query, key)
            )
        numbers = [torch.arange(each.numel()).view(each.shape).cos() for each in (query, key, value)]
        torch.autograd.backward((query, key, value), numbers)
        both.append((query.detach(), key.detach(), value.detach(), local.grad))
    return all(torch.equal(one, other) for one, other in zip(*both, strict=True))


def delayed(name: str, num_calls: int, share_of_late: float, most_ms: float) -> int:
    """Calls in which every byte was right, while each rank waits at random before some of its calls."""
    choose(name)
    num_ranks, rank = dist.get_world_size(), dist.get_rank()
    waits, lengths = random.Random(rank), random.Random(0)
    right = 0
    for call in range(num_calls):
        if waits.random() < share_of_late:
            time.sleep(waits.random() * most_ms / 1000)
        num_tokens = lengths.randrange(1, 9)
        sizes = AttentionSizes(HeadDealing(2 * num_ranks, num_ranks, num_ranks), 4, num_tokens, 1)
        # The number of a call, token and column; the same on whichever rank it is.
        tokens = torch.arange(num_ranks * num_tokens)[:, None, None] * 100 + call * 100_000
        local = tokens[rank * num_tokens : (rank + 1) * num_tokens] + torch.arange(16 * num_ranks)
        query, key, value = convert(qkv_to_heads(sizes), dist.group.WORLD, local)
        columns = (torch.arange(16).view(4, 4) + rank * 16)[None, None]
        expected = (tokens[..., None] + columns).split([2, 1, 1], dim=2)
        right += all(torch.equal(one, other) for one, other in zip((query, key, value), expected, strict=True))
    return right


def resident_bytes(name: str, num_lengths: int) -> tuple[int, int]:
    """This process's resident memory after 20 distinct lengths and after all, the longest being among the first."""
    choose(name)
    lengths = list(range(1, num_lengths + 1))
    random.Random(0).shuffle(lengths)
    lengths.sort(key=lambda length: length != num_lengths)
    dealing = HeadDealing(8, 4, dist.get_world_size())
    found = []
    for count, length in enumerate(lengths, 1):
        mixed = torch.zeros(length, 1, 16 * 64, requires_grad=True)
        query, key, value = convert(qkv_to_heads(AttentionSizes(dealing, 64, length, 1)), dist.group.WORLD, mixed)
        (query.sum() + key.sum() + value.sum()).backward()
        if count in (20, num_lengths):
            found.append(_resident())
    return found[0], found[1]


def windows_over_lengths(num_lengths: int, step: int) -> dict[str, object]:
    """Of an exchange by direct stores with ever longer sequences: what is kept, and whether every byte was right."""
    choose("symm")
    num_ranks, rank = dist.get_world_size(), dist.get_rank()
    made, window_bytes = [], []
    right = 0
    for length in range(step, (num_lengths + 1) * step, step):
        conversion = qkv_to_heads(AttentionSizes(HeadDealing(num_ranks, num_ranks, num_ranks), 512, length, 1))
        local = torch.full(conversion.source.shapes[0], float(rank * 10_000 + length))
        wanted = (torch.arange(num_ranks) * 10_000 + length).view(-1, 1, 1, 1, 1).float()
        by_rank = [each.unflatten(0, (num_ranks, length)) for each in convert(conversion, dist.group.WORLD, local)]
        right += all(torch.equal(each, wanted.expand_as(each)) for each in by_rank)
        (workspace,) = windows._workspaces[dist.group.WORLD].values()
        if not any(each() is workspace.memory for each in made):
            made.append(weakref.ref(workspace.memory))
            window_bytes.append(workspace.window_bytes)
    alive = sum(each() is not None for each in made)
    return {"right": right, "alive": alive, "window_bytes": window_bytes}


def sets_of_ranks(num_rounds: int) -> int:
    """Workspaces after exchanges among all ranks and, in turn, among pairs of them, every byte of which was right."""
    choose("symm")
    for _ in range(num_rounds):
        for case, (conversion, peers, by_tokens_first) in _cases().items():
            assert _equals_plan(conversion, peers, by_tokens_first), case
    return sum(len(of_group) for of_group in windows._workspaces.values())


def unreachable() -> tuple[list[str], bool, int]:
    """Where rank 1 alone cannot share memory: what each rank logs, whether all conversions are right, their number."""
    choose("symm")
    told = logging.handlers.BufferingHandler(1000)
    logging.getLogger("paradyse_megatron").addHandler(told)

    def none_on_rank_1(num_bytes, group, device):
        def attempt():
            if dist.get_rank() == 1:
                raise OSError("no such\n memory")
            return torch.zeros(1)

        return windows.on_all_ranks(attempt, group), [0] * group.size()

    windows.allocators["cpu"] = none_on_rank_1
    right = all(_equals_plan(*case) for case in _cases().values())
    return [record.getMessage() for record in told.buffer], right, len(_cases())


def _resident() -> int:
    """Bytes, after the allocator has given back what is free."""
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) * 1024 for line in status if line.startswith("VmRSS"))
