"""Random planning problems of the size and shape of real ones: deep, with the costs of a shipped model, profiled."""

from __future__ import annotations

import random
from dataclasses import dataclass, replace
from functools import lru_cache

from paradyse_megatron.costmodel.configs import configs_folder
from paradyse_megatron.costmodel.costs import OptionCosts
from paradyse_megatron.costmodel.curve import Curve
from paradyse_megatron.costmodel.model import CostModel
from paradyse_megatron.planner import feasible, native
from paradyse_megatron.planner.backends import make_stage
from paradyse_megatron.planner.head import Variant
from paradyse_megatron.planner.option import Option
from paradyse_megatron.planner.planner import Planner
from paradyse_megatron.planner.problem import Problem
from paradyse_megatron.planner.sources import Sources
from paradyse_megatron.planner.stage import Stage

NUM_LAYERS, NUM_OPTIONS = 96, 40
KIND = "dense"
FILES = ("llama-2-7b-p8-dgx-h100.cost.json", "gpt-13b-p8-8x4090-pcie.cost.json")
"""Among the shipped cost models: fast links and slow ones."""
PROFILED = tuple(2**exponent for exponent in range(9, 18))
"""Tokens at which times are as good as measured: between them they are interpolated, beyond extrapolated."""


@dataclass(frozen=True)
class DeepStack:
    """A pipeline stage under memory pressure.

    Attributes:
        sources: costs and options of its layers.
        budget_bytes: below what the fastest options need, above the least that any need.
        num_in_flight: micro-batches.
        tokens: the length to plan for.
    """

    sources: Sources
    budget_bytes: int
    num_in_flight: int
    tokens: int

    def stage(self, backend: str) -> Stage:
        """A new one."""
        return make_stage(backend, self.sources, self.budget_bytes, self.num_in_flight)

    def planner(self, backend: str) -> Planner:
        """A new planner of the same layers."""
        names = [f"kind {kind}" for kind in self.sources.layers]
        models = {f"kind {kind}": model for kind, model in enumerate(self.sources.models)}
        return Planner(
            models,
            len(names),
            self.budget_bytes,
            options=[str(option) for option in self.sources.options[0]],
            layer_kinds=names,
            microbatches_in_flight=self.num_in_flight,
            backend=backend,
        )


def random_deep_stack(chooser: random.Random, num_kinds: int) -> DeepStack:
    """Kinds of layers in turn or one after the other; all with the same options, at costs of their own."""
    shipped = _profiled(chooser.choice(FILES))
    models = tuple(_random_costs(chooser, shipped) for _ in range(num_kinds))
    in_turn = [layer % num_kinds for layer in range(NUM_LAYERS)]
    layers = tuple(sorted(in_turn) if chooser.random() < 0.5 else in_turn)
    options = tuple(map(Option.parse, shipped.options))
    sources = Sources(models, (options,) * num_kinds, layers, models[0].heads)
    tokens, num_in_flight = 16 * chooser.randint(2_000, 40_000), chooser.choice([1, 1, 2, 4])
    costs = sources.at(tokens)
    head = min(costs.heads.values(), key=lambda head: head.saved_bytes)
    problem = Problem(costs.kinds, layers, 0, head.saved_bytes, num_in_flight, head.buffer_bytes)
    leanest = feasible.least_memory_choice if native.missing else native.least_memory_choice
    least = problem.peak_bytes(leanest(problem))
    most = problem.peak_bytes(Variant(problem, 0.0).fastest_choice())
    return DeepStack(sources, least + int(chooser.uniform(0.05, 0.95) * (most - least)), num_in_flight, tokens)


@lru_cache
def _profiled(file: str) -> CostModel:
    """A shipped cost model with `NUM_OPTIONS` of its options, as if their times had been measured."""
    model = CostModel.load(configs_folder() / "costs" / file)
    costs = {option: model.costs[KIND][option] for option in model.options[:NUM_OPTIONS]}
    assert len(costs) == NUM_OPTIONS, f"{file} has only {len(costs)} options"
    timed = {option: replace(each, milliseconds=_measured(each.milliseconds)) for option, each in costs.items()}
    return replace(model, costs={KIND: timed})


def _measured(curve: Curve) -> Curve:
    return Curve(curve.terms, tuple((length, curve(length)) for length in PROFILED), curve.terms)


def _random_costs(chooser: random.Random, shipped: CostModel) -> CostModel:
    """Every cost up to a quarter more or less than shipped, and all times and all bytes up to twice or half.

    But not Megatron's buffer, which all share, and which is a part of the workspace.
    """
    of_time, of_bytes = (2 ** chooser.uniform(-1, 1) for _ in range(2))
    costs = {}
    for option, found in shipped.costs[KIND].items():
        milliseconds, saved, workspace = (
            _scaled(curve, scale * chooser.uniform(0.8, 1.25))
            for curve, scale in (
                (found.milliseconds, of_time),
                (found.saved_bytes, of_bytes),
                (found.workspace_bytes, of_bytes),
            )
        )
        costs[option] = OptionCosts(milliseconds, saved, _beside(workspace, found.buffer_bytes), found.buffer_bytes)
    return replace(shipped, costs={KIND: costs})


def _beside(workspace: Curve, buffer: Curve) -> Curve:
    """The workspace, raised where the buffer alone would be more; both are polynomials."""
    return Curve((*workspace.terms, *buffer.terms))


def _scaled(curve: Curve, factor: float) -> Curve:
    terms, terms_below = ([term * factor for term in each] for each in (curve.terms, curve.terms_below))
    points = tuple((length, value * factor) for length, value in curve.points)
    return Curve(tuple(terms), points, tuple(terms_below))
