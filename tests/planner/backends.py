"""The two searches under one suite: `python` and `cpp`."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from paradyse_megatron.planner import exact, feasible, native, search
from paradyse_megatron.planner.problem import Problem

NAMES = ("greedy_choice", "exact_choice", "least_saved_choice", "least_memory_choice", "peak_bytes", "milliseconds")
PYTHON = SimpleNamespace(
    greedy_choice=search.greedy_choice,
    exact_choice=exact.exact_choice,
    least_saved_choice=feasible.least_saved_choice,
    least_memory_choice=feasible.least_memory_choice,
    peak_bytes=Problem.peak_bytes,
    milliseconds=Problem.milliseconds,
)
CPP = SimpleNamespace(**{name: getattr(native, name) for name in NAMES})

needs_cpp = pytest.mark.skipif(native.missing is not None, reason=f"no C++ search here: {native.missing}")
BOTH = [pytest.param("python"), pytest.param("cpp", marks=needs_cpp)]
"""For `pytest.mark.parametrize("backend", BOTH)`."""
SEARCHES = [pytest.param(PYTHON, id="python"), pytest.param(CPP, id="cpp", marks=needs_cpp)]
"""For `pytest.mark.parametrize("searches", SEARCHES)`."""
