"""A traced cost model with what was measured put in its place: times fitted, memory corrected, accuracy stated.

Times of an option that was not measured (it did not fit, or there was no time) are the described machine's, corrected
as all measured options together want it.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import replace

from paradyse_megatron.costmodel import fit
from paradyse_megatron.costmodel.costs import HeadCosts, Measured, OptionCosts
from paradyse_megatron.costmodel.curve import Curve
from paradyse_megatron.costmodel.fit import Times
from paradyse_megatron.costmodel.measurements import Measurements
from paradyse_megatron.costmodel.model import CostModel
from paradyse_megatron.costmodel.peaks import memory_errors, memory_line
from paradyse_megatron.costmodel.polynomial import Polynomial
from paradyse_megatron.costmodel.provenance import NOT_MEASURED, Accuracy, Provenance
from paradyse_megatron.planner.option import Option


def with_measurements(traced: CostModel, found: Measurements) -> CostModel:
    """`traced` with measured times and corrected memory, for models whose layers are of one kind."""
    kind = traced.kinds[0]
    correction = _typical_correction(traced, found)
    costs = {option: _corrected(option, traced, found, correction) for option in traced.options_of(kind)}
    lengths = sorted({length for times in found.times.values() for length in times})
    chunked = traced.chunked_head
    return replace(
        traced,
        source="measured",
        costs={**traced.costs, kind: costs},
        head=_with_head(traced.head, "head:whole", found),
        chunked_head=None if chunked is None else _with_head(chunked, "head:chunked", found),
        provenance=replace(
            Provenance.now(found.machine),
            grid_tokens=tuple(lengths),
            traced_tokens=traced.provenance.traced_tokens,
            accuracy=accuracy(traced, found),
            assumptions=_assumptions(traced, found),
        ),
    )


def _assumptions(traced: CostModel, found: Measurements) -> tuple[str, ...]:
    kept = [sentence for sentence in traced.provenance.assumptions if sentence != NOT_MEASURED]
    scaled_options = [option for option in traced.options if option not in found.times]
    if scaled_options:
        kept.append(
            f"Not measured, but worked out and corrected as the measured options are off: {', '.join(scaled_options)}."
        )
    noises = [noise for noise in map(fit.noise, found.times.values()) if noise is not None]
    if noises:
        kept.append(f"The same point measured again differs by {100 * statistics.median(noises):.1f} % in the median.")
    return tuple(kept)


def _corrected(option: str, traced: CostModel, found: Measurements, correction: tuple[float, float]) -> OptionCosts:
    costs, times = traced.costs[traced.kinds[0]][option], _with_more_work(option, traced, found)
    overhead_bytes, factor = memory_line(option, traced, found)
    return OptionCosts(
        _fitted(option, times, traced, found) if times else slowed(costs.milliseconds, *correction),
        scaled(costs.saved_bytes, factor),
        scaled(costs.workspace_bytes, factor, overhead_bytes),
        costs.buffer_bytes,
        _measured(found.times.get(option, {}), found.peaks.get(option, {})),
    )


def _with_more_work(option: str, traced: CostModel, found: Measurements) -> Times | None:
    """Samples of an option; one that recomputes takes longer than the same without, whatever noise says.

    By at least half of what it takes longer by description; else a plan would recompute to save time.
    """
    times, once = found.times.get(option), _once(option)
    if times is None or once == option or once not in found.times:
        return times
    costs = traced.costs[traced.kinds[0]]
    without = fit.fit_times(found.times[once], costs[once].milliseconds)

    def least(length: int) -> float:
        more = costs[option].milliseconds(length) / costs[once].milliseconds(length) - 1
        return without(length) * (1 + max(0.0, more) / 2)

    return {length: [max(sample, least(length)) for sample in samples] for length, samples in times.items()}


def _fitted(option: str, times: Times, traced: CostModel, found: Measurements) -> Curve:
    """The curve of an option; below the measured lengths, recomputing costs the same share more as at the first."""
    costs = traced.costs[traced.kinds[0]]
    curve, once = fit.fit_times(times, costs[option].milliseconds), _once(option)
    if once == option or once not in found.times:
        return curve
    without = fit.fit_times(found.times[once], costs[once].milliseconds)
    ratio = curve.points[0][1] / without(curve.points[0][0])
    return replace(curve, terms_below=tuple(term * ratio for term in without.terms_below))


def _once(option: str) -> str:
    """The same without recompute."""
    parts = Option.parse(option)
    return str(Option(parts.attention, parts.mlp))


def _with_head(costs: HeadCosts, name: str, found: Measurements) -> HeadCosts:
    times = found.times.get(name)
    if not times:
        return costs
    milliseconds = fit.fit_times(times, costs.milliseconds)
    return replace(costs, milliseconds=milliseconds, measured=_measured(times, found.peaks.get(name, {})))


def _typical_correction(traced: CostModel, found: Measurements) -> tuple[float, float]:
    """Of all measured points of layers, as `fit.corrected` gives it."""
    of_layers = traced.costs[traced.kinds[0]]
    pairs = [
        (of_layers[option].milliseconds(length), statistics.median(samples))
        for option, times in found.times.items()
        if option in of_layers
        for length, samples in times.items()
    ]
    return fit.corrected(*zip(*pairs, strict=True)) if pairs else (0.0, 1.0)


def described(traced: CostModel, name: str) -> Curve | None:
    """Milliseconds of an option or head as `traced` has them; None where it has none."""
    if not name.startswith("head:"):
        costs = traced.costs[traced.kinds[0]].get(name)
        return None if costs is None else costs.milliseconds
    head = traced.head if name == "head:whole" else traced.chunked_head
    return None if head is None else head.milliseconds


def scaled(curve: Curve, factor: float, more: float = 0.0) -> Curve:
    """The curve times a number, plus another."""
    return Curve(
        tuple(term * factor + Polynomial(more) for term in curve.terms),
        tuple((length, value * factor + more) for length, value in curve.points),
        tuple(term * factor + Polynomial(more) for term in curve.terms_below),
    )


def slowed(curve: Curve, overhead: float, factor: float) -> Curve:
    """A described curve (without points) as a machine has it that is slower by `factor` and takes `overhead` on top."""
    return Curve(tuple(term * factor + Polynomial(overhead) for term in curve.terms))


def _measured(times: Times, peaks: Mapping[int, int]) -> tuple[Measured, ...]:
    return tuple(
        Measured(length, statistics.median(times[length]), _spread(times[length]), peaks.get(length))
        for length in sorted(times)
    )


def _spread(samples: Sequence[float]) -> float:
    if len(samples) < 2:
        return 0.0
    first, _, third = statistics.quantiles(samples, n=4, method="inclusive")
    return third - first


def accuracy(traced: CostModel, found: Measurements) -> Accuracy:
    """Of fits to a part of the points, tested on the rest."""
    inside = {name: fit.held_out(times) for name, times in found.times.items() if len(times) >= 5}
    outside = {name: fit.extrapolated(times) for name, times in found.times.items()}

    def error(name: str, fitted: Times, tested: Times) -> float:
        return fit.mean_error(fit.fit_times(fitted, described(traced, name)), tested)

    errors = [error(name, *parts) for name, parts in inside.items()]
    beyond = [error(name, *parts) for name, parts in outside.items() if parts[1]]
    return Accuracy(
        time_mape_held_out=_mean(errors),
        memory_mape_held_out=_mean(memory_errors(traced, found)),
        time_mape_extrapolated_4x=_mean(beyond),
        time_mape_random_forest=_forest_error(inside) if inside else None,
    )


def _forest_error(inside: Mapping[str, tuple[Times, Times]]) -> float | None:
    """Of the paper's model on the same points; None where scikit-learn is not installed."""
    try:
        forest = fit.random_forest({name: fitted for name, (fitted, _) in inside.items()})
    except ImportError:
        return None
    return _mean([fit.mean_error(lambda n, name=name: forest(name, n), tested) for name, (_, tested) in inside.items()])


def _mean(values: Sequence[float]) -> float | None:
    return sum(values) / len(values) if values else None
