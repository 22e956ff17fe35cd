"""A plan: which option each layer runs, as a value that prints, compares, serialises and hashes."""

from __future__ import annotations

import dataclasses
import hashlib
import itertools
import os
import re
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from paradyse_megatron.planner.jsonfile import check_keys, read_object, write_object
from paradyse_megatron.planner.option import Option

SCHEMA = 1
HEADS = ("whole", "chunked")
"""Ways to compute output projection and loss: all tokens at once (Megatron's own), or chunk of tokens after chunk."""

_CHUNKED = ";head=chunked"
_RUN = re.compile(r"(?P<option>[^*]+?)\s*(\*\s*(?P<count>[0-9]{1,9}))?")


@dataclass(frozen=True)
class Plan:
    """One option for each layer, first layer first, and how the loss head after them is computed.

    What was predicted for it is a note, not part of what it is: two plans of the same options are equal.

    Attributes:
        layer_options: the option of each layer.
        predicted_ms: milliseconds of forward and backward of all layers and the loss head, or None when unknown.
        predicted_bytes: peak of memory in bytes on one rank, or None when unknown.
        fits: whether that peak is within the memory budget, or None when unknown.
        head: one of `HEADS`; the text names it only where it is not "whole", after the layers: `ring;head=chunked`.
    """

    layer_options: tuple[Option, ...]
    predicted_ms: float | None = field(default=None, compare=False)
    predicted_bytes: int | None = field(default=None, compare=False)
    fits: bool | None = field(default=None, compare=False)
    head: str = "whole"

    def __post_init__(self) -> None:
        if not self.layer_options:
            raise ValueError("A plan needs at least one layer.")
        if self.head not in HEADS:
            raise ValueError(f"A plan's head is one of {', '.join(HEADS)}, but this one's is {self.head!r}.")

    @classmethod
    def parse(cls, text: str, num_layers: int) -> Plan:
        """Read a list such as `tp_sp*4,ulysses/tp_sp*2,ring+full*2`, or one option for all layers.

        In a list, an option without a count stands for one layer. After the layers `;head=chunked` may follow.

        Raises:
            ValueError: malformed, an option that does not exist, or counts that do not add up to `num_layers`.
        """
        layers, head = _split_head(text)
        items = layers.split(",")
        if len(items) == 1 and "*" not in layers:
            return cls((Option.parse(layers),) * num_layers, head=head)
        runs = [_parse_run(item.strip(), text) for item in items]
        total = sum(count for _, count in runs)
        if total != num_layers:
            raise ValueError(
                f"The plan {text!r} is for {total} layers, but the model has {num_layers}; "
                f"change the counts, or name one option without a count for all layers."
            )
        return cls(tuple(option for option, count in runs for _ in range(count)), head=head)

    @classmethod
    def from_file(cls, path: str | os.PathLike[str], num_layers: int) -> Plan:
        """Read what `save` wrote; `plan` is the only key that a file written by hand needs besides `schema`.

        Raises:
            ValueError: unreadable, another schema, an unknown key, a wrong value, or a plan for another model.
        """
        found = read_object(path, "plan file", SCHEMA)
        where = f"Plan file {path}"
        check_keys(found, {"plan"}, set(_NOTES), where)
        if not isinstance(found["plan"], str):
            raise ValueError(f"{where} has under 'plan' {found['plan']!r}, which must be such as 'tp_sp*2,ring*2'.")
        notes = {name: _checked_note(found.get(name), name, where) for name in _NOTES}
        try:
            return dataclasses.replace(cls.parse(found["plan"], num_layers), **notes)
        except ValueError as error:
            raise ValueError(f"{where}: {error}") from error

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the plan with what is known of it as JSON."""
        notes = {name: getattr(self, name) for name in _NOTES}
        write_object(path, SCHEMA, {"plan": self._listed(), **notes})

    @property
    def options(self) -> tuple[str, ...]:
        """Canonical option text of each layer."""
        return tuple(str(option) for option in self.layer_options)

    def digest(self) -> str:
        """16 hexadecimal digits, the same on every rank, machine and version for the same options, depth and head."""
        return hashlib.sha256(self._listed().encode()).hexdigest()[:16]

    def __len__(self) -> int:
        """Number of layers."""
        return len(self.layer_options)

    def __str__(self) -> str:
        return self._text

    @cached_property
    def _text(self) -> str:
        """Asked for each micro-batch; plans are few."""
        options = set(self.layer_options)
        return f"{self.layer_options[0]}{self._head_text()}" if len(options) == 1 else self._listed()

    def _listed(self) -> str:
        """The text with counts also for a uniform plan, so that it says how many layers there are."""
        runs = itertools.groupby(self.layer_options)
        return ",".join(f"{option}*{len(tuple(run))}" for option, run in runs) + self._head_text()

    def _head_text(self) -> str:
        return _CHUNKED if self.head == "chunked" else ""


_NOTES: dict[str, Any] = {"predicted_ms": (float, int), "predicted_bytes": (int,), "fits": (bool,)}


def _split_head(text: str) -> tuple[str, str]:
    """The text of the layers, and the head."""
    layers, semicolon, rest = text.partition(";")
    if semicolon and ";" + "".join(rest.split()) != _CHUNKED:
        raise ValueError(f"The plan {text!r} has {rest!r} after its layers, where only 'head=chunked' may stand.")
    return layers, "chunked" if semicolon else "whole"


def _parse_run(item: str, text: str) -> tuple[Option, int]:
    match = _RUN.fullmatch(item)
    if match is None:
        raise ValueError(f"{item!r} in the plan {text!r} is no option with a count; write such as tp_sp*4.")
    count = int(match["count"] or 1)
    if count < 1:
        raise ValueError(f"{item!r} in the plan {text!r} is for no layer; the count must be at least 1.")
    return Option.parse(match["option"]), count


def _checked_note(found: Any, name: str, where: str) -> Any:
    """None, or a number or answer of the note's type."""
    types = _NOTES[name]
    if found is None:
        return None
    if not isinstance(found, types) or (isinstance(found, bool) and bool not in types):
        raise ValueError(f"{where} has under {name!r} {found!r}, which must be null or a {types[0].__name__}.")
    if not 0 <= found < float("inf"):
        raise ValueError(f"{where} has under {name!r} {found!r}, which must not be negative or infinite.")
    return found
