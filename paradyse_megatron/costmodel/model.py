"""The cost model: time and memory of every option as functions of length, for one micro-batch on one rank."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, SupportsIndex

from paradyse_megatron.costmodel import model_file
from paradyse_megatron.costmodel.costs import HeadCosts, OptionCosts
from paradyse_megatron.costmodel.provenance import Provenance, differing_versions
from paradyse_megatron.costmodel.shape import ModelShape
from paradyse_megatron.costmodel.work import PartWork
from paradyse_megatron.layouts.padding import positive_whole
from paradyse_megatron.planner.cost import Cost, HeadCost
from paradyse_megatron.planner.jsonfile import read_object, write_object
from paradyse_megatron.planner.option import Option
from paradyse_megatron.planner.plan import HEADS
from paradyse_megatron.planner.sources import Parts


@dataclass(frozen=True)
class CostModel:
    """Costs of a model of one shape on P ranks of one machine.

    Attributes:
        shape: what model the costs are of.
        group_size: P.
        micro_batch_size: sequences in a micro-batch, b.
        source: where the numbers come from, in words.
        costs: by kind of layer (`ModelShape.kinds`), and by canonical option text.
        head: of output projection and loss for all tokens at once.
        chunked_head: of the same for chunk after chunk of tokens; None when not known.
        parts: traced work that the costs were worked out from, by part of a layer; empty without a trace.
        provenance: machine, versions, date, accuracy.
    """

    shape: ModelShape
    group_size: int
    micro_batch_size: int
    source: str
    costs: Mapping[str, Mapping[str, OptionCosts]]
    head: HeadCosts
    chunked_head: HeadCosts | None = None
    parts: Mapping[str, PartWork] = field(default_factory=dict)
    provenance: Provenance = field(default_factory=lambda: Provenance.now("unknown"))

    @property
    def heads(self) -> tuple[str, ...]:
        """Ways to compute the loss head that have costs."""
        return HEADS[:1] if self.chunked_head is None else HEADS

    @property
    def kinds(self) -> tuple[str, ...]:
        """Kinds of layers that have costs, that of the first layer first."""
        return tuple(self.costs)

    @property
    def options(self) -> tuple[str, ...]:
        """Canonical texts of the options with costs for every kind of layer."""
        first, *others = self.costs.values()
        return tuple(option for option in first if all(option in other for other in others))

    def options_of(self, kind: str) -> tuple[str, ...]:
        """Canonical texts of the options with costs for layers of `kind`."""
        return tuple(self._of_kind(kind))

    @property
    def dtype(self) -> str:
        """Name of the dtype of weights and activations."""
        return self.shape.dtype

    @property
    def model(self) -> dict[str, Any]:
        """The model's shape by name."""
        return self.shape.as_dict()

    @property
    def is_measured(self) -> bool:
        """Whether times were measured on a machine, rather than worked out."""
        return any(each.measured for of_kind in self.costs.values() for each in of_kind.values())

    def predict(self, option: str, seq_length: SupportsIndex, kind: str | None = None) -> Cost:
        """Cost of one layer for one micro-batch of `seq_length` tokens a sequence.

        Args:
            kind: of the layer; may be left out where all layers are of one kind.

        Raises:
            ValueError: an option without costs, or a length that is not a whole number of at least 1.
        """
        costs = self._of_kind(kind)
        found = costs.get(option) or costs.get(str(Option.parse(option)))
        if found is None:
            raise ValueError(f"The cost model has no costs of {option!r}; it knows {', '.join(costs)}.")
        tokens = positive_whole(seq_length, "The sequence length", "token")
        return Cost(
            found.milliseconds(tokens),
            math.ceil(found.saved_bytes(tokens)),
            math.ceil(found.workspace_bytes(tokens)),
            math.ceil(found.buffer_bytes(tokens)),
        )

    def _of_kind(self, kind: str | None) -> Mapping[str, OptionCosts]:
        if kind is None and len(self.costs) > 1:
            raise ValueError(
                f"The model has layers of the kinds {', '.join(self.kinds)}; say of which one the cost is."
            )
        found = self.costs.get(self.kinds[0] if kind is None else kind)
        if found is None:
            raise ValueError(f"The cost model has no costs of {kind!r} layers; it knows {', '.join(self.kinds)}.")
        return found

    def predict_head(self, seq_length: SupportsIndex, head: str = "whole") -> HeadCost:
        """Cost of output projection and loss for one micro-batch; `head` is one of `heads`. ValueError as `predict`."""
        found = self._of_head(head)
        tokens = positive_whole(seq_length, "The sequence length", "token")
        held, buffer = math.ceil(found.saved_bytes(tokens)), math.ceil(found.buffer_bytes(tokens))
        return HeadCost(found.milliseconds(tokens), held, buffer)

    def _of_head(self, head: str) -> HeadCosts:
        found = self.head if head == "whole" else self.chunked_head
        if head not in HEADS or found is None:
            raise ValueError(f"The cost model has no costs of the head {head!r}; it knows {', '.join(self.heads)}.")
        return found

    def of_kind(self, kind: str) -> CostModel:
        """The costs of one kind of layer alone, and of the head."""
        return replace(self, costs={kind: self._of_kind(kind)})

    def curves(self, option: str) -> tuple[Parts, Parts, Parts, Parts]:
        """What `predict` evaluates before rounding, in the order of `Cost` (`planner.sources`)."""
        found = self._of_kind(None)[option]
        milliseconds, saved = found.milliseconds.parts(), found.saved_bytes.parts()
        return milliseconds, saved, found.workspace_bytes.parts(), found.buffer_bytes.parts()

    def head_curves(self, head: str) -> tuple[Parts, Parts, Parts]:
        """The same of `predict_head`."""
        found = self._of_head(head)
        return found.milliseconds.parts(), found.saved_bytes.parts(), found.buffer_bytes.parts()

    def require_match(
        self,
        shape: ModelShape,
        group_size: int,
        micro_batch_size: int | None = None,
        versions: Mapping[str, str] | None = None,
    ) -> None:
        """Raise a ValueError that says in what the running model differs from the one the costs are of.

        Args:
            micro_batch_size: None when it does not matter.
            versions: of what runs (`provenance.running_versions`); None when they do not matter.
        """
        mine = self.model | {"group_size": self.group_size, "micro_batch_size": self.micro_batch_size}
        theirs = shape.as_dict() | {"group_size": group_size}
        if micro_batch_size is not None:
            theirs["micro_batch_size"] = micro_batch_size
        # Padded, as costs are: Megatron knows a vocabulary's size so, a description otherwise.
        mine["vocab_size"] = self.shape.padded_vocab_size(self.group_size)
        theirs["vocab_size"] = shape.padded_vocab_size(self.group_size)
        differing = [f"{key} {mine[key]} is not {theirs[key]}" for key in theirs if mine[key] != theirs[key]]
        differing += differing_versions(self.provenance.versions, versions or {})
        if differing:
            raise ValueError(
                f"The cost model is of another model than the one that runs: {'; '.join(differing)}. "
                f"Give one of this model with --paradyse-cost-model, or leave it at auto."
            )

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the model as JSON that `load` reads back equal."""
        write_object(path, model_file.SCHEMA, model_file.content(self), model_file.DEPTH)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> CostModel:
        """Read a file of this version's schema.

        Raises:
            ValueError: one sentence that names the file and the key at fault.
        """
        found = read_object(path, "cost model", model_file.SCHEMA)
        return cls(**model_file.fields(found, f"Cost model {path}"))
