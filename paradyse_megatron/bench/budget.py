"""A time that a benchmark has in all, and what is left of it."""

from __future__ import annotations

import time
from dataclasses import dataclass, field


@dataclass(frozen=True)
class TimeBudget:
    """Begins when it is made.

    Attributes:
        seconds: in all; None for as long as it takes.
    """

    seconds: float | None
    _begin: float = field(default_factory=time.monotonic)

    def left(self, share: float = 1.0) -> float | None:
        """Seconds of that share of what is left, at least 0; None for no limit."""
        if self.seconds is None:
            return None
        return share * max(0.0, self._begin + self.seconds - time.monotonic())

    def at_most(self, seconds: float) -> float:
        """`seconds`, or what is left if that is less."""
        left = self.left()
        return seconds if left is None else min(seconds, left)
