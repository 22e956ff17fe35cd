"""One check: a name, whether it holds, and what was found."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass


@dataclass(frozen=True)
class Check:
    """The outcome of one comparison.

    Attributes:
        part: what it belongs to, such as "kernels".
        name: what was compared.
        holds: whether it came out as it has to.
        found: a figure or a reason, for people.
    """

    part: str
    name: str
    holds: bool
    found: str


Checks = Callable[[], Iterable[Check]]


def gathered(part: str, checks: Checks) -> list[Check]:
    """All checks of a part; an error ends the part, as one that does not hold."""
    done: list[Check] = []
    try:
        done.extend(checks())
    except Exception as error:  # of a kernel, a driver or torch; the other parts go on
        said = " ".join(str(error).split())[:300]
        done.append(Check(part, "ran to its end", False, f"{type(error).__name__}: {said}"))
    if not done:
        done.append(Check(part, "checked something", False, "nothing was checked"))
    return done
