"""Argument lists that training must refuse, and ranks that must not start together. Run by hand: see `tests.ranks`."""

from __future__ import annotations

import sys

from paradyse_megatron import cpu

cpu.enable()

from megatron.core.num_microbatches_calculator import unset_num_microbatches_calculator  # noqa: E402
from megatron.training.global_vars import destroy_global_vars  # noqa: E402

from paradyse_megatron.integration.pretrain import settle  # noqa: E402
from paradyse_megatron.runtime.agreement import check_agreement  # noqa: E402


def refusals(defaults: list[str], cases: dict[str, str]) -> dict[str, str]:
    """What each list of additional arguments is answered; '' when it is accepted."""
    answers = {}
    for name, arguments in cases.items():
        sys.argv = ["pretrain", *defaults, *arguments.split()]
        destroy_global_vars()
        unset_num_microbatches_calculator()
        try:
            settle()
            answers[name] = ""
        except ValueError as error:
            answers[name] = str(error)
    return answers


def disagreement(rank_with_less: int, rank: int) -> str:
    """Ranks with different budgets: what each one says."""
    try:
        check_agreement({"budget bytes": 10 if rank == rank_with_less else 20, "plan": "auto"})
    except ValueError as error:
        return str(error)
    return ""


def everyone_disagrees(rank_with_less: int) -> str:
    """`disagreement` on this rank."""
    import torch.distributed as dist

    return disagreement(rank_with_less, dist.get_rank())
