"""Costs of a GPT layer that is built as two layers, attention and MLP (`*-` in Megatron's hybrid pattern).

Both do what the halves of the GPT layer do, in the same order. But recomputed in full, each keeps its own input.
"""

from __future__ import annotations

from dataclasses import replace

from paradyse_megatron.costmodel.costs import OptionCosts
from paradyse_megatron.costmodel.curve import Curve
from paradyse_megatron.costmodel.model import CostModel
from paradyse_megatron.costmodel.polynomial import Polynomial
from paradyse_megatron.planner.option import Option


def pair_costs(of_layers: CostModel) -> CostModel:
    """Costs of pairs that follow one option, from those of the GPT layer."""
    costs = {
        kind: {option: _of_pair(option, each, of_layers) for option, each in of_kind.items()}
        for kind, of_kind in of_layers.costs.items()
    }
    return replace(of_layers, costs=costs)


def _of_pair(option: str, costs: OptionCosts, of_layers: CostModel) -> OptionCosts:
    if Option.parse(option).recompute != "full":
        return costs
    shape = of_layers.shape
    input_bytes = of_layers.micro_batch_size * shape.hidden_size * shape.bytes_per_element  # [s/P, b, h]
    return replace(costs, saved_bytes=_raised(costs.saved_bytes, input_bytes / of_layers.group_size))


def _raised(curve: Curve, per_token: float) -> Curve:
    more = Polynomial(per_token=per_token)
    terms, terms_below = ([term + more for term in each] for each in (curve.terms, curve.terms_below))
    points = tuple((length, value + more(length)) for length, value in curve.points)
    return Curve(tuple(terms), points, tuple(terms_below))
