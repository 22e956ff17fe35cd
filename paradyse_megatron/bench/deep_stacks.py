"""Random planning problems of the size and shape of real ones: deep, with costs near those of an 8B model on 8 GPUs."""

from __future__ import annotations

import itertools
import random
from dataclasses import dataclass, replace
from functools import lru_cache

from paradyse_megatron.costmodel.cluster import Cluster, Link
from paradyse_megatron.costmodel.costs import OptionCosts
from paradyse_megatron.costmodel.curve import Curve
from paradyse_megatron.costmodel.first_principles import estimate
from paradyse_megatron.costmodel.model import CostModel
from paradyse_megatron.costmodel.shape import ModelShape
from paradyse_megatron.planner import feasible, native
from paradyse_megatron.planner.backends import make_stage
from paradyse_megatron.planner.head import Variant
from paradyse_megatron.planner.option import IMPLEMENTED, NAMES, Option
from paradyse_megatron.planner.planner import Planner
from paradyse_megatron.planner.problem import Problem
from paradyse_megatron.planner.sources import Sources
from paradyse_megatron.planner.stage import Stage

NUM_LAYERS, NUM_OPTIONS = 96, 40
KIND = "dense"
SHAPE = ModelShape(
    4096, 32, 32, 14336, 128256, num_query_groups=8, gated_mlp=True, add_bias=False, rms_norm=True, rotary=True,
    dtype="bf16",
)  # fmt: skip
CLUSTER = Cluster(
    {"bf16": 9.89e14}, 0.6, 80 * 2**30, 3.35e12, 8, Link(3.6e11, 15), Link(4e10, 25), 300, 0.8,
    attention_materialised=False,
)  # fmt: skip
SELECTIVE = (1.08, 0.8, 1.1)
"""Milliseconds, saved and workspace bytes of recomputing the attention core, over those of recomputing nothing."""


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
        """A new planner of the same layers, for those options that this version can run."""
        names = [f"kind {kind}" for kind in self.sources.layers]
        models = {f"kind {kind}": model for kind, model in enumerate(self.sources.models)}
        return Planner(
            models,
            len(names),
            self.budget_bytes,
            options=[str(o) for o in self.sources.options[0] if o.recompute in IMPLEMENTED["recompute"]],
            layer_kinds=names,
            microbatches_in_flight=self.num_in_flight,
            backend=backend,
        )


def random_deep_stack(chooser: random.Random, num_kinds: int) -> DeepStack:
    """Kinds of layers in turn or one after the other; all with the same options, at costs of their own."""
    models = tuple(_random_costs(chooser) for _ in range(num_kinds))
    in_turn = [layer % num_kinds for layer in range(NUM_LAYERS)]
    layers = tuple(sorted(in_turn) if chooser.random() < 0.5 else in_turn)
    sources = Sources(models, (_options(),) * num_kinds, layers, models[0].heads)
    tokens, num_in_flight = 16 * chooser.randint(2_000, 40_000), chooser.choice([1, 1, 2, 4])
    costs = sources.at(tokens)
    head_bytes = min(head.saved_bytes for head in costs.heads.values())
    problem = Problem(costs.kinds, layers, 0, head_bytes, num_in_flight)
    leanest = feasible.least_memory_choice if native.missing else native.least_memory_choice
    least = problem.peak_bytes(leanest(problem))
    most = problem.peak_bytes(Variant(problem, 0.0).fastest_choice())
    return DeepStack(sources, least + int(chooser.uniform(0.05, 0.95) * (most - least)), num_in_flight, tokens)


@lru_cache
def _options() -> tuple[Option, ...]:
    """Those without selective recompute first; they are not enough."""
    grammar = [Option(*names) for names in itertools.product(*NAMES.values())]
    return tuple(sorted(grammar, key=lambda option: option.recompute == "selective")[:NUM_OPTIONS])


@lru_cache
def _costs() -> CostModel:
    runnable = [str(option) for option in _options() if option.recompute != "selective"]
    return estimate(SHAPE, CLUSTER, 8, runnable)


def _random_costs(chooser: random.Random) -> CostModel:
    """Every cost up to a quarter more or less than estimated, and all times and all bytes up to twice or half."""
    of_time, of_bytes = (2 ** chooser.uniform(-1, 1) for _ in range(2))
    costs = {}
    for option in _options():
        is_selective = option.recompute == "selective"
        found = _costs().costs[KIND][str(replace(option, recompute="none")) if is_selective else str(option)]
        curves = (found.milliseconds, found.saved_bytes, found.workspace_bytes)
        of_recompute = SELECTIVE if is_selective else (1.0, 1.0, 1.0)
        scales = zip((of_time, of_bytes, of_bytes), of_recompute, strict=True)
        factors = [scale * of_option * chooser.uniform(0.8, 1.25) for scale, of_option in scales]
        milliseconds, saved, workspace = map(_scaled, curves, factors)
        costs[str(option)] = OptionCosts(milliseconds, saved, workspace)
    return replace(_costs(), costs={KIND: costs})


def _scaled(curve: Curve, factor: float) -> Curve:
    return Curve((curve.terms[0] * factor,))
