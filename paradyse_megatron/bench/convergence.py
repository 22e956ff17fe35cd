"""Whether training learns the same: the demo under the plan by length and on Megatron's own layers, from one seed.

Both runs go through Megatron's own loop, on the same documents in the same order, in fp32. What differs is how layers
are computed in parallel: as each length demands, or all by tensor and sequence parallelism in Megatron's layers.
"""

from __future__ import annotations

import math
import os
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from paradyse_megatron.bench.ranks import run_on_ranks
from paradyse_megatron.data.corpus import build_corpus
from paradyse_megatron.integration.launch import training_defaults, without_overridden
from paradyse_megatron.runtime.metrics import option_shares
from paradyse_megatron.runtime.trace import TraceLine, read_trace

DYNAMIC, STOCK = "plan by length", "stock"
MOST_DIFFERENT = 1e-3
"""Largest relative difference between the losses of an iteration that still counts as the same curve."""

RUN_SECONDS = 7200
_WORKER = "paradyse_megatron.bench.convergence:train"


def bench(num_iterations: int, seq_length: int, num_ranks: int) -> dict[str, Any]:
    """Both curves and how far apart they are, as JSON."""
    with tempfile.TemporaryDirectory(prefix="paradyse-bench-") as name:
        folder = Path(name)
        build_corpus(None, folder / "stdlib")
        flags = _flags(folder, num_iterations, seq_length, num_ranks)
        runs = {DYNAMIC: flags, STOCK: [flag for flag in flags if flag != "--dynamic-parallel"]}
        traces = {run: _trained(run, arguments, num_ranks, folder) for run, arguments in runs.items()}
    setting = {"num_ranks": num_ranks, "num_iterations": num_iterations, "seq_length": seq_length, "dtype": "fp32"}
    return setting | compared(traces[DYNAMIC], traces[STOCK])


def _flags(folder: Path, num_iterations: int, seq_length: int, num_ranks: int) -> list[str]:
    """The demo's, of this size, with a warm-up and half its learning rate.

    At full speed from the first step Adam enlarges the rounding of gradients near zero, those of rare bytes above all:
    a batch full of them then differs by more between any two orders of summation than any other.
    """
    own = f"--train-iters {num_iterations} --seq-length {seq_length} --max-position-embeddings {seq_length}".split()
    own += f"--lr 1e-3 --min-lr 1e-4 --lr-warmup-iters {num_iterations // 10}".split()
    defaults = training_defaults(num_ranks, str(folder / "stdlib"), folder / "trace.jsonl", False, own)
    return [*without_overridden(defaults, own), *own]


def _trained(run: str, flags: Sequence[str], num_ranks: int, folder: Path) -> list[TraceLine]:
    sys.stderr.write(f"training: {run}\n")
    trace = folder / "trace.jsonl"
    trace.unlink(missing_ok=True)
    outcome = run_on_ranks(_WORKER, num_ranks, {"flags": list(flags)}, timeout_seconds=RUN_SECONDS)
    if outcome.failure:
        raise RuntimeError(f"training ({run}) did not end: {outcome.failure}")
    return sorted(read_trace(trace), key=lambda line: (line.iteration, line.microbatch))


def train(flags: Sequence[str]) -> None:
    """Worker: Megatron's own pre-training loop; its layers are ours with --dynamic-parallel only."""
    os.environ.setdefault("CUDA_DEVICE_MAX_CONNECTIONS", "1")
    from paradyse_megatron import compat
    from paradyse_megatron.integration.pretrain import hooks, settle

    sys.argv = ["pretrain", *flags]
    args, model_config, session = settle()
    compat.call_pretrain(args, model_config, *hooks(args, session))
    session.finish()


def compared(dynamic: Sequence[TraceLine], stock: Sequence[TraceLine]) -> dict[str, Any]:
    """Of the micro-batches of both runs, in order; the largest difference is None where a loss is not finite.

    Raises:
        RuntimeError: they did not train on the same documents.
    """
    if [line.seq_length for line in dynamic] != [line.seq_length for line in stock]:
        raise RuntimeError("the two runs did not train on the same documents")
    curves = {DYNAMIC: losses(dynamic), STOCK: losses(stock)}
    differences = [abs(a / b - 1) for a, b in zip(*curves.values(), strict=True)]
    return {
        "largest_relative_difference": max(differences) if all(map(math.isfinite, differences)) else None,
        "first_iteration_difference": differences[0],
        "first_loss": curves[STOCK][0],
        "last_loss": curves[STOCK][-1],
        "num_plans": len({line.plan for line in dynamic}),
        "option_shares": option_shares(line.plan for line in dynamic),
        "num_real_tokens": sum(line.seq_length for line in dynamic),
        "losses": curves,
    }


def losses(lines: Sequence[TraceLine]) -> list[float]:
    """Of each iteration, the mean over its tokens."""
    sums: dict[int, list[float]] = {}
    for line in lines:
        if line.loss is None:
            raise RuntimeError(f"the loss of iteration {line.iteration} is not known")
        of_iteration = sums.setdefault(line.iteration, [0.0, 0.0])
        of_iteration[0] += line.loss * line.seq_length
        of_iteration[1] += line.seq_length
    return [loss / tokens for _, (loss, tokens) in sorted(sums.items())]


def draw(content: dict[str, Any], path: Path) -> None:
    """Both curves, and below how far apart they are; PNG or SVG by the ending of `path`."""
    try:
        from matplotlib import rc_context
        from matplotlib.figure import Figure
    except ImportError as error:
        raise ValueError("--picture needs matplotlib: pip install 'paradyse-megatron[report]'.") from error
    curves = content["losses"]
    iterations = range(1, len(curves[STOCK]) + 1)
    differences = [max(abs(a / b - 1), 1e-9) for a, b in zip(curves[DYNAMIC], curves[STOCK], strict=True)]
    with rc_context({"svg.hashsalt": "paradyse", "svg.fonttype": "none"}):
        figure = Figure(figsize=(7, 5), layout="constrained")
        above, below = figure.subplots(2, 1, sharex=True, height_ratios=(2, 1))
        above.plot(iterations, curves[STOCK], color="#bbbbbb", linewidth=5, label="Megatron's layers, TP+SP")
        above.plot(iterations, curves[DYNAMIC], color="black", linewidth=1, label="plan by length")
        above.set_ylabel("loss, nats a byte")
        above.legend(frameon=False)
        below.semilogy(iterations, differences, ".", color="black", markersize=3)
        below.axhline(MOST_DIFFERENT, color="#d55e00", linestyle="--")
        below.annotate("bar", (1, MOST_DIFFERENT), color="#d55e00", va="bottom")
        below.set_ylabel("relative difference")
        below.set_xlabel("iteration")
        for axes in (above, below):
            axes.grid(color="#e4e4e4")
            axes.spines[["top", "right"]].set_visible(False)
        figure.savefig(path, metadata={"Date": None} if path.suffix == ".svg" else None)
