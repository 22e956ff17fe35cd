"""Workspaces in memory that all ranks of a group reach: a pad of signals and two windows (`csrc/kernels/workspace.h`).

One for each set of ranks that exchanges with each other, whatever lengths come: it grows, by half at least, and what it
was before is let go.
"""

from __future__ import annotations

import logging
import socket
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import Any
from weakref import WeakKeyDictionary

import torch
import torch.distributed as dist
from torch import Tensor

from paradyse_megatron.comm.collectives import Group
from paradyse_megatron.comm.subgroups import Peers, Subgroup, process_group

logger = logging.getLogger(__name__)

_SIGNAL_BYTES = 8
_PAD_MULTIPLE = 256
_WINDOW_MULTIPLE = 1 << 20
_WINDOWS = 2


@dataclass
class Workspace:
    """This rank's, and where to find those of its peers.

    Attributes:
        memory: this rank's, bytes.
        peers: [P] the addresses where each peer's begins, as seen from here; on the device.
        rank: this rank's place among them.
        window_bytes: of each window.
        limit: to wait for a peer.
        number: of the last exchange.
        stream: on which that ran, on a GPU.
    """

    memory: Tensor
    peers: Tensor
    rank: int
    window_bytes: int
    limit: timedelta
    number: int = 0
    stream: Any = None

    def window(self, num_elements: int, dtype: torch.dtype) -> Tensor:
        """What came by the last exchange, until the next but one."""
        start = start_of_window(self.peers.numel(), self.window_bytes, self.number)
        return self.memory[start:][: num_elements * dtype.itemsize].view(dtype)

    def advance(self) -> None:
        """Begin the next exchange, after all that the last one does on its stream."""
        self.number += 1
        if self.memory.is_cuda:
            stream = torch.cuda.current_stream(self.memory.device)
            if self.stream is not None and self.stream != stream:
                stream.wait_stream(self.stream)
            self.stream = stream


def start_of_window(num_peers: int, window_bytes: int, number: int) -> int:
    """Of an exchange in a workspace, bytes; the twin of `csrc/kernels/workspace.h`."""
    pad_bytes = -(-num_peers * _SIGNAL_BYTES // _PAD_MULTIPLE) * _PAD_MULTIPLE
    return pad_bytes + number % _WINDOWS * window_bytes


def bytes_of_workspace(num_peers: int, window_bytes: int) -> int:
    """Of a pad and its windows."""
    return start_of_window(num_peers, window_bytes, 0) + _WINDOWS * window_bytes


Allocate = Callable[[int, Group, torch.device], tuple[Tensor, list[int]]]
"""(bytes, group, device): zeros that the whole group reaches, and the addresses of all ranks' ones. A collective, which
raises ValueError with a clause on all ranks alike."""

allocators: dict[str, Allocate] = {}
"""By device type."""

_workspaces: WeakKeyDictionary[Group, dict[tuple[tuple[int, ...], torch.device], Workspace | None]] = (
    WeakKeyDictionary()
)


def workspace(peers: Peers, device: torch.device, needed_bytes: int) -> Workspace | None:
    """With windows of so many bytes; None where the ranks do not reach each other's memory, said once.

    All ranks of the process group call this alike: making or growing one is a collective.
    """
    group = process_group(peers)
    members = peers.members if isinstance(peers, Subgroup) else tuple(range(group.size()))
    of_group = _workspaces.setdefault(group, {})
    key = (members, device)
    found = of_group.get(key)
    if key in of_group and (found is None or found.window_bytes >= needed_bytes):
        return found
    window_bytes = max(needed_bytes, found.window_bytes * 3 // 2 if found else 0)
    if found is not None and device.type == "cuda":
        torch.cuda.synchronize(device)  # all has come that peers store into the one that is let go
    found = of_group[key] = None  # before the next is made
    try:
        found = _made(group, members, device, -(-window_bytes // _WINDOW_MULTIPLE) * _WINDOW_MULTIPLE)
    except ValueError as error:
        logger.warning("layout conversions among ranks %s of %s go through a collective: %s", members, group, error)
    of_group[key] = found
    return found


def _made(group: Group, members: tuple[int, ...], device: torch.device, window_bytes: int) -> Workspace:
    hosts = _gathered(socket.gethostname(), group)
    if len(set(hosts)) > 1:
        raise ValueError(f"its ranks are on {len(set(hosts))} hosts, and direct stores stay within one")
    num_bytes = bytes_of_workspace(len(members), window_bytes)
    memory, addresses = allocators[device.type](num_bytes, group, device)
    assert all(address % 16 == 0 for address in addresses), "kernels store 16 bytes at a time"
    peers = torch.tensor([addresses[member] for member in members], dtype=torch.int64).to(device)
    return Workspace(memory, peers, members.index(group.rank()), window_bytes, _limit(group, device))


def on_all_ranks[Made](attempt: Callable[[], Made], group: Group) -> Made:
    """What `attempt` makes if it makes it on all ranks; raises ValueError with a clause on all of them if not."""
    made: Made | None = None
    reason = None
    try:
        made = attempt()
    except Exception as error:  # of a driver, of torch, or for want of memory
        reason = f"{type(error).__name__}: {' '.join(str(error).split())[:300]}"
    for rank, found in enumerate(_gathered(reason, group)):
        if found is not None:
            raise ValueError(f"rank {rank} cannot share memory ({found})")
    assert made is not None
    return made


def _symmetric(num_bytes: int, group: Group, device: torch.device) -> tuple[Tensor, list[int]]:
    """By torch's symmetric memory, of its own, not of a pool that would keep what is let go."""
    import torch.distributed._symmetric_memory as symmetric

    def zeros() -> Tensor:
        memory = symmetric._SymmetricMemory.empty_strided_p2p((num_bytes,), (1,), torch.uint8, device)
        memory.zero_()
        torch.cuda.synchronize(device)
        return memory

    def known(memory: Tensor) -> list[int]:
        addresses = list(symmetric.rendezvous(memory, group.group_name).buffer_ptrs)
        if not all(addresses):
            raise ValueError("a peer's memory has no address here")
        assert addresses[group.rank()] == memory.data_ptr()
        return addresses

    memory = on_all_ranks(zeros, group)
    return memory, on_all_ranks(lambda: known(memory), group)


allocators["cuda"] = _symmetric


def _gathered(told: str | None, group: Group) -> list[str | None]:
    found: list[str | None] = [None] * group.size()
    dist.all_gather_object(found, told, group=group)
    return found


def _limit(group: Group, device: torch.device) -> timedelta:
    """How long the group's own collectives wait."""
    options = getattr(group._get_backend(device), "options", None)
    return getattr(options, "_timeout", timedelta(minutes=10))
