"""What one training process keeps between micro-batches: its controller, its trace, its line in the log."""

from __future__ import annotations

import argparse
import atexit
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import torch
from megatron.core import parallel_state
from megatron.core.utils import get_attr_wrapped_model
from megatron.training.global_vars import get_tensorboard_writer, get_wandb_writer

from paradyse_megatron.integration.meeting import meet_after_each_iteration
from paradyse_megatron.runtime.agreement import bring_together, check_agreement, check_followed
from paradyse_megatron.runtime.controller import Controller
from paradyse_megatron.runtime.decision import Decider
from paradyse_megatron.runtime.feedback import PlannedWithFeedback
from paradyse_megatron.runtime.metrics import metrics
from paradyse_megatron.runtime.recorder import Recorder
from paradyse_megatron.runtime.trace import TraceFile, TraceLine


class Session:
    """Built before training; `open` it where every rank passes, then `attach` the model at its first micro-batch.

    Args:
        args: Megatron's, validated.
        decider: what --paradyse-plan asks for.
        longest: the longest sequence that some plan fits; None where that is not known.
        data: what the lengths of micro-batches depend on.
    """

    def __init__(self, args: argparse.Namespace, decider: Decider, longest: int | None, data: dict[str, object]):
        self._args, self._decider, self.longest, self._data = args, decider, longest, data
        self._recorder: Recorder | None = None
        self._logged_iteration = 0
        self._latest_plan: str | None = None
        self._unlogged: list[TraceLine] = []
        self._unlearned: list[TraceLine] = []
        self._controllers: dict[int, Controller] = {}
        self._is_open = False
        self._writes_log = False

    def open(self) -> None:
        """Agree with the other ranks and take up the trace, once the iteration that training resumes at is known.

        Collective over all ranks, so not to be done in a forward step, which pipeline stages reach one after the other.
        Megatron passes once for each virtual stage; the first time counts.
        """
        if self._is_open:
            return
        self._is_open = True
        check_agreement(self._decider.describe() | self._data | {"--log-interval": self._args.log_interval})
        self._recorder = _make_recorder(self._args)
        ranks = parallel_state.get_tensor_model_parallel_rank(), parallel_state.get_data_parallel_rank()
        self._writes_log = ranks == (0, 0) and parallel_state.is_pipeline_last_stage()
        torch.distributed.barrier()
        self._logged_iteration = self._args.iteration
        if self._recorder is not None:
            atexit.register(self.finish)
        if self._args.paradyse_trace and torch.distributed.get_rank() == 0:
            self._decider.save_costs(Path(self._args.paradyse_trace).with_name("cost_model.json"))

    def controller_of(self, model: Any) -> Controller:
        """The controller at the door of a model chunk's decoder, put there when the chunk first comes by."""
        if id(model) not in self._controllers:
            self._controllers[id(model)] = self._attach(model)
        if model.training:
            meet_after_each_iteration(model, self._meet)
        return self._controllers[id(model)]

    def _attach(self, model: Any) -> Controller:
        records = get_attr_wrapped_model(model, "post_process")  # a stage's earlier chunks have no loss
        if not parallel_state.is_pipeline_last_stage():
            records = not self._controllers  # for feedback, a stage's first chunk stands for all
        controller = Controller(
            self._decider,
            parallel_state.get_tensor_model_parallel_group(),
            self._recorder if records else None,
            lambda: self._args.curr_iteration + 1,
        )
        controller.attach(get_attr_wrapped_model(model, "decoder"))
        return controller

    def log_progress(self) -> None:
        """Write the log line when an interval has passed."""
        if self._recorder is None:
            return
        self._collect(self._recorder)
        done = self._args.curr_iteration
        if done - self._logged_iteration >= self._args.log_interval:
            self._log(done)

    def finish(self) -> None:
        """Write the last interval, which no micro-batch follows, when the process ends. W&B is closed by then."""
        if self._recorder is None:
            return
        self._collect(self._recorder)
        if self._unlogged:
            self._log(self._unlogged[-1].iteration)

    def _meet(self) -> None:
        """At the end of a logging interval: make sure that ranks follow the same plans, and learn from each other."""
        iteration = self._args.curr_iteration + 1
        if iteration % self._args.log_interval:
            return
        learner = self._decider if isinstance(self._decider, PlannedWithFeedback) else None
        if self._recorder is not None:
            self._collect(self._recorder)
        followed = sum(controller.followed() for controller in self._controllers.values()) % 2**32
        state = learner.state() if learner else 0
        observed = learner.observe(self._unlearned) if learner else []
        self._unlearned = []
        rows = bring_together([parallel_state.get_data_parallel_rank(), followed, state, *observed])
        check_followed([row[:3] for row in rows], iteration)
        if learner and learner.learn([row[3:] for row in rows]):
            for controller in self._controllers.values():
                controller.forget_plans()
            self._say(f" paradyse: iteration {iteration}: feedback: {learner}")

    def _collect(self, recorder: Recorder) -> None:
        lines = recorder.flush()
        self._unlogged += lines
        if self._args.paradyse_feedback:
            self._unlearned += lines

    def _say(self, line: str) -> None:
        if self._writes_log:
            sys.stdout.write(line + "\n")  # where Megatron's own log goes
            sys.stdout.flush()

    def _log(self, done: int) -> None:
        ready = [line for line in self._unlogged if line.iteration <= done]
        self._unlogged = [line for line in self._unlogged if line.iteration > done]
        self._logged_iteration = done
        self._say(log_line(done, ready))
        self._write_metrics(done, ready)

    def _write_metrics(self, iteration: int, lines: list[TraceLine]) -> None:
        """To TensorBoard and W&B, on the one rank where Megatron has them; keys are those of `runtime.metrics`."""
        tensorboard, wandb = get_tensorboard_writer(), get_wandb_writer()
        if not lines or (tensorboard is None and wandb is None):
            return
        values = metrics(lines, self._latest_plan)
        self._latest_plan = lines[-1].plan
        if tensorboard is not None:
            for key, value in values.items():
                tensorboard.add_scalar(key, value, iteration)
            tensorboard.flush()
        if wandb is not None and wandb.run is not None:
            wandb.log(values, iteration)


def log_line(iteration: int, lines: list[TraceLine]) -> str:
    """What happened in the micro-batches of a logging interval, for Megatron's log."""
    if not lines:
        return f" paradyse: iteration {iteration}: no micro-batch on this rank"
    plans = ", ".join(f"{plan} x{count}" for plan, count in Counter(line.plan for line in lines).most_common())
    lengths = [line.seq_length for line in lines]
    milliseconds = sum(line.measured_ms or 0.0 for line in lines)
    rate = f"{1e3 * sum(lengths) / milliseconds:,.0f} tokens/s" if milliseconds else "not timed"
    return (
        f" paradyse: iteration {iteration}: {len(lines)} micro-batches of {min(lengths)} to {max(lengths)} tokens, "
        f"{rate} in the model, plans {plans}"
    )


def _make_recorder(args: argparse.Namespace) -> Recorder | None:
    """Ranks of the last stage record, as they have the loss: the first tensor-parallel rank of each data-parallel
    replica into the trace, and the last rank of all for Megatron's TensorBoard and W&B writers, which it alone has.
    With --paradyse-feedback all ranks do."""
    rank = torch.distributed.get_rank()
    traces = parallel_state.is_pipeline_last_stage() and parallel_state.get_tensor_model_parallel_rank() == 0
    if not traces:
        measures = args.paradyse_feedback or (rank == args.world_size - 1 and _has_writers())
        return Recorder(None, rank) if measures else None
    file = TraceFile(args.paradyse_trace) if args.paradyse_trace else None
    if file and parallel_state.get_data_parallel_rank() == 0:
        file.forget_after(args.iteration)
    return Recorder(file, rank)


def _has_writers() -> bool:
    return get_tensorboard_writer() is not None or get_wandb_writer() is not None
