"""Where the costs of a pipeline stage's layers come from: a cost model for each kind of layer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from paradyse_megatron.planner.cost import CostSource, HeadCost
from paradyse_megatron.planner.option import Option
from paradyse_megatron.planner.plan import HEADS
from paradyse_megatron.planner.problem import Options

Terms = tuple[float, float, float]
"""Of a polynomial of the length: constant, per token, per token squared."""
Parts = tuple[tuple[Terms, ...], tuple[tuple[int, float], ...], tuple[Terms, ...]]
"""Of a curve (`costmodel.curve.Curve`): its terms, points and terms below them."""


class StageCosts(NamedTuple):
    """Costs of all that can be chosen, at one length.

    Attributes:
        kinds: by kind of layer, the costs of its options.
        heads: by way to compute the loss head; on stages without it, one that costs nothing.
    """

    kinds: tuple[Options, ...]
    heads: dict[str, HeadCost]


class StageCurves(NamedTuple):
    """The same at every length: the fields of `Cost` and `HeadCost`, in their order."""

    kinds: list[list[tuple[Parts, Parts, Parts, Parts]]]
    heads: list[tuple[Parts, Parts, Parts]]


@dataclass(frozen=True)
class Sources:
    """Cost models and options of one stage, kind by kind in the order in which they first occur.

    Attributes:
        models: by kind.
        options: by kind, those that layers of the kind can follow.
        layers: for each layer the index of its kind.
        heads: ways to compute the loss head; empty on stages without it.
    """

    models: tuple[CostSource, ...]
    options: tuple[tuple[Option, ...], ...]
    layers: tuple[int, ...]
    heads: tuple[str, ...]

    @property
    def head_model(self) -> CostSource:
        """The loss head follows the last layer, and its costs are in that one's model."""
        return self.models[self.layers[-1]]

    def at(self, tokens: int) -> StageCosts:
        """Costs at one length."""
        kinds = tuple(
            tuple(model.predict(str(option), tokens) for option in options)
            for model, options in zip(self.models, self.options, strict=True)
        )
        heads = {head: self._head(head, tokens) for head in self.heads}
        return StageCosts(kinds, heads or {HEADS[0]: HeadCost(0.0, 0)})

    def curves(self) -> StageCurves | None:
        """Costs as curves; None where some cost model does not give any."""
        if not all(hasattr(model, "curves") for model in self.models):
            return None
        kinds = [
            [model.curves(str(option)) for option in options]  # type: ignore[attr-defined]
            for model, options in zip(self.models, self.options, strict=True)
        ]
        heads = [self.head_model.head_curves(head) for head in self.heads]  # type: ignore[attr-defined]
        return StageCurves(kinds, heads or [(_NOTHING, _NOTHING, _NOTHING)])

    def _head(self, head: str, tokens: int) -> HeadCost:
        arguments = () if head == HEADS[0] else (head,)
        return self.head_model.predict_head(tokens, *arguments)


_NOTHING: Parts = (((0.0, 0.0, 0.0),), (), ())


def find_sources(
    cost_model: CostSource | Mapping[str, CostSource],
    num_layers: int,
    layer_kinds: Sequence[str] | None,
    options: Sequence[str] | None,
    *,
    with_head: bool,
    chunked_head: bool,
) -> Sources:
    """See `planner.Planner` for the arguments. Raises ValueError where they do not go together."""
    kinds = ["layer"] * num_layers if layer_kinds is None else list(layer_kinds)
    if len(kinds) != num_layers:
        raise ValueError(f"There are {num_layers} layers, but layer_kinds names the kinds of {len(kinds)}.")
    names = tuple(dict.fromkeys(kinds))
    models = {name: _model_of_kind(name, cost_model) for name in names}
    if len({model.group_size for model in models.values()}) > 1:
        raise ValueError("The cost models of the kinds of layers are for groups of different sizes.")
    known_heads = getattr(models[kinds[-1]], "heads", HEADS[:1]) if chunked_head else HEADS[:1]
    return Sources(
        tuple(models.values()),
        _options_by_kind(models, options),
        tuple(names.index(kind) for kind in kinds),
        known_heads if with_head else (),
    )


def _model_of_kind(name: str, cost_model: CostSource | Mapping[str, CostSource]) -> CostSource:
    if not isinstance(cost_model, Mapping):
        return cost_model.of_kind(name) if name in getattr(cost_model, "kinds", ()) else cost_model  # type: ignore[attr-defined]
    if name not in cost_model:
        known = ", ".join(cost_model) or "none"
        raise ValueError(f"There are no costs of layers of the kind {name!r}; there are of {known}.")
    return cost_model[name]


def _options_by_kind(models: Mapping[str, CostSource], texts: Sequence[str] | None) -> tuple[tuple[Option, ...], ...]:
    """For each kind those of the options in `texts` that it has costs of, at least one; each known to some kind."""
    known = tuple(dict.fromkeys(text for model in models.values() for text in model.options))
    chosen = tuple(dict.fromkeys(Option.parse(text) for text in (known if texts is None else texts)))
    if not chosen:
        raise ValueError(f"The planner needs at least one option; the cost model knows {', '.join(known) or 'none'}.")
    for option in chosen:
        if str(option) not in known:
            raise ValueError(f"The cost model has no costs of {str(option)!r}; it knows {', '.join(known)}.")
    by_kind = {name: tuple(o for o in chosen if str(o) in model.options) for name, model in models.items()}
    for name, options in by_kind.items():
        if not options:
            raise ValueError(
                f"Layers of the kind {name!r} can follow none of the options {', '.join(map(str, chosen))}; "
                f"there are costs of {', '.join(models[name].options) or 'none'}."
            )
    return tuple(by_kind.values())
