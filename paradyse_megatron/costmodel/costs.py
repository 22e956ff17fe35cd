"""What is known of one option, and of the loss head."""

from __future__ import annotations

from dataclasses import dataclass

from paradyse_megatron.costmodel.curve import Curve


@dataclass(frozen=True)
class Measured:
    """One measured length.

    Attributes:
        length_tokens: s.
        milliseconds: median of forward plus backward.
        spread_milliseconds: from the first to the third quartile.
        peak_bytes: saved and workspace together; None where memory was not measured.
    """

    length_tokens: int
    milliseconds: float
    spread_milliseconds: float
    peak_bytes: int | None = None


@dataclass(frozen=True)
class OptionCosts:
    """Costs of one layer under one option, as `planner.cost.Cost`, by length; and what was measured of them."""

    milliseconds: Curve
    saved_bytes: Curve
    workspace_bytes: Curve
    buffer_bytes: Curve
    measured: tuple[Measured, ...] = ()


@dataclass(frozen=True)
class HeadCosts:
    """Costs of the loss head, as `planner.cost.HeadCost`, by length; and what was measured of them."""

    milliseconds: Curve
    saved_bytes: Curve
    buffer_bytes: Curve
    measured: tuple[Measured, ...] = ()
