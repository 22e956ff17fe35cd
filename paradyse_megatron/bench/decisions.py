"""What deciding costs in training: plans by length, decided and recorded, beside the same plans set beforehand.

Both train the same documents in turn, in one process group, on equal models; the second of the two also runs against
itself, which tells the noise. Beside that, all that the controller and the recorder do is timed directly. Every length
is new to the planner whenever it comes, and there is no step of the optimizer: in training, shares are smaller.
"""

from __future__ import annotations

import statistics
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

RANK = "paradyse_megatron.bench.decisions:race"
LONGEST = 4096
LOG_INTERVAL = 10
"""Micro-batches between two times at which ranks compare what they followed."""
SECONDS_A_STEP = 15.0
"""More than any micro-batch takes, for the time limit."""


def bench(num_ranks: int, num_documents: int, num_rounds: int) -> dict[str, Any]:
    """Ratios and shares, of the slowest rank."""
    from paradyse_megatron.bench.documents import sample_documents
    from paradyse_megatron.bench.ranks import run_on_ranks

    documents = sample_documents(num_documents, LONGEST)
    arguments = {"documents": documents, "num_rounds": num_rounds}
    limit = 60 + 3 * num_documents * (num_rounds + 1) * SECONDS_A_STEP
    outcome = run_on_ranks(RANK, num_ranks, arguments, timeout_seconds=limit)
    if outcome.failure:
        raise ChildProcessError(f"the ranks did not end: {outcome.failure}")
    found: dict[str, Any] = max(outcome.results, key=lambda result: result["controller_share"])
    return {"num_ranks": num_ranks, "num_documents": num_documents, "num_rounds": num_rounds, **found}


def race(documents: Sequence[Sequence[int]], num_rounds: int) -> dict[str, Any]:
    """Worker: see `bench`."""
    from paradyse_megatron.bench.model import gpt, step_under, train_step
    from paradyse_megatron.costmodel.configs import shipped
    from paradyse_megatron.costmodel.shape import ModelShape
    from paradyse_megatron.layouts.padding import pad_to_multiple
    from paradyse_megatron.profiling import stopwatch

    shape = ModelShape.from_yaml(shipped("models", "tiny"))
    decided, preset = gpt(shape, LONGEST + 64), gpt(shape, LONGEST + 64)
    group = preset.decoder.layers[0].self_attention.tp_group
    plans = _new_decider(shape, group.size())
    times: dict[str, list[float]] = {"decided": [], "preset": [], "preset again": []}
    with tempfile.TemporaryDirectory() as folder:
        side = _Deciding(decided, shape, group, Path(folder) / "trace.jsonl")
        for round_number in range(-1, num_rounds):
            side.forget(counted=round_number >= 0)
            for number, document in enumerate(documents):
                plan = plans.decide(pad_to_multiple(len(document) - 1, group.size()))
                ways: dict[str, Any] = {
                    "decided": lambda document=document: side.step(train_step, document),
                    "preset": lambda document=document, plan=plan: step_under(preset, document, plan),
                }
                ways["preset again"] = ways["preset"]
                shift = (number + round_number) % len(ways)
                for name in [*ways][shift:] + [*ways][:shift]:
                    took = stopwatch.milliseconds(ways[name], group)
                    if round_number >= 0:
                        times[name].append(took)
    return _figures(times, side)


def _new_decider(shape: Any, group_size: int) -> Any:
    """Under a budget with which long documents need plans of several options."""
    from paradyse_megatron.costmodel.cluster import Cluster
    from paradyse_megatron.costmodel.configs import shipped
    from paradyse_megatron.costmodel.first_principles import estimate
    from paradyse_megatron.planner.planner import Planner
    from paradyse_megatron.planner.stages import PipelinePlanner
    from paradyse_megatron.runtime.decision import PlannedByLength

    costs = estimate(shape, Cluster.from_yaml(shipped("clusters", "cpu-2core")), group_size)
    most = Planner(costs, shape.num_layers, sys.maxsize).plan(LONGEST).predicted_bytes or 0
    return PlannedByLength(PipelinePlanner([Planner(costs, shape.num_layers, most * 2 // 3)]), costs, LONGEST)


class _Deciding:
    """A model with a controller and a recorder, as `integration.session` puts them there, and what those cost."""

    def __init__(self, model: Any, shape: Any, group: Any, trace: Path):
        from paradyse_megatron.runtime.controller import Controller
        from paradyse_megatron.runtime.recorder import Recorder
        from paradyse_megatron.runtime.trace import TraceFile

        self.seconds: list[float] = []
        self.decision_us: list[float] = []
        self._model, self._shape, self._group = model, shape, group
        self._counted, self._num_steps, self._spent = False, 0, 0.0
        self._recorder = Recorder(TraceFile(trace), 0)
        for name in ("begin", "_end", "_write_ended"):
            setattr(self._recorder, name, self._timed(getattr(self._recorder, name)))
        self.plans: set[str] = set()
        self._decider = _Changing()
        self._controller = Controller(self._decider, group, self._recorder, lambda: self._num_steps)
        for name in ("_enter", "_leave"):
            setattr(self._controller, name, self._timed(getattr(self._controller, name)))
        self._controller.attach(model.decoder)

    def forget(self, counted: bool) -> None:
        """From now on every length is new; steps count, or they do not."""
        self._decider.now = _new_decider(self._shape, self._group.size())
        self._controller.forget_plans()
        self._counted = counted

    def step(self, train_step: Any, document: Sequence[int]) -> None:
        """One micro-batch, as a training step has it; every few of them the ranks compare what they followed."""
        self._num_steps += 1
        self._spent = 0.0
        self._controller.announce(len(document) - 1)
        loss = train_step(self._model, document, self._decider.now, self._controller.head)
        self._timed(self._close)(loss, len(document) - 1)
        if self._counted:
            self.seconds.append(self._spent)

    def _close(self, loss: float, num_tokens: int) -> None:
        import torch

        from paradyse_megatron.runtime.agreement import bring_together, check_followed

        self._controller.loss(torch.tensor(loss * num_tokens), torch.tensor(num_tokens))
        lines = self._recorder.flush()
        self.plans |= {line.plan for line in lines}
        if self._counted:
            self.decision_us += [line.decision_us for line in lines]
        if self._num_steps % LOG_INTERVAL == 0:
            rows = bring_together([0, self._controller.followed(), 0], self._group)
            check_followed(rows, self._num_steps)

    def _timed(self, work: Any) -> Any:
        """The same, adding what it takes to `_spent`; of calls within calls only the outer one counts."""

        def timed(*args: Any, **kwargs: Any) -> Any:
            begin, before = time.perf_counter(), self._spent
            try:
                return work(*args, **kwargs)
            finally:
                self._spent = before + time.perf_counter() - begin

        return timed


class _Changing:
    """A decider that can be exchanged."""

    now: Any = None

    def __getattr__(self, name: str) -> Any:
        return getattr(self.now, name)


def _figures(times: Mapping[str, Sequence[float]], side: _Deciding) -> dict[str, Any]:
    def ratio(name: str, other: str) -> float:
        return statistics.median(mine / theirs for mine, theirs in zip(times[name], times[other], strict=True))

    shares = [1e3 * spent / took for spent, took in zip(side.seconds, times["decided"], strict=True)]
    return {
        "num_steps": len(times["decided"]),
        "num_plans": len(side.plans),
        "step_ms_median": statistics.median(times["decided"]),
        "decided_over_preset": ratio("decided", "preset"),
        "preset_over_itself": ratio("preset again", "preset"),
        "decided_over_preset_total": sum(times["decided"]) / sum(times["preset"]),
        "preset_over_itself_total": sum(times["preset again"]) / sum(times["preset"]),
        "controller_us_median": 1e6 * statistics.median(side.seconds),
        "decision_us_median": statistics.median(side.decision_us),
        "controller_share": 1e3 * sum(side.seconds) / sum(times["decided"]),
        "controller_share_worst_step": max(shares),
    }
