"""Where the numbers of a cost model come from, and how far they can be trusted."""

from __future__ import annotations

import datetime
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib import metadata

from paradyse_megatron import __version__

NOT_MEASURED = "Nothing was measured: times are work divided by the rates in the machine's description."


@dataclass(frozen=True)
class Accuracy:
    """Mean absolute errors as shares (0.1 is 10 %); None where nothing was measured.

    Attributes:
        time_mape_held_out: of times at lengths that no fit has seen, inside the measured range.
        memory_mape_held_out: of peak memory there.
        time_mape_extrapolated_4x: of times at four times the longest fitted length.
        time_mape_random_forest: of a random forest's times at the same held-out lengths, fitted to the same points.
    """

    time_mape_held_out: float | None = None
    memory_mape_held_out: float | None = None
    time_mape_extrapolated_4x: float | None = None
    time_mape_random_forest: float | None = None


@dataclass(frozen=True)
class Provenance:
    """Of a cost model.

    Attributes:
        machine: its name; a description's, where nothing was measured.
        versions: of what ran, by package.
        date: year-month-day.
        grid_tokens: measured lengths.
        traced_tokens: lengths at which layers were traced.
        accuracy: how wrong it was where that was measured.
        assumptions: sentences.
    """

    machine: str
    versions: Mapping[str, str]
    date: str
    grid_tokens: tuple[int, ...] = ()
    traced_tokens: tuple[int, ...] = ()
    accuracy: Accuracy = field(default_factory=Accuracy)
    assumptions: tuple[str, ...] = ()

    @classmethod
    def now(cls, machine: str, **more: tuple[int, ...] | tuple[str, ...]) -> Provenance:
        """Today's, with the versions that are installed."""
        return cls(machine, running_versions(), datetime.date.today().isoformat(), **more)  # type: ignore[arg-type]


def running_versions(megatron_core: str | None = None) -> dict[str, str]:
    """Versions of what costs depend on.

    Args:
        megatron_core: of the Megatron that runs, where it is not the installed package.
    """
    versions = {"paradyse_megatron": __version__, "torch": _installed("torch")}
    return versions | {"megatron_core": megatron_core or _installed("megatron-core")}


def differing_versions(mine: Mapping[str, str], theirs: Mapping[str, str]) -> list[str]:
    """Sentences' parts for packages whose first two numbers differ: patches leave costs alone."""
    return [
        f"{name} {mine.get(name, 'none')} is not {theirs[name]}"
        for name in theirs
        if _first_two(mine.get(name, "none")) != _first_two(theirs[name])
    ]


def _first_two(version: str) -> list[str]:
    return version.split("+")[0].split(".")[:2]


def _installed(package: str) -> str:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return "none"
