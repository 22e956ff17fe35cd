"""Worker: every implementation on the same tensors, checked against the true result, then timed in turn."""

from __future__ import annotations

import traceback
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from types import ModuleType
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from paradyse_megatron.bench.peers import of_deepspeed, of_ringmaster, of_torch, ours
from paradyse_megatron.bench.peers.case import Case, Data, distance, make_data, tokens_of
from paradyse_megatron.bench.peers.contestant import RING, TOKENS_FIRST, Contestant
from paradyse_megatron.comm.collectives import Group
from paradyse_megatron.profiling import stopwatch

CONTEST = "paradyse_megatron.bench.peers.contest:contest"
PEERS: tuple[ModuleType, ...] = (of_deepspeed, of_ringmaster, of_torch)


def contest(cases: Sequence[Mapping[str, int]], rounds: int) -> list[dict[str, Any]]:
    """For each case what `Entry.as_dict` says of each implementation, ours first."""
    group = dist.group.WORLD
    assert group is not None
    return [_contest(Case(**case), rounds, group) for case in cases]


def _contest(case: Case, rounds: int, group: Group) -> dict[str, Any]:
    data = make_data(case)
    entries = [Entry(contestant, data, group) for contestant in contestants(case, group)]
    for entry in entries:
        entry.check()
    able = [entry for entry in entries if entry.reason is None]
    for round_idx in range(rounds):
        shift = round_idx % len(able)
        for entry in able[shift:] + able[:shift]:
            entry.times.append(stopwatch.milliseconds(entry.run, group))
    return {"case": case.name, "entries": [entry.as_dict() for entry in entries]}


def contestants(case: Case, group: Group) -> Iterator[Contestant]:
    """Ours, and those of the packages that are there; a package that is not has one that cannot run."""
    yield from ours.contestants(case, group)
    for module in PEERS:
        try:
            yield from module.contestants(case, group)
        except ImportError as error:
            yield _absent(module.PACKAGE, f"{error}; {module.REMEDY}")


def _absent(package: str, reason: str) -> Contestant:
    """One that cannot run, of whatever kind."""

    def attend(*_: Tensor) -> Tensor:
        raise ImportError(reason)

    return Contestant(package, RING, False, TOKENS_FIRST, TOKENS_FIRST, attend)


@dataclass
class Entry:
    """A contestant on this rank's share of a case.

    Attributes:
        contestant, data, group: what runs, of what, among whom.
        times: milliseconds of forward and backward on the slowest rank, round by round.
        errors: relative L2 distance from the true result, of output and gradients, the largest of all ranks.
        reason: why it cannot run; None when it can.
    """

    contestant: Contestant
    data: Data
    group: Group
    times: list[float] = field(default_factory=list)
    errors: dict[str, float] = field(default_factory=dict)
    reason: str | None = None

    def __post_init__(self) -> None:
        of = self.contestant
        query, key, value = (self._share(tensor) for tensor in self.data.inputs)
        self._leaves = [leaf.requires_grad_() for leaf in of.takes.leaves((query, key, value))]
        self._grad = of.returns.of(self._share(self.data.output_grad))

    def run(self) -> tuple[Tensor, tuple[Tensor, ...]]:
        """Forward and backward: output and gradients of the inputs, in the contestant's forms."""
        output = self.contestant.attend(*self._leaves)
        return output, torch.autograd.grad(output, self._leaves, self._grad)

    def check(self) -> None:
        """Run twice, for what is made on first use too, and compare; or learn why it cannot run.

        It must then fail on every rank before anything is sent.
        """
        try:
            self.run()
            output, grads = self.run()
        except Exception as error:  # whatever an implementation raises is the reason that it does not run
            self.reason = "".join(traceback.format_exception_only(error)).strip().splitlines()[0]
            return
        found = (self.contestant.returns.back(output.detach()), *self.contestant.takes.triple(grads))
        truth = (self.data.output, *self.data.input_grads)
        names = ("output", "query_grad", "key_grad", "value_grad")
        for name, mine, true in zip(names, found, truth, strict=True):
            worst = torch.tensor(distance(mine, self._share(true)))
            dist.all_reduce(worst, dist.ReduceOp.MAX, group=self.group)
            self.errors[name] = float(worst)

    def _share(self, whole: Tensor) -> Tensor:
        tokens = tokens_of(self.group.rank(), self.group.size(), whole.shape[0], self.contestant.zigzag)
        return whole[tokens]

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        of = self.contestant
        return {
            "name": of.name,
            "kind": of.kind,
            "is_ours": of.is_ours,
            "kernel": of.kernel,
            "reason": self.reason,
            "errors": self.errors,
            "milliseconds": self.times,
        }
