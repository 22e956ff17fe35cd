"""The place in an iteration that every rank passes at the same time: where gradients are finished.

A forward step is no such place: a pipeline's later stages wait there for what earlier ones have not sent yet.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from megatron.core.utils import get_model_config


def meet_after_each_iteration(model: Any, meet: Callable[[], None]) -> None:
    """Have `meet` called when a training iteration of this model's schedule has computed its gradients.

    All chunks of a pipeline stage share a configuration; those after the first change nothing.
    """
    config = get_model_config(model)
    finish = config.finalize_model_grads_func
    if finish is None or getattr(finish, "meets", False):
        return

    def finish_and_meet(*args: Any, **kwargs: Any) -> Any:
        finished = finish(*args, **kwargs)
        meet()
        return finished

    finish_and_meet.meets = True  # type: ignore[attr-defined]
    config.finalize_model_grads_func = finish_and_meet
