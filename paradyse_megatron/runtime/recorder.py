"""Follows each micro-batch from the decoder's entry to the end of its backward and writes its trace line."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from paradyse_megatron.planner.plan import Plan
from paradyse_megatron.runtime.clock import Moment, now
from paradyse_megatron.runtime.trace import TraceFile, TraceLine


@dataclass
class _Progress:
    """A micro-batch under way: its line, and what fills the line's blanks once everything is known."""

    line: TraceLine
    begin: Moment
    end: Moment | None = None
    loss_sum: Tensor | None = None
    num_tokens: Tensor | None = None


class Recorder:
    """Collects the lines of one rank.

    With pipelining several micro-batches are under way at once. A line is written when the next micro-batch of this
    rank begins after the line's own backward has ended, or at `flush`; reading a GPU's clock then waits for nothing.

    Args:
        file: where lines go; None keeps them in memory only.
        rank: global rank, as written in each line.
    """

    def __init__(self, file: TraceFile | None, rank: int):
        self._file, self._rank = file, rank
        self._under_way: list[_Progress] = []
        self._iteration, self._next_microbatch = 0, 0
        self.finished: list[TraceLine] = []

    def begin(
        self,
        iteration: int,
        seq_length: int,
        padded_length: int,
        plan: Plan,
        decision_us: float,
        decoder_input: Tensor,
        predicted_peak: Callable[[int], int | None],
    ) -> None:
        """A micro-batch enters the decoder; `predicted_peak` maps the bytes in use to the predicted peak of bytes."""
        self._write_ended()
        self._next_microbatch = self._next_microbatch + 1 if iteration == self._iteration else 0
        self._iteration = iteration
        if not self._under_way:
            torch.cuda.reset_peak_memory_stats()
        predicted_bytes = predicted_peak(torch.cuda.memory_allocated())
        line = TraceLine(
            iteration,
            self._next_microbatch,
            seq_length,
            padded_length,
            str(plan),
            plan.predicted_ms,
            None,
            predicted_bytes,
            None,
            decision_us,
            None,
            self._rank,
        )
        progress = _Progress(line, now(decoder_input))
        self._under_way.append(progress)
        if decoder_input.requires_grad:
            decoder_input.register_hook(lambda grad: self._end(progress, grad))

    def loss(self, loss_sum: Tensor, num_tokens: Tensor) -> None:
        """The loss of the micro-batch that entered last; copied, as Megatron scales the tensor in place later."""
        if self._under_way:
            self._under_way[-1].loss_sum = loss_sum.detach().clone()
            self._under_way[-1].num_tokens = num_tokens.detach().clone()

    def flush(self) -> list[TraceLine]:
        """Write what has ended and hand out, once, all lines written since the last call."""
        self._write_ended()
        lines, self.finished = self.finished, []
        return lines

    def _end(self, progress: _Progress, grad: Tensor) -> None:
        progress.end = now(grad)
        progress.line.measured_bytes = torch.cuda.max_memory_allocated()

    def _write_ended(self) -> None:
        while self._under_way and self._under_way[0].end is not None:
            progress = self._under_way.pop(0)
            line = progress.line
            assert progress.end is not None
            line.measured_ms = progress.begin.milliseconds_until(progress.end)
            if progress.loss_sum is not None and progress.num_tokens is not None and int(progress.num_tokens):
                line.loss = float(progress.loss_sum) / int(progress.num_tokens)
            if self._file is not None:
                self._file.append(line)
            self.finished.append(line)
