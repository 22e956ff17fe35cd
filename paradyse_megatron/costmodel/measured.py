"""A traced cost model with what was measured put in its place: times fitted, memory corrected, accuracy stated.

Times of an option that was not measured (it did not fit, or there was no time) are the described machine's, corrected
as all measured options together want it.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import replace

from paradyse_megatron.costmodel import fit, validation
from paradyse_megatron.costmodel.calibration import Calibration
from paradyse_megatron.costmodel.costs import HeadCosts, Measured, OptionCosts
from paradyse_megatron.costmodel.curve import Curve
from paradyse_megatron.costmodel.fit import Times
from paradyse_megatron.costmodel.fits import Fits
from paradyse_megatron.costmodel.measurements import Measurements
from paradyse_megatron.costmodel.model import CostModel
from paradyse_megatron.costmodel.peaks import memory_errors, memory_line
from paradyse_megatron.costmodel.polynomial import NOTHING, Polynomial
from paradyse_megatron.costmodel.provenance import NOT_MEASURED, Accuracy, Provenance
from paradyse_megatron.costmodel.validation import Predict, Split


def with_measurements(traced: CostModel, found: Measurements) -> CostModel:
    """`traced` with measured times and corrected memory, for models whose layers are of one kind."""
    kind = traced.kinds[0]
    fits = Fits.of(traced, found.times)
    costs = {option: _corrected(option, traced, found, fits) for option in traced.options_of(kind)}
    lengths = sorted({length for times in found.times.values() for length in times})
    chunked = traced.chunked_head
    return replace(
        traced,
        source="measured",
        costs={**traced.costs, kind: costs},
        head=_with_head(traced.head, "head:whole", found, fits),
        chunked_head=None if chunked is None else _with_head(chunked, "head:chunked", found, fits),
        provenance=replace(
            Provenance.now(found.machine),
            grid_tokens=tuple(lengths),
            traced_tokens=traced.provenance.traced_tokens,
            accuracy=accuracy(traced, found),
            assumptions=_assumptions(traced, found, fits.calibration),
        ),
    )


def _assumptions(traced: CostModel, found: Measurements, calibration: Calibration) -> tuple[str, ...]:
    kept = [sentence for sentence in traced.provenance.assumptions if sentence != NOT_MEASURED]
    scaled_options = [option for option in traced.options if option not in found.times]
    if scaled_options:
        kept.append(
            f"Not measured, but worked out and corrected as the measured options are off: {', '.join(scaled_options)}."
        )
    if found.links:
        known = (
            f"{kind} {link.bandwidth_bytes_per_s / 1e6:.3g} MB/s after {link.latency_us:.3g} us"
            for kind, link in found.links.items()
        )
        kept.append(f"Messages as measured: {', '.join(known)}.")
    if any(option in found.times for option in traced.options):
        kept.append(f"Beside its description this machine takes {calibration}.")
    noises = [noise for noise in map(fit.noise, found.times.values()) if noise is not None]
    if noises:
        kept.append(f"The same point measured again differs by {100 * statistics.median(noises):.1f} % in the median.")
    return tuple(kept)


def _corrected(option: str, traced: CostModel, found: Measurements, fits: Fits) -> OptionCosts:
    costs = traced.costs[traced.kinds[0]][option]
    line = memory_line(option, traced, found)
    return OptionCosts(
        fits.curves.get(option) or fits.calibration.curve(option, costs.milliseconds),
        scaled(costs.saved_bytes, line.factor),
        scaled(costs.workspace_bytes, line.factor, line.on_top),
        costs.buffer_bytes,
        _measured(found.times.get(option, {}), found.peaks.get(option, {})),
    )


def _with_head(costs: HeadCosts, name: str, found: Measurements, fits: Fits) -> HeadCosts:
    if name not in fits.curves:
        return costs
    measured = _measured(found.times[name], found.peaks.get(name, {}))
    return replace(costs, milliseconds=fits.curves[name], measured=measured)


def scaled(curve: Curve, factor: float, more: Polynomial = NOTHING) -> Curve:
    """The curve times a number, plus a polynomial."""
    return Curve(
        tuple(term * factor + more for term in curve.terms),
        tuple((length, value * factor + more(length)) for length, value in curve.points),
        tuple(term * factor + more for term in curve.terms_below),
    )


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
    inside, beyond = validation.inside(found.times), validation.beyond(found.times)
    return Accuracy(
        time_mape_held_out=_error(inside, validation.by_fits_inside(traced, inside)),
        memory_mape_held_out=_mean(memory_errors(traced, found)),
        time_mape_extrapolated_4x=_error(beyond, validation.by_fits_beyond(traced, beyond, found.times)),
        time_mape_random_forest=_forest_error(inside),
    )


def _forest_error(split: Split) -> float | None:
    """Of the paper's model on the same points; None where scikit-learn is not installed."""
    try:
        return _error(split, validation.by_forest(split))
    except ImportError:
        return None


def _error(split: Split, predict: Predict) -> float | None:
    return validation.mean_error(list(validation.points(split, predict)))


def _mean(values: Sequence[float]) -> float | None:
    return sum(values) / len(values) if values else None
