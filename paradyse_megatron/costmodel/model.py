"""The cost model: time and memory of every option as functions of length, and its file.

Schema 1: every cost is a polynomial of the sequence length, for one micro-batch on one rank.
"""

from __future__ import annotations

import math
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, SupportsIndex

from paradyse_megatron.costmodel.described import from_mapping
from paradyse_megatron.costmodel.polynomial import Polynomial
from paradyse_megatron.costmodel.shape import ModelShape
from paradyse_megatron.layouts.padding import positive_whole
from paradyse_megatron.planner.cost import Cost, HeadCost
from paradyse_megatron.planner.jsonfile import Json, check_keys, read_object, write_object
from paradyse_megatron.planner.option import Option
from paradyse_megatron.planner.plan import HEADS

SCHEMA = 1
LONGEST = 4_194_304
"""Tokens up to which every prediction of an accepted file is finite."""


@dataclass(frozen=True)
class OptionCosts:
    """Costs of one layer under one option, as `planner.cost.Cost`, by length."""

    milliseconds: Polynomial
    saved_bytes: Polynomial
    workspace_bytes: Polynomial


@dataclass(frozen=True)
class HeadCosts:
    """Costs of the loss head, as `planner.cost.HeadCost`, by length."""

    milliseconds: Polynomial
    saved_bytes: Polynomial


@dataclass(frozen=True)
class CostModel:
    """Costs of a model of one shape on P ranks of one machine.

    Attributes:
        shape: what model the costs are of.
        group_size: P.
        micro_batch_size: sequences in a micro-batch, b.
        source: where the numbers come from, in words.
        costs: by canonical option text.
        head: of output projection and loss for all tokens at once.
        chunked_head: of the same for chunk after chunk of tokens; None when not known.
    """

    shape: ModelShape
    group_size: int
    micro_batch_size: int
    source: str
    costs: Mapping[str, OptionCosts]
    head: HeadCosts
    chunked_head: HeadCosts | None = None

    @property
    def heads(self) -> tuple[str, ...]:
        """Ways to compute the loss head that have costs."""
        return HEADS[:1] if self.chunked_head is None else HEADS

    @property
    def options(self) -> tuple[str, ...]:
        """Canonical texts of the options with costs."""
        return tuple(self.costs)

    @property
    def dtype(self) -> str:
        """Name of the dtype of weights and activations."""
        return self.shape.dtype

    @property
    def model(self) -> dict[str, Any]:
        """The model's shape by name."""
        return self.shape.as_dict()

    def predict(self, option: str, seq_length: SupportsIndex) -> Cost:
        """Cost of one layer for one micro-batch of `seq_length` tokens a sequence.

        Raises:
            ValueError: an option without costs, or a length that is not a whole number of at least 1.
        """
        found = self.costs.get(option) or self.costs.get(str(Option.parse(option)))
        if found is None:
            raise ValueError(f"The cost model has no costs of {option!r}; it knows {', '.join(self.options)}.")
        tokens = positive_whole(seq_length, "The sequence length", "token")
        return Cost(
            found.milliseconds(tokens),
            math.ceil(found.saved_bytes(tokens)),
            math.ceil(found.workspace_bytes(tokens)),
        )

    def predict_head(self, seq_length: SupportsIndex, head: str = "whole") -> HeadCost:
        """Cost of output projection and loss for one micro-batch; `head` is one of `heads`. ValueError as `predict`."""
        found = self.head if head == "whole" else self.chunked_head
        if head not in HEADS or found is None:
            raise ValueError(f"The cost model has no costs of the head {head!r}; it knows {', '.join(self.heads)}.")
        tokens = positive_whole(seq_length, "The sequence length", "token")
        return HeadCost(found.milliseconds(tokens), math.ceil(found.saved_bytes(tokens)))

    def require_match(self, shape: ModelShape, group_size: int, micro_batch_size: int | None = None) -> None:
        """Raise a ValueError that says in what the running model differs from the one the costs are of.

        Args:
            micro_batch_size: None when it does not matter.
        """
        mine = self.model | {"group_size": self.group_size, "micro_batch_size": self.micro_batch_size}
        theirs = shape.as_dict() | {"group_size": group_size}
        if micro_batch_size is not None:
            theirs["micro_batch_size"] = micro_batch_size
        differing = [f"{key} {mine[key]} is not {theirs[key]}" for key in theirs if mine[key] != theirs[key]]
        if differing:
            raise ValueError(
                f"The cost model is of another model than the one that runs: {'; '.join(differing)}. "
                f"Give one of this model with --paradyse-cost-model."
            )

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the model as JSON that `load` reads back equal."""
        content = asdict(self)
        content["model"] = content.pop("shape")
        content["options"] = content.pop("costs")
        if self.chunked_head is None:
            del content["chunked_head"]
        write_object(path, SCHEMA, content)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> CostModel:
        """Read a file of schema 1.

        Raises:
            ValueError: one sentence that names the file and the key at fault.
        """
        found = read_object(path, "cost model", SCHEMA)
        where = f"Cost model {path}"
        required = {"model", "group_size", "micro_batch_size", "source", "options", "head"}
        check_keys(found, required, {"chunked_head"}, where)
        chunked = found.get("chunked_head")
        return cls(
            shape=from_mapping(ModelShape, found["model"], f"{where}, 'model',"),
            group_size=_whole(found, "group_size", where),
            micro_batch_size=_whole(found, "micro_batch_size", where),
            source=_text(found, "source", where),
            costs=_option_costs(found["options"], where),
            head=_costs(HeadCosts, found["head"], f"{where}, 'head',"),
            chunked_head=None if chunked is None else _costs(HeadCosts, chunked, f"{where}, 'chunked_head',"),
        )


def _whole(found: Json, key: str, where: str) -> int:
    value = found[key]
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise ValueError(f"{where} has under {key!r} {value!r}, which must be a whole number of at least 1.")
    return value


def _text(found: Json, key: str, where: str) -> str:
    if not isinstance(found[key], str):
        raise ValueError(f"{where} has under {key!r} {found[key]!r}, which must be a text.")
    return found[key]


def _option_costs(found: Any, where: str) -> dict[str, OptionCosts]:
    if not isinstance(found, dict) or not found:
        raise ValueError(f"{where} has under 'options' {found!r}, which must hold the costs of at least one option.")
    return {
        _canonical(text, where): _costs(OptionCosts, entry, f"{where}, option {text!r},")
        for text, entry in found.items()
    }


def _canonical(text: str, where: str) -> str:
    try:
        canonical = str(Option.parse(text))
    except ValueError as error:
        raise ValueError(f"{where}, 'options': {error}") from error
    if text != canonical:
        raise ValueError(f"{where} has the option {text!r}, which must be written {canonical!r}.")
    return canonical


def _costs[T: (OptionCosts, HeadCosts)](cls: type[T], found: Any, where: str) -> T:
    """Every field of `cls` a polynomial; time must be above 0."""
    names = set(cls.__dataclass_fields__)
    if not isinstance(found, dict):
        raise ValueError(f"{where} must hold {', '.join(sorted(names))}, but it is {found!r}.")
    check_keys(found, names, set(), where)
    costs = cls(**{name: _polynomial(found[name], f"{where} {name!r}") for name in names})
    if costs.milliseconds(1) <= 0:
        raise ValueError(f"{where} 'milliseconds' is 0 at every length, which no layer is.")
    return costs


def _polynomial(found: Any, where: str) -> Polynomial:
    polynomial = from_mapping(Polynomial, found, where)
    check_keys(found, set(Polynomial.__dataclass_fields__), set(), where)
    for name, coefficient in asdict(polynomial).items():
        if coefficient < 0:
            raise ValueError(f"{where} has under {name!r} {coefficient}, but no cost falls with length.")
    if not math.isfinite(polynomial(LONGEST)):
        raise ValueError(f"{where} is not finite at {LONGEST} tokens.")
    return polynomial
