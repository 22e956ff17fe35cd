"""Which of the two searches plans: the C++ one where it is built, else its Python twin."""

from __future__ import annotations

import logging
from functools import lru_cache

from paradyse_megatron.planner import native
from paradyse_megatron.planner.native import NativeStage
from paradyse_megatron.planner.sources import Sources
from paradyse_megatron.planner.stage import Stage, TwinStage

logger = logging.getLogger(__name__)
BACKENDS = ("auto", "cpp", "python")


def backend() -> str:
    """The search that `auto` means here: "cpp" or "python"."""
    return "python" if native.missing else "cpp"


def make_stage(asked: str, sources: Sources, budget_bytes: int, num_in_flight: int) -> Stage:
    """The stage in the asked backend, one of `BACKENDS`. Raises ValueError where that does not exist here."""
    if asked not in BACKENDS:
        raise ValueError(f"The planner's backend is one of {', '.join(BACKENDS)}, but {asked!r} was asked for.")
    if asked == "cpp" and native.missing:
        raise ValueError(f"The planner's backend 'cpp' is not built here ({native.missing}); install with a compiler.")
    chosen = backend() if asked == "auto" else asked
    if asked == "auto":
        _say(chosen)
    return (NativeStage if chosen == "cpp" else TwinStage)(sources, budget_bytes, num_in_flight)


@lru_cache
def _say(chosen: str) -> None:
    if chosen == "cpp":
        logger.info("The planner searches in C++.")
    else:
        logger.warning("The planner searches in Python, as its C++ extension is not built (%s).", native.missing)
