"""Several trainings, one after the other, in one launch: Megatron is imported once.

`train_all` for tests; `trained` is what each rank does, and can be run by hand (`tests.ranks`).
"""

from __future__ import annotations

import contextlib
import io
import re
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from paradyse_megatron import cpu
from paradyse_megatron.runtime.trace import read_trace
from tests.ranks import run_ranks
from tests.training.runs import LIMIT_SECONDS, MODEL, WITHOUT_LAUNCHER, Result


def train_all(corpus: str, folder: Path, runs: dict[str, str], num_ranks: int) -> dict[str, Result]:
    """Train with each of the flags in `runs` (besides `MODEL`), each in a folder of its own; all have to end well."""
    out = {name: folder / re.sub(r"\W+", "-", name) for name in runs}
    everything = {name: _flags(corpus, out[name], flags) for name, flags in runs.items()}
    limit = LIMIT_SECONDS * len(runs)
    by_rank = run_ranks("tests.training.many:trained", num_ranks, everything, timeout_seconds=limit)
    results = {}
    for name in runs:
        trace = read_trace(out[name] / "trace.jsonl")
        trace.sort(key=lambda line: (line.iteration, line.microbatch, line.rank))
        results[name] = Result(0, "\n".join(printed[name] for printed in by_rank), trace)
    return results


def _flags(corpus: str, folder: Path, flags: str) -> str:
    ours = f"--data-path {corpus} --dynamic-parallel --paradyse-trace {folder}/trace.jsonl"
    return f"{' '.join(MODEL)} {WITHOUT_LAUNCHER} {ours} {flags}"


def trained(runs: dict[str, str]) -> dict[str, str]:
    """What each training printed on this rank."""
    cpu.enable()
    from megatron.training.training import destroy_global_state

    from paradyse_megatron.integration import pretrain, session

    printed = {}
    for name, flags in runs.items():
        at_exit: list[Callable[[], Any]] = []
        session.atexit = SimpleNamespace(register=at_exit.append)  # type: ignore[assignment]
        sys.argv = ["pretrain", *cpu.MEGATRON_FLAGS, *flags.split()]
        output = io.StringIO()
        with contextlib.redirect_stdout(output):
            status = pretrain.main()
        assert status == 0, f"{name}: {output.getvalue()}"
        for finish in at_exit:
            finish()
        destroy_global_state()
        printed[name] = output.getvalue()
    return printed
