"""What tests of all folders share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from paradyse_megatron import cpu


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Under `--dist loadgroup` of pytest-xdist files stay whole, and so do folders that share launches."""
    for item in items:
        file = item.nodeid.partition("::")[0]
        folder = file.rpartition("/")[0]
        item.add_marker(pytest.mark.xdist_group(folder if folder == "tests/layers" else file))


@pytest.fixture
def unmapped_cuda() -> Iterator[None]:
    """`torch.cuda` and the device "cuda" as torch has them, whatever other tests' modules mapped onto the CPU."""
    was_mapped = cpu.is_enabled()
    cpu.disable()
    yield
    if was_mapped:
        cpu.enable()
