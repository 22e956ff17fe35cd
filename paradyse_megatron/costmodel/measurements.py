"""What a profile measured, before anything is fitted to it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from paradyse_megatron.costmodel.cluster import Link
from paradyse_megatron.costmodel.fit import Times


@dataclass(frozen=True)
class Measurements:
    """What a profile brings home.

    Attributes:
        times: milliseconds of one layer by option text, and of the loss head under "head:whole" and "head:chunked".
        peaks: bytes of a stack of layers, or of the head, by the same names and by length.
        num_layers: of that stack.
        machine: its name.
        links: that ranks measured, by kind of message (`links.measured_links`); empty where none were.
    """

    times: Mapping[str, Times]
    peaks: Mapping[str, Mapping[int, int]] = field(default_factory=dict)
    num_layers: int = 1
    machine: str = "unknown"
    links: Mapping[str, Link] = field(default_factory=dict)
