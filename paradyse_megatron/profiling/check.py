"""Traced work against the closed forms of `costmodel`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from paradyse_megatron.costmodel.closed_forms import layer_work
from paradyse_megatron.costmodel.compose import compose
from paradyse_megatron.costmodel.setting import Setting
from paradyse_megatron.costmodel.work import KINDS, PartWork, Pass, Work
from paradyse_megatron.planner.option import Option

LENGTHS = tuple(2**exponent for exponent in range(12, 20))
"""Tokens at which the two are compared."""


@dataclass(frozen=True)
class Agreement:
    """One option: closed form over trace, the least and the most over `LENGTHS`.

    Attributes:
        sent: bytes and calls of every kind of message, forward and backward.
        flops: of products and of attention, forward and backward.
        saved: bytes.
        peak: bytes saved and workspace together.
        buffer: bytes of those, in Megatron's buffer.
    """

    sent: tuple[float, float]
    flops: tuple[float, float]
    saved: tuple[float, float]
    peak: tuple[float, float]
    buffer: tuple[float, float]

    def faults(self) -> list[str]:
        """What is further apart than it may be, as clauses.

        Messages and buffer are exact. FLOPs count a bias as one more row of its matrix; saved bytes leave out what a
        few operations note down for each row; the peak is an upper bound.
        """
        allowed = {"sent": (1.0, 1.0), "flops": (0.999, 1.01), "saved": (0.98, 1.06), "peak": (0.99, 2.0)}
        allowed["buffer"] = allowed["sent"]
        return [
            f"{name} by closed form is {least:.4f} to {most:.4f} times the traced"
            for name, (lowest, highest) in allowed.items()
            for least, most in [getattr(self, name)]
            if not (lowest - 1e-9 <= least and most <= highest + 1e-9)
        ]


def agreement(parts: Mapping[str, PartWork], option: Option, setting: Setting) -> Agreement:
    """Of a layer without experts under `option`."""
    traced = compose(parts, option, "dense", setting)
    closed = layer_work(option, setting)
    return Agreement(
        _range(zip(_sent(closed), _sent(traced), strict=True)),
        _range(pair for way in ("forward", "backward") for pair in _flops(getattr(closed, way), getattr(traced, way))),
        _range((closed.saved_bytes(s), traced.saved_bytes(s)) for s in LENGTHS),
        _range((_peak(closed, s), _peak(traced, s)) for s in LENGTHS),
        _range((closed.buffer_bytes(s), traced.buffer_bytes(s)) for s in LENGTHS),
    )


def _sent(work: Work) -> list[float]:
    """Bytes at each length and calls, by kind and direction."""
    found: list[float] = []
    for kind in KINDS:
        of_kind = [transfer for transfer in work.transfers if transfer.kind == kind]
        found += [sum(each.forward_bytes(s) for each in of_kind) for s in LENGTHS]
        found += [sum(each.backward_bytes(s) for each in of_kind) for s in LENGTHS]
        found += [sum(each.forward_calls for each in of_kind), sum(each.backward_calls for each in of_kind)]
    return found


def _flops(closed: Pass, traced: Pass) -> list[tuple[float, float]]:
    names = ("product_flops", "attention_flops")
    return [(getattr(closed, name)(s), getattr(traced, name)(s)) for name in names for s in LENGTHS]


def _peak(work: Work, seq_length: int) -> float:
    return work.saved_bytes(seq_length) + work.workspace_bytes(seq_length)


def _range(pairs: Iterable[tuple[float, float]]) -> tuple[float, float]:
    ratios = [1.0 if closed == traced else closed / traced if traced else float("inf") for closed, traced in pairs]
    return min(ratios), max(ratios)
