"""What tests of all folders share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from paradyse_megatron import cpu


@pytest.fixture
def unmapped_cuda() -> Iterator[None]:
    """`torch.cuda` and the device "cuda" as torch has them, whatever other tests' modules mapped onto the CPU."""
    was_mapped = cpu.is_enabled()
    cpu.disable()
    yield
    if was_mapped:
        cpu.enable()
