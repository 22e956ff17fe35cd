"""One JSON object a line and micro-batch; the format is part of the product's contract."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from pathlib import Path
from types import NoneType


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


_NUMBER = (int, float)
_FIELDS: dict[str, tuple[type, ...]] = {
    "iteration": (int,),
    "microbatch": (int,),
    "seq_length": (int,),
    "padded_length": (int,),
    "plan": (str,),
    "predicted_ms": (*_NUMBER, NoneType),
    "measured_ms": (*_NUMBER, NoneType),
    "predicted_bytes": (int, NoneType),
    "measured_bytes": (int, NoneType),
    "decision_us": _NUMBER,
    "loss": (*_NUMBER, NoneType),
    "rank": (int,),
}
"""Keys of a line, and what JSON may hold under them."""


class TraceFile:
    """Appends lines; several ranks may write to the same file."""

    def __init__(self, path: str | os.PathLike[str]):
        self.path = Path(path)
        self.path.parent.mkdir(parents=True, exist_ok=True)

    def append(self, line: TraceLine) -> None:
        """One `write` call in append mode, so that ranks' lines never mix."""
        with open(self.path, "ab", buffering=0) as file:
            file.write((json.dumps(vars(line)) + "\n").encode())

    def forget_after(self, iteration: int) -> None:
        """Drop lines of later iterations: a run that resumes from a checkpoint does those again."""
        if not self.path.exists():
            return
        kept = [line for line in read_trace(self.path) if line.iteration <= iteration]
        replacement = self.path.with_name(self.path.name + ".part")
        replacement.write_text("".join(json.dumps(vars(line)) + "\n" for line in kept))
        replacement.replace(self.path)


def read_trace(path: str | os.PathLike[str]) -> list[TraceLine]:
    """All complete lines; a last one that a killed run left unfinished is left out.

    Raises:
        ValueError: no such file, or a line that is no trace line.
    """
    complete = _texts(path)[:-1]
    return [_parse(text, path, number) for number, text in enumerate(complete, 1) if text.strip()]


def require_complete(path: str | os.PathLike[str], allow_partial: bool = False) -> list[TraceLine]:
    """As `read_trace`, for readers that must not miss anything.

    Args:
        allow_partial: leave out a last line that was cut short.

    Raises:
        ValueError: as there, and for a file without any micro-batch, or whose last line was cut short.
    """
    *complete, last = _texts(path)
    if not any(text.strip() for text in [*complete, last]):
        raise ValueError(f"The trace {path} is empty: no micro-batch has been recorded in it yet.")
    if last.strip() and (not allow_partial or not any(complete)):
        _parse(complete[0] if complete else last, path, 1)
        raise ValueError(
            f"Line {len(complete) + 1} of the trace {path} was cut short, so the file is not whole; copy it again, or "
            f"report on the {len(complete)} lines before with --partial."
        )
    return read_trace(path)


def _texts(path: str | os.PathLike[str]) -> list[str]:
    """Text between line ends; the last is empty in a whole file."""
    try:
        return Path(path).read_text("utf-8").split("\n")
    except OSError as error:
        raise ValueError(
            f"The trace {path} cannot be read: {error.strerror}. Name the file given to --paradyse-trace."
        ) from error
    except UnicodeDecodeError as error:
        raise ValueError(f"{path} is no trace, but a binary file. Name the file given to --paradyse-trace.") from error


def _parse(text: str, path: str | os.PathLike[str], number: int) -> TraceLine:
    try:
        found = json.loads(text)
    except json.JSONDecodeError as error:
        raise ValueError(f"Line {number} of the trace {path} is no trace line ({error}).") from error
    if not isinstance(found, dict) or found.keys() != _FIELDS.keys():
        raise ValueError(
            f"Line {number} of the trace {path} is no trace line, which has the keys {', '.join(_FIELDS)}; "
            f"is this the file given to --paradyse-trace?"
        )
    for name, allowed in _FIELDS.items():
        if isinstance(found[name], bool) or not isinstance(found[name], allowed):
            raise ValueError(f"Line {number} of the trace {path} has under {name!r} {found[name]!r}.")
    return TraceLine(**found)
