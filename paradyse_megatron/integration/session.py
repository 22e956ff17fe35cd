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

from paradyse_megatron.runtime.agreement import check_agreement
from paradyse_megatron.runtime.controller import Controller
from paradyse_megatron.runtime.decision import Decider
from paradyse_megatron.runtime.recorder import Recorder
from paradyse_megatron.runtime.trace import TraceFile, TraceLine


class Session:
    """Built before training; `open` it where every rank passes, then `attach` the model at its first micro-batch.

    Args:
        args: Megatron's, validated.
        decider: what --paradyse-plan asks for.
    """

    def __init__(self, args: argparse.Namespace, decider: Decider):
        self._args, self._decider = args, decider
        self._recorder: Recorder | None = None
        self._logged_iteration = 0
        self._unlogged: list[TraceLine] = []
        self._controllers: dict[int, Controller] = {}
        self._is_open = False

    def open(self) -> None:
        """Agree with the other ranks and take up the trace, once the iteration that training resumes at is known.

        Collective over all ranks, so not to be done in a forward step, which pipeline stages reach one after the other.
        Megatron passes once for each virtual stage; the first time counts.
        """
        if self._is_open:
            return
        self._is_open = True
        check_agreement(self._decider.describe())
        self._recorder = _make_recorder(self._args)
        torch.distributed.barrier()
        self._logged_iteration = self._args.iteration
        if self._recorder is not None:
            atexit.register(self._recorder.flush)
        if self._args.paradyse_trace and torch.distributed.get_rank() == 0:
            self._decider.save_costs(Path(self._args.paradyse_trace).with_name("cost_model.json"))

    def controller_of(self, model: Any) -> Controller:
        """The controller at the door of a model chunk's decoder, put there when the chunk first comes by."""
        if id(model) not in self._controllers:
            self._controllers[id(model)] = self._attach(model)
        return self._controllers[id(model)]

    def _attach(self, model: Any) -> Controller:
        records = get_attr_wrapped_model(model, "post_process")  # a stage's earlier chunks have no loss
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
        self._unlogged += self._recorder.flush()
        done = self._args.curr_iteration
        if done - self._logged_iteration >= self._args.log_interval:
            ready = [line for line in self._unlogged if line.iteration <= done]
            self._unlogged = [line for line in self._unlogged if line.iteration > done]
            self._logged_iteration = done
            if parallel_state.get_data_parallel_rank() == 0:
                sys.stdout.write(log_line(done, ready) + "\n")  # where Megatron's own log goes
                sys.stdout.flush()


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
    """One rank of each data-parallel replica records: the first tensor-parallel rank of the last stage has the loss."""
    records = parallel_state.is_pipeline_last_stage() and parallel_state.get_tensor_model_parallel_rank() == 0
    file = TraceFile(args.paradyse_trace) if args.paradyse_trace else None
    if records and file and parallel_state.get_data_parallel_rank() == 0:
        file.forget_after(args.iteration)
    return Recorder(file, torch.distributed.get_rank()) if records else None
