"""One launch a number of ranks: starting ranks costs more than most of what they run."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import pytest

from tests.comm.emulated import COMPILER, FOLDER, folder
from tests.layers import jobs
from tests.ranks import run_ranks

Findings = Callable[[int], dict[str, list[Any]]]


@pytest.fixture(scope="session")
def alone() -> dict[str, Any]:
    """What one rank finds out about stock megatron-core, for others to compare with."""
    return dict(zip(jobs.ALONE, run_ranks("tests.ranks:each", 1, list(jobs.ALONE.values()))[0], strict=True))


@pytest.fixture(scope="session")
def references(alone) -> dict[str, Any]:
    """Loss and gradients of the stock model on one rank."""
    return alone["references"]


@pytest.fixture(scope="session")
def findings(alone) -> Findings:
    """A function of the number of ranks: by name of the job what each rank returned."""

    @cache
    def launch(num_ranks: int) -> dict[str, list[Any]]:
        calls = jobs.on(num_ranks, alone)
        with pytest.MonkeyPatch.context() as patch:
            if COMPILER is not None:
                patch.setenv(FOLDER, str(folder()))
            by_rank = run_ranks("tests.ranks:each", num_ranks, list(calls.values()), timeout_seconds=400)
        return {name: [results[place] for results in by_rank] for place, name in enumerate(calls)}

    return launch
