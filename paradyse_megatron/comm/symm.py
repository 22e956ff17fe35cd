"""The `symm` executor: conversions by stores straight into the tensors of peers, in memory that all ranks reach.

Instead of packing, an all-to-all and unpacking, one kernel stores what a rank holds into its peers' windows, where it
lies as in the target layout; another exchanges signals (`csrc/kernels/direct.cu`). What came is then taken out of the
window by one plain copy, as autograd keeps it for longer than a window can be kept; or, where copies are added up, by
the kernel that does so. All else, and groups whose ranks do not reach each other's memory, are left to `comm.cuda`.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from datetime import timedelta

import numpy as np
import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensor

from paradyse_megatron.comm import cuda
from paradyse_megatron.comm.launch import meeting, stores
from paradyse_megatron.comm.rotary import Rotation, integers_of, nested, rotary_of, turning_of
from paradyse_megatron.comm.subgroups import Peers
from paradyse_megatron.comm.windows import Workspace, allocators, workspace
from paradyse_megatron.layouts.conversion import Conversion
from paradyse_megatron.layouts.direct import PeerSection, landed_sections, landing_of, peer_sections
from paradyse_megatron.layouts.head_layouts import HeadsQkv, TokensQkv
from paradyse_megatron.layouts.rotary import UNROTATED, TokenPlaces, token_places
from paradyse_megatron.layouts.section import Strides, table

pack, unpack, copy_, empty = cuda.pack, cuda.unpack, cuda.copy_, cuda.empty


def unavailable_reason(local_ranks: int) -> str | None:
    """Why no group can use it here, a clause; what kernels need is asked of `cuda`."""
    try:
        import torch.distributed._symmetric_memory
    except ImportError as error:
        return f"this torch has no symmetric memory ({error})"
    gpus = range(min(local_ranks, torch.cuda.device_count()))
    apart = [(one, other) for one in gpus for other in gpus if one != other and not _reaches(one, other)]
    if apart:
        return f"GPU {apart[0][0]} does not reach the memory of GPU {apart[0][1]}"
    return None


def _reaches(one: int, other: int) -> bool:
    return bool(torch.cuda.can_device_access_peer(one, other))


def converted(
    conversion: Conversion, peers: Peers, tensors: Sequence[Tensor], rotation: Rotation | None = None
) -> tuple[Tensor, ...] | None:
    """The tensors of this rank in the target layout; None if the peers cannot do it without a wire."""
    first = tensors[0]
    if peers.size() == 1 or not all(map(_is_reached, tensors)):
        return None
    needed = landing_of(conversion.target).num_elements * first.element_size()
    found = workspace(peers, first.device, needed)
    if found is None:
        return None
    send(conversion, tensors, found, rotation)
    return take(conversion, found, first)


def send(conversion: Conversion, tensors: Sequence[Tensor], among: Workspace, rotation: Rotation | None = None) -> None:
    """Store what this rank holds into the peers' next window, rotated on its way, and wait until theirs has come."""
    tensors = [tensor if tensor.stride(-1) == 1 else tensor.contiguous() for tensor in tensors]
    if rotation is not None:
        tensors = list(map(nested, tensors))
    strides = tuple(tensor.stride() for tensor in tensors)
    how = None
    if rotation is None:
        integers, first_peers = _table(conversion, among.rank, strides)
    else:
        integers, first_peers, places, first_token = _rotary_table(conversion, among.rank, strides)
        how = turning_of(rotation, conversion.source, first_token, places, tensors[0].dtype)
    among.advance()
    torch.ops.paradyse.store(
        tensors, among.memory, among.peers, integers, first_peers, among.window_bytes, among.number, *integers_of(how)
    )
    limit_ns = among.limit // timedelta(microseconds=1) * 1000
    torch.ops.paradyse.meet(among.memory, among.peers, among.rank, among.number, limit_ns)


def take(conversion: Conversion, among: Workspace, like: Tensor) -> tuple[Tensor, ...]:
    """What came by the last exchange, in fresh tensors of the type of `like`."""
    landing = landing_of(conversion.target)
    window = among.window(landing.num_elements, like.dtype)
    if landing.is_wire:
        (shape,) = landing.shapes
        return cuda.unpack(window[: shape[0] * shape[1]].view(shape), conversion.target, among.rank)
    taken = cuda.empty(tuple(window.shape), like)
    taken.copy_(window)
    return tuple(
        taken[start : start + shape.numel()].view(shape)
        for start, shape in zip(landing.starts, map(torch.Size, landing.shapes), strict=True)
    )


@functools.lru_cache(maxsize=256)
def _table(conversion: Conversion, rank: int, strides: tuple[Strides, ...]) -> tuple[list[int], list[int]]:
    """The integers of all sections, and the first peer of each."""
    return _as_lists(peer_sections(conversion, rank, strides))


@functools.lru_cache(maxsize=256)
def _rotary_table(
    conversion: Conversion, rank: int, strides: tuple[Strides, ...]
) -> tuple[list[int], list[int], tuple[TokenPlaces, ...], int]:
    """The same with what is rotated apart, how each section tells tokens, and the first token."""
    layout = conversion.source
    assert isinstance(layout, TokensQkv | HeadsQkv)
    of_end = layout.rotary_sections(rank, strides)
    rotated, copied = (landed_sections(conversion, rank, part) for part in (of_end.rotated, of_end.copied))
    tensors = [one.section.tensor for one in rotated]
    places = [token_places(layout.shapes[tensor], strides[tensor]) for tensor in tensors]
    return *_as_lists((*rotated, *copied)), (*places, *[UNROTATED] * len(copied)), of_end.first_token


def _as_lists(found: Sequence[PeerSection]) -> tuple[list[int], list[int]]:
    integers = np.frombuffer(table([one.section for one in found]), np.int64)
    return integers.tolist(), [one.first_peer for one in found]


def _is_reached(tensor: Tensor) -> bool:
    return cuda.reaches(tensor) and tensor.device.type in allocators and not isinstance(tensor, FakeTensor)


def register(device_type: str) -> None:
    """Let the operators run on tensors of such devices, by the launcher that `cuda.register` was given."""
    launcher, most_blocks = cuda.launchers[device_type]

    def store(
        tensors: Sequence[Tensor],
        memory: Tensor,
        peers: Tensor,
        table: Sequence[int],
        first_peers: Sequence[int],
        window_bytes: int,
        number: int,
        turning: Sequence[Tensor],
        rotary: Sequence[int],
    ) -> None:
        addresses = [tensor.data_ptr() for tensor in tensors]
        where = (peers.data_ptr(), peers.numel(), window_bytes, number)
        kind = (tensors[0].element_size(), str(tensors[0].dtype).removeprefix("torch."))
        most, how = most_blocks(memory.device), rotary_of(turning, rotary)
        for launch in stores(table, first_peers, addresses, *where, *kind, most, how):
            launcher(launch, memory.device)

    def meet(memory: Tensor, peers: Tensor, rank: int, number: int, limit_ns: int) -> None:
        launcher(meeting(peers.data_ptr(), peers.numel(), rank, number, limit_ns), memory.device)

    _library.impl("store", store, device_type.upper())
    _library.impl("meet", meet, device_type.upper())


_library = torch.library.Library("paradyse", "FRAGMENT")
_library.define(
    "store(Tensor[] tensors, Tensor(a!) memory, Tensor peers, int[] table, int[] first_peers, int window_bytes, "
    "int number, Tensor[] turning, int[] rotary) -> ()"
)
_library.define("meet(Tensor(a!) memory, Tensor peers, int rank, int number, int limit_ns) -> ()")
for _name in ("paradyse::store", "paradyse::meet"):
    torch.library.register_fake(_name, lambda *arguments: None)  # they write into what is there
register("cuda")
