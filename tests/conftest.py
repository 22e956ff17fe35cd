"""What tests of all folders share."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from paradyse_megatron import cpu


@pytest.hookimpl(optionalhook=True)  # of pytest-xdist
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Under `--dist loadfile` files stay whole, and so do folders whose files share launches."""
    if config.getvalue("dist") != "loadfile":
        return None
    from xdist.scheduler import LoadFileScheduling

    class LoadLaunchScheduling(LoadFileScheduling):
        def _split_scope(self, nodeid: str) -> str:
            file = super()._split_scope(nodeid)
            return "tests/layers" if file.startswith("tests/layers/") else file

    return LoadLaunchScheduling(config, log)


@pytest.fixture
def unmapped_cuda() -> Iterator[None]:
    """`torch.cuda` and the device "cuda" as torch has them, whatever other tests' modules mapped onto the CPU."""
    was_mapped = cpu.is_enabled()
    cpu.disable()
    yield
    if was_mapped:
        cpu.enable()
