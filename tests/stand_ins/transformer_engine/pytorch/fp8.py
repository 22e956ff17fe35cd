"""See `tests.stand_ins`: fp8 is always off."""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any


class FP8GlobalStateManager:
    """Always says no."""

    @staticmethod
    def is_fp8_enabled() -> bool:
        """Whether inside an fp8 context."""
        return False


def fp8_autocast(*args: Any, **kwargs: Any) -> nullcontext:
    """Nothing."""
    return nullcontext()


fp8_model_init = fp8_autocast
