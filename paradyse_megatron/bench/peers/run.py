"""The benchmark of peers: which packages are there, the contest on ranks, the verdict, and a simulation."""

from __future__ import annotations

import importlib.metadata
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from paradyse_megatron.bench.peers.case import Case
from paradyse_megatron.bench.peers.contest import CONTEST, PEERS
from paradyse_megatron.bench.peers.simulated import against_balanced_cp
from paradyse_megatron.bench.peers.verdict import Verdict
from paradyse_megatron.bench.ranks import run_on_ranks

RUN_SECONDS = 1800


def shapes(lengths: Sequence[int]) -> list[Case]:
    """As many heads of keys and values as of queries, and a quarter of them, at each length."""
    return [Case(8, groups, 64, length) for length in lengths for groups in (8, 2)]


def bench(cases: Sequence[Case], num_ranks: int, rounds: int, num_documents: int) -> dict[str, Any]:
    """Everything, as JSON.

    Args:
        num_documents: of the simulation; 0 to leave it out.
    """
    arguments = {"cases": [asdict(case) for case in cases], "rounds": rounds}
    outcome = run_on_ranks(CONTEST, num_ranks, arguments, timeout_seconds=RUN_SECONDS)
    if outcome.failure:
        raise RuntimeError(f"the contest did not end: {outcome.failure}")
    simulated = against_balanced_cp(num_documents) if num_documents else {}
    versions = {module.PACKAGE: _version(module.PACKAGE) for module in PEERS}
    head = {"num_ranks": num_ranks, "rounds": rounds, "peer_versions": versions}
    return head | Verdict(outcome.results[0]).as_dict() | simulated


def _version(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None
