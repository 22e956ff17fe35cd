"""Flags that verbs about plans share, and the planner that they ask for."""

from __future__ import annotations

import argparse
import functools
import sys
from dataclasses import dataclass

from paradyse_megatron.costmodel.average import AverageLayer
from paradyse_megatron.costmodel.model import CostModel
from paradyse_megatron.integration.sizes import parse_size
from paradyse_megatron.planner.planner import Planner
from paradyse_megatron.planner.survey import MakePlanner


def add_cost_arguments(parser: argparse.ArgumentParser) -> None:
    """--cost-model, --memory-budget, --num-layers."""
    parser.add_argument("--cost-model", required=True, metavar="FILE", help="a cost model file")
    parser.add_argument("--memory-budget", metavar="SIZE", help="memory of a rank, such as 16GiB (default: no limit)")
    parser.add_argument("--num-layers", type=int, metavar="L", help="layers of a rank (default: those of the model)")


@dataclass(frozen=True)
class Asked:
    """What the shared flags say.

    Attributes:
        cost_model: the file.
        layer: the costs of its average layer.
        num_layers: L.
        budget_bytes: of a rank; None for no limit.
        make: makes planners, see `planner.survey`.
    """

    cost_model: CostModel
    layer: AverageLayer
    num_layers: int
    budget_bytes: int | None
    make: MakePlanner

    @classmethod
    def of(cls, asked: argparse.Namespace) -> Asked:
        """Read the file. Raises ValueError."""
        cost_model = CostModel.load(asked.cost_model)
        budget_bytes = parse_size(asked.memory_budget, "--memory-budget") if asked.memory_budget else None
        num_layers = cost_model.shape.num_layers if asked.num_layers is None else asked.num_layers
        kinds = cost_model.shape.layer_kinds
        make = functools.partial(
            Planner,
            cost_model,
            num_layers,
            sys.maxsize if budget_bytes is None else budget_bytes,
            layer_kinds=[kinds[layer % len(kinds)] for layer in range(num_layers)],
            static_bytes=cost_model.shape.static_bytes(cost_model.group_size),
        )
        make()
        return cls(cost_model, AverageLayer(cost_model), num_layers, budget_bytes, make)
