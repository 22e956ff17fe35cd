"""Attention strategies beside independent implementations of the same thing, on the same tensors and CPU ranks."""

from __future__ import annotations

import argparse
import warnings
from typing import Any

from paradyse_megatron.cli.answer import Answer

EXAMPLE = "paradyse bench peers --out peers.json"
LENGTHS = (1024, 4096)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Flags of this benchmark."""
    parser.add_argument("--num-ranks", type=int, default=2, metavar="P", help="CPU ranks (default: 2)")
    parser.add_argument("--rounds", type=int, default=9, metavar="N", help="each runs once a round (default: 9)")
    parser.add_argument("--lengths", type=int, nargs="+", default=LENGTHS, metavar="TOKENS", help=f"default: {LENGTHS}")
    parser.add_argument(
        "--num-documents", type=int, default=2048, metavar="N",
        help="of the simulation of Megatron's length-dependent context parallelism; 0 leaves it out (default: 2048)",
    )  # fmt: skip


def run(asked: argparse.Namespace) -> dict[str, Any]:
    """The figures."""
    warnings.simplefilter("ignore")
    if asked.num_ranks < 2 or 8 % asked.num_ranks:
        raise ValueError(f"--num-ranks is {asked.num_ranks}; 8 heads are shared by 2, 4 or 8 ranks.")
    wrong = [length for length in asked.lengths if length < 1 or length % (2 * asked.num_ranks)]
    if wrong:
        raise ValueError(f"--lengths {wrong[0]} cannot be dealt in zigzag; give multiples of {2 * asked.num_ranks}.")
    if asked.rounds < 1 or asked.num_documents < 0:
        raise ValueError(f"--rounds {asked.rounds} must be at least 1, --num-documents {asked.num_documents} 0.")
    from paradyse_megatron.bench.peers.run import bench, shapes

    return bench(shapes(asked.lengths), asked.num_ranks, asked.rounds, asked.num_documents)


def answer(content: dict[str, Any]) -> Answer:
    """A row a case, kind and implementation; the answer is no where ours is slower beyond noise, or results differ."""
    rows = [
        (row["case"], row["kind"], name, f"{row['median_ms'][name]:,.1f}", f"{row['ratios'].get(name, 1.0):.3f}")
        for row in content["table"]
        for name in row["median_ms"]
    ]
    columns = ("case", "kind", "implementation", "ms", "ours / it")
    title = f"Forward and backward of attention on {content['num_ranks']} CPU ranks, fp32, gloo"
    return Answer(content, title, columns, rows, _notes(content), content["as_fast"] and content["all_agree"])


def _notes(content: dict[str, Any]) -> list[str]:
    said = [f"{name} does not run here: {reason}" for name, reason in content["could_not_run"].items()]
    if content["slowest_ratio_to_best_peer"] is not None:
        ratio, noise = content["slowest_ratio_to_best_peer"], content["noise_floor"]
        said += [f"ours over the best peer, at worst: {ratio:.3f}; the same code differs from itself by {noise:.3f}"]
    said += [f"results of {name} differ from the true ones" for name in content["disagreeing"]]
    said += [f"largest distance from the true result (relative L2): {content['largest_error']:.1e}"]
    if content.get("simulated_speedup_over_balanced_cp") is not None:
        speedup, setting = content["simulated_speedup_over_balanced_cp"], content["simulated_setting"]
        said += [f"simulated, plan by length over Megatron's BalancedCPScheduler: {speedup:.2f} x ({setting})"]
    return said
