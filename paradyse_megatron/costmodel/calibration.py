"""The described machine, corrected by what all measured options took together.

By description, a layer's time is a sum: what no length changes (latencies of messages), what grows with the length
(products, memory traffic, bytes that are sent), and attention, which grows with its square. A machine is off its
description by a factor in each of these, and by an overhead of every layer. The factors are the machine's and not an
option's, so the points of all options find them together, and what is measured of one tells of all: by least squares of
relative errors, held to one common factor as far as the points leave them open.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from paradyse_megatron.costmodel.curve import Curve
from paradyse_megatron.costmodel.fit import Times
from paradyse_megatron.costmodel.polynomial import Polynomial
from paradyse_megatron.planner.option import Option

FASTEST = 0.5
"""No machine takes less than this share of what is described, however noisy the points that say so."""
HELD = 0.07
"""How much a factor that is twice the common one counts, in relative errors of all points."""

_MEGATRON = "tp_sp"
"""Attention by Megatron's own core; that of all others is this package's."""


@dataclass(frozen=True)
class Calibration:
    """What a machine takes for a part of a layer, over what is described.

    Attributes:
        overhead_ms: on top, of every layer.
        constant: of what no length changes.
        per_token: of what grows with the length.
        attention: of this package's attention.
        megatron_attention: of Megatron's.
    """

    overhead_ms: float = 0.0
    constant: float = 1.0
    per_token: float = 1.0
    attention: float = 1.0
    megatron_attention: float = 1.0

    def __str__(self) -> str:
        return (
            f"{self.constant:.2g} times as long for latencies, {self.per_token:.2g} for what grows with the length, "
            f"{self.attention:.2g} for attention ({self.megatron_attention:.2g} in Megatron's own core), and "
            f"{self.overhead_ms:.2g} ms of every layer on top"
        )

    def curve(self, option: str, described: Curve) -> Curve:
        """Milliseconds of an option on this machine, from those of the description (a curve without points)."""
        squared = self.megatron_attention if _is_megatrons(option) else self.attention
        return Curve(
            tuple(
                Polynomial(
                    self.overhead_ms + self.constant * term.constant,
                    self.per_token * term.per_token,
                    squared * term.per_token_squared,
                )
                for term in described.terms
            )
        )


def calibrate(described: Mapping[str, Curve], times: Mapping[str, Times]) -> Calibration:
    """From samples in milliseconds by option and length; as described where there are none.

    Args:
        described: a curve without points for each option that `times` has.
    """
    from scipy.optimize import lsq_linear

    medians = [
        (option, length, statistics.median(samples)) for option in times for length, samples in times[option].items()
    ]
    if not medians:
        return Calibration()
    rows = [
        [part / milliseconds for part in _parts(option, described[option], length)]
        for option, length, milliseconds in medians
    ]
    held = HELD * math.sqrt(len(rows))
    common = _common(rows)
    hold = np.hstack([np.zeros((3, 2)), np.eye(3) * held / common])
    wanted = np.concatenate([np.ones(len(rows)), np.full(3, held)])
    found = lsq_linear(np.vstack([rows, hold]), wanted, bounds=([0.0, 0.0] + [FASTEST] * 3, np.inf))
    return Calibration(*map(float, found.x))


def _common(rows: Sequence[Sequence[float]]) -> float:
    """The one factor of all that grows with the length, beside one of latencies and an overhead; at least `FASTEST`."""
    from scipy.optimize import lsq_linear

    parts = [[overhead, constant, sum(growing)] for overhead, constant, *growing in rows]
    found = lsq_linear(np.array(parts), np.ones(len(parts)), bounds=([0.0, 0.0, FASTEST], np.inf))
    return float(found.x[2])


def corrected(described: Sequence[float], measured: Sequence[float]) -> tuple[float, float]:
    """The machine's (a, b) in measured = a + b x described, both milliseconds, by least squares of relative errors.

    a, what every layer takes however short it is, is at least 0; b, how much slower the machine works, `FASTEST`.
    """
    from scipy.optimize import nnls

    values = np.array(measured, dtype=float)
    work = np.array(described, dtype=float) / values
    overhead, slower = nnls(np.stack([1 / values, work], axis=1), np.ones_like(values))[0]
    if slower < FASTEST:
        slower = FASTEST
        overhead = nnls((1 / values)[:, None], 1 - slower * work)[0][0]
    return float(overhead), float(slower)


def _parts(option: str, described: Curve, length: int) -> list[float]:
    """Milliseconds by description that each field of a `Calibration` is a factor of; 1 for the overhead."""
    term = max(described.terms, key=lambda term: term(length))
    squared = term.per_token_squared * length * length
    own, megatrons = (0.0, squared) if _is_megatrons(option) else (squared, 0.0)
    return [1.0, term.constant, term.per_token * length, own, megatrons]


def _is_megatrons(option: str) -> bool:
    return Option.parse(option).attention == _MEGATRON
