"""The curves of all that a profile timed, fitted together."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from statistics import median

from paradyse_megatron.costmodel.calibration import Calibration, calibrate, corrected
from paradyse_megatron.costmodel.curve import Curve
from paradyse_megatron.costmodel.fit import Times, fit_times
from paradyse_megatron.costmodel.model import CostModel
from paradyse_megatron.costmodel.polynomial import Polynomial
from paradyse_megatron.planner.option import Option

AllTimes = Mapping[str, Times]
"""Samples by target: an option's text, "head:whole" or "head:chunked"."""


@dataclass(frozen=True)
class Fits:
    """What times say.

    Attributes:
        calibration: of the described machine, for layers.
        curves: milliseconds of each target that was timed.
    """

    calibration: Calibration
    curves: Mapping[str, Curve]

    @classmethod
    def of(cls, traced: CostModel, times: AllTimes) -> Fits:
        """Of a model whose layers are of one kind, by description in `traced`; targets that it lacks are left out."""
        known = {name: curve for name in times if (curve := described(traced, name)) is not None and times[name]}
        layers = {name: curve for name, curve in known.items() if not _is_head(name)}
        calibration = calibrate(layers, {name: times[name] for name in layers})
        expected = {name: calibration.curve(name, curve) for name, curve in layers.items()}
        curves = {name: fit_times(times[name], curve) for name, curve in expected.items()}
        recomputing = {name: _recomputed(name, times[name], curves, known, expected) for name in expected}
        heads = {name: _head(times[name], curve) for name, curve in known.items() if _is_head(name)}
        return cls(calibration, recomputing | heads)


def described(traced: CostModel, name: str) -> Curve | None:
    """Milliseconds of a target as `traced` has them; None where it has none."""
    if not _is_head(name):
        costs = traced.costs[traced.kinds[0]].get(name)
        return None if costs is None else costs.milliseconds
    head = traced.head if name == "head:whole" else traced.chunked_head
    return None if head is None else head.milliseconds


def _is_head(name: str) -> bool:
    return name.startswith("head:")


def _head(times: Times, by_description: Curve) -> Curve:
    """The head is unlike a layer, so what is known of the machine from those does not serve it."""
    overhead, slower = corrected(
        [by_description(length) for length in times], [median(samples) for samples in times.values()]
    )
    return fit_times(times, Curve(tuple(term * slower + Polynomial(overhead) for term in by_description.terms)))


def _recomputed(
    option: str, times: Times, curves: Mapping[str, Curve], known: Mapping[str, Curve], expected: Mapping[str, Curve]
) -> Curve:
    """The curve of an option; one that recomputes takes longer than the same without, whatever noise says.

    By at least half of what it takes longer by description, else a plan would recompute to save time; below the
    measured lengths by the same share as at the first.
    """
    without = curves.get(_once(option))
    if _once(option) == option or without is None:
        return curves[option]

    def least(length: int) -> float:
        more = known[option](length) / known[_once(option)](length) - 1
        return without(length) * (1 + max(0.0, more) / 2)

    raised = {length: [max(sample, least(length)) for sample in samples] for length, samples in times.items()}
    curve = fit_times(raised, expected[option])
    first, value = curve.points[0]
    return replace(curve, terms_below=tuple(term * (value / without(first)) for term in without.terms_below))


def _once(option: str) -> str:
    """The same without recompute."""
    parts = Option.parse(option)
    return str(Option(parts.attention, parts.mlp))
