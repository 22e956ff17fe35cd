"""Megatron's own schedule of its length-dependent context parallelism, for the simulator."""

from __future__ import annotations

import functools
import logging
import warnings
from collections.abc import Sequence
from typing import Any

from paradyse_megatron.simulation.hybrid_context_parallel import Schedule

logger = logging.getLogger(__name__)


def balanced_schedule() -> Schedule | None:
    """Megatron's `BalancedCPScheduler` as a function; None, said once, where this Megatron has none."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of libraries that are not installed
            from megatron.core.pipeline_parallel.hybrid_cp_schedule import BalancedCPScheduler
    except ImportError as error:
        logger.warning(
            "Megatron's length-dependent context parallelism is left out, as it is not in this Megatron: %s", error
        )
        return None
    return functools.lru_cache(maxsize=4096)(functools.partial(_groups, BalancedCPScheduler))


class _Ranks:
    """Stands for a process group of which the scheduler asks nothing but its size."""

    def __init__(self, num_ranks: int):
        self._num_ranks = num_ranks

    def size(self) -> int:
        return self._num_ranks


def _groups(
    scheduler: Any, lengths: tuple[int, ...], num_ranks: int, max_tokens_per_rank: int
) -> Sequence[Sequence[Sequence[int]]]:
    """For each group and rank the indices of its sequences."""
    if not lengths:
        return []
    _, indices = scheduler(max_tokens_per_rank, _Ranks(num_ranks)).get_groups_and_subsamples(
        list(enumerate(lengths)), None
    )
    return indices
