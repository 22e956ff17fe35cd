"""One rank of a profile: `torchrun --nproc-per-node P -m paradyse_megatron.integration.profile_rank ASSIGNMENT`.

The assignment is a JSON file with the fields of `measure.Assignment`; what was measured is in its file `keep` when all
ranks have ended.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist


def run(shape: Mapping[str, Any], **assignment: Any) -> None:
    """Measure, with the default process group up. Arguments are the fields of `measure.Assignment`."""
    from megatron.core import parallel_state
    from megatron.core.tensor_parallel.random import model_parallel_cuda_manual_seed

    from paradyse_megatron import cpu
    from paradyse_megatron.costmodel.shape import ModelShape
    from paradyse_megatron.cpu.memory import write_to_new_tensors
    from paradyse_megatron.profiling.measure import Assignment, profile

    parallel_state.initialize_model_parallel(tensor_model_parallel_size=dist.get_world_size())
    model_parallel_cuda_manual_seed(1)
    if cpu.is_enabled() and assignment.get("weighs"):  # in processes of their own there: nothing is timed
        write_to_new_tensors()
    profile(Assignment(shape=ModelShape(**shape), **assignment), _Bar() if dist.get_rank() == 0 else _silent)


def _silent(share: float, text: str) -> None:
    """Progress of the ranks that do not report."""


class _Bar:
    """Progress on standard error, with the time that remains; nothing where that is no terminal."""

    def __init__(self) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

        columns = (TextColumn("measuring"), BarColumn(), TimeRemainingColumn(), TextColumn("{task.description}"))
        self._progress = Progress(*columns, console=Console(stderr=True), transient=True)
        self._task = self._progress.add_task("", total=1.0)
        self._progress.start()

    def __call__(self, share: float, text: str) -> None:
        self._progress.update(self._task, completed=share, description=text)
        if share >= 1:
            self._progress.refresh()


def main() -> None:
    """Entry point of each rank."""
    on_gpu = torch.cuda.is_available()
    if on_gpu:
        torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    else:
        from paradyse_megatron import cpu

        cpu.enable()
    assignment = json.loads(Path(sys.argv[1]).read_text())
    dist.init_process_group("nccl" if on_gpu else "gloo")
    run(**assignment)
    dist.barrier()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)  # a thread of gloo's may still let go of tensors, and aborts when the interpreter has ended meanwhile


if __name__ == "__main__":
    main()
