"""One JSON object a line and micro-batch; the format is part of the product's contract."""

from __future__ import annotations

import json
import os
from dataclasses import asdict, dataclass
from pathlib import Path


@dataclass
class TraceLine:
    """What happened to one micro-batch on one rank.

    Attributes:
        iteration: training iteration, from 1.
        microbatch: micro-batch of the iteration on this rank, from 0.
        seq_length: real tokens of its longest sample.
        padded_length: tokens of each sample after padding.
        plan: text of the plan.
        predicted_ms: predicted milliseconds of forward and backward; null without a cost model.
        measured_ms: measured from the decoder's entry to the end of its backward.
        predicted_bytes: predicted peak of memory on this rank; null without a cost model.
        measured_bytes: peak of memory on this rank (on CPU the resident set of the whole process).
        decision_us: microseconds that finding the plan took.
        loss: mean over the tokens that count; null where it is not known or no token counts.
        rank: global rank that wrote the line.
    """

    iteration: int
    microbatch: int
    seq_length: int
    padded_length: int
    plan: str
    predicted_ms: float | None
    measured_ms: float | None
    predicted_bytes: int | None
    measured_bytes: int | None
    decision_us: float
    loss: float | None
    rank: int


class TraceFile:
    """Appends lines; several ranks may write to the same file."""

    def __init__(self, path: str | os.PathLike[str]):
        self.path = Path(path)
        self.path.parent.mkdir(parents=True, exist_ok=True)

    def append(self, line: TraceLine) -> None:
        """One `write` call in append mode, so that ranks' lines never mix."""
        with open(self.path, "ab", buffering=0) as file:
            file.write((json.dumps(asdict(line)) + "\n").encode())

    def forget_after(self, iteration: int) -> None:
        """Drop lines of later iterations: a run that resumes from a checkpoint does those again."""
        if not self.path.exists():
            return
        kept = [line for line in read_trace(self.path) if line.iteration <= iteration]
        replacement = self.path.with_name(self.path.name + ".part")
        replacement.write_text("".join(json.dumps(asdict(line)) + "\n" for line in kept))
        replacement.replace(self.path)


def read_trace(path: str | os.PathLike[str]) -> list[TraceLine]:
    """All complete lines; a last one that a killed run left unfinished is left out.

    Raises:
        ValueError: no such file, or a line that is no trace line.
    """
    try:
        texts = Path(path).read_text().split("\n")
    except OSError as error:
        raise ValueError(
            f"The trace {path} cannot be read: {error.strerror}. Name the file given to --paradyse-trace."
        ) from error
    complete = texts[:-1]
    return [_parse(text, path, number) for number, text in enumerate(complete, 1) if text.strip()]


def _parse(text: str, path: str | os.PathLike[str], number: int) -> TraceLine:
    try:
        return TraceLine(**json.loads(text))
    except (json.JSONDecodeError, TypeError) as error:
        raise ValueError(f"Line {number} of the trace {path} is no trace line ({error}).") from error
