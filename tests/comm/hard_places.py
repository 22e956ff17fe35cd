"""Copies by the emulated kernels whose places are at no multiple of anything, or need more than 32 bits.

Run as a program by a test that plants faults in the kernels: python -m tests.comm.hard_places
"""

from __future__ import annotations

import torch

from paradyse_megatron.comm import cuda
from paradyse_megatron.layouts.section import Axes, Section, table
from tests.comm.emulated import kernels_on_cpu
from tests.comm.same_bytes import random


def assert_moves_at_odd_addresses() -> None:
    """Two pieces of 17 bytes, 21 and 19 apart."""
    local, wire = random((60,), torch.int8), torch.zeros(60, dtype=torch.int8)
    strides = (Axes(0, 0, step, 0, 0, 0) for step in (21, 19))
    section = Section(0, 17, Axes(1, 1, 2, 1, 1, 1), *strides, local_start=1, wire_start=3)
    cuda._move(table([section]), [local], wire, True)
    assert torch.equal(wire.as_strided((2, 17), (19, 1), 3), local.as_strided((2, 17), (21, 1), 1))
    assert wire.count_nonzero() == local.as_strided((2, 17), (21, 1), 1).count_nonzero()


def assert_moves_far_apart() -> None:
    """Rows so far apart that their places need 33 bits; what lies between is never touched, so takes no memory."""
    spread = torch.empty_strided((3, 2, 40), (2**31 + 64, 40, 1), dtype=torch.int8)
    rows = random((3, 2, 40), torch.int8)
    cuda.copy_(spread, rows)
    assert torch.equal(spread, rows)
    back = torch.zeros_like(rows)
    cuda.copy_(back, spread)
    assert torch.equal(back, rows)


if __name__ == "__main__":
    with kernels_on_cpu():
        assert_moves_at_odd_addresses()
        assert_moves_far_apart()
