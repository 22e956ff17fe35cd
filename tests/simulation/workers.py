"""What needs Megatron: its schedule of length-dependent context parallelism, and a whole simulation with it."""

from __future__ import annotations

import contextlib
import io
import json
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from paradyse_megatron.cli.main import main
from paradyse_megatron.integration.balanced_cp import balanced_schedule
from paradyse_megatron.simulation.context_parallel import ContextParallel, tensor_parallel_costs
from paradyse_megatron.simulation.hybrid_context_parallel import HybridContextParallel
from tests.ranks import REPOSITORY


def hybrid() -> dict[str, Any]:
    """How many sequences whose schedule was checked, and the answer of the command line."""
    return {"scheduled": _schedules(), "answer": _answer()}


def _schedules() -> int:
    from tests.simulation.test_simulation import NETWORK, SHAPE

    schedule = balanced_schedule()
    assert schedule is not None
    base = ContextParallel(tensor_parallel_costs(SHAPE, NETWORK, 8), NETWORK, 1)
    checked = 0
    for seed, max_tokens in ((1, 4096), (2, 8192), (3, 65_536)):
        mine = HybridContextParallel(base, max_tokens, schedule)
        assert mine.num_ranks == 8
        lengths = np.random.default_rng(seed).integers(16, 32_000, 48)
        groups = schedule(tuple(map(int, lengths)), 8, max_tokens)
        total = 0.0
        for group in groups:
            loads = []
            for rank in group:
                loads.append(0.0)
                for index in rank:
                    sharers = sum(index in other for other in group)
                    assert sharers & (sharers - 1) == 0 and sharers * max_tokens >= lengths[index]
                    loads[-1] += ContextParallel(base.costs, NETWORK, sharers).milliseconds(int(lengths[index]))
            total += max(loads)
        once = sorted({(number, index) for number, group in enumerate(groups) for rank in group for index in rank})
        assert sorted(index for _, index in once) == list(range(len(lengths)))
        assert np.isclose(mine.step_ms(lengths), total)
        checked += len(lengths)
    return checked


def _answer() -> dict[str, Any]:
    configs = REPOSITORY / "configs"
    with tempfile.TemporaryDirectory() as folder:
        lengths = Path(folder) / "lengths"
        lengths.write_text("\n".join(map(str, [64, 300, 900, 4096, 7000, 120, 2000, 16_000])))
        arguments = f"simulate --model {configs}/models/tiny.yaml --cluster {configs}/clusters/cpu-2core.yaml --gpus 4"
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            status = main([*arguments.split(), "--lengths", str(lengths), "--global-batch", "4", "--json"])
    assert status == 0
    return json.loads(printed.getvalue())
