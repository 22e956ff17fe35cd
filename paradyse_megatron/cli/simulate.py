"""Simulate a run: every static choice, Megatron's context parallelism and the plan by length, on the same documents."""

from __future__ import annotations

import argparse
import dataclasses
import functools
from collections.abc import Iterable
from typing import Any

import numpy as np

from paradyse_megatron.cli.answer import Answer
from paradyse_megatron.costmodel.average import AverageLayer
from paradyse_megatron.costmodel.cluster import Cluster
from paradyse_megatron.costmodel.curve import LONGEST
from paradyse_megatron.costmodel.model import CostModel
from paradyse_megatron.costmodel.shape import ModelShape
from paradyse_megatron.integration.balanced_cp import balanced_schedule
from paradyse_megatron.integration.sizes import parse_size
from paradyse_megatron.planner.survey import break_evens
from paradyse_megatron.simulation.field import Candidate, estimated_break_evens, estimated_choices, planned_choices
from paradyse_megatron.simulation.lengths import DISTRIBUTIONS, read_lengths
from paradyse_megatron.simulation.network import Network
from paradyse_megatron.simulation.outcome import Outcome
from paradyse_megatron.simulation.simulate import Comparison, compare, sensitivity

EXAMPLE = (
    "paradyse simulate --model configs/models/llama-3-8b.yaml --cluster configs/clusters/dgx-h100.yaml --gpus 64 "
    "--lengths github-code-like"
)
USABLE_SHARE = 0.9  # of a GPU's memory, without --memory-budget
SHOWN = 14


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Flags of this verb."""
    costs = parser.add_mutually_exclusive_group(required=True)
    costs.add_argument("--cost-model", metavar="FILE", help="costs of a model on its group of ranks")
    costs.add_argument("--model", metavar="FILE", help="a description as in configs/models; needs --cluster")
    parser.add_argument(
        "--cluster",
        metavar="FILE",
        help="a description as in configs/clusters: estimate everything for it, other group sizes, Megatron's context "
        "parallelism and faster and slower links included (of a cost model then only the model's shape counts)",
    )
    parser.add_argument(
        "--lengths", required=True, metavar="FILE|NAME", help=f"lengths of documents, or {', '.join(DISTRIBUTIONS)}"
    )
    parser.add_argument("--gpus", type=int, metavar="N", help="in all, up to 1,024 (default: one group, or one node)")
    parser.add_argument("--memory-budget", metavar="SIZE", help="of a rank (default: 90 %% of the cluster's, or none)")
    parser.add_argument("--global-batch", type=int, default=0, metavar="B", help="documents a step (default: 8 a GPU)")
    parser.add_argument("--num-documents", type=int, default=2048, metavar="N", help="drawn from a NAME, default 2048")
    parser.add_argument("--seed", type=int, default=1234, help="of a NAME's order")


def run(asked: argparse.Namespace) -> Answer:
    """The comparison; the answer is no when not even the plan by length completes the documents."""
    if asked.model and not asked.cluster:
        raise ValueError("--model needs --cluster, a description as in configs/clusters.")
    lengths = read_lengths(asked.lengths, asked.num_documents, asked.seed)
    comparison, content, notes = (_on_cluster if asked.cluster else _on_group)(asked, lengths)
    content |= {"lengths": _described(asked.lengths, lengths), **comparison.as_dict()}
    able = any(each.kind == "dynamic" and each.completes for each in comparison.outcomes)
    columns = ("choice", "kind", "ms a step", "GPU h / 1e9 tokens", "longest", "out of memory")
    title = f"{len(lengths):,} documents of {int(lengths.min()):,} to {int(lengths.max()):,} tokens"
    rows = [_row(each) for each in _worth_showing(comparison)]
    return Answer(content, title, columns, rows, [*_said(comparison), *notes], able)


def _on_group(asked: argparse.Namespace, lengths: np.ndarray) -> tuple[Comparison, dict[str, Any], list[str]]:
    """By the cost model alone."""
    cost_model = CostModel.load(asked.cost_model)
    num_gpus = cost_model.group_size if asked.gpus is None else asked.gpus
    if not cost_model.group_size <= num_gpus <= 1024:
        raise ValueError(f"--gpus must be from {cost_model.group_size}, one group, to 1,024, but it is {num_gpus}.")
    budget = parse_size(asked.memory_budget, "--memory-budget") if asked.memory_budget else None
    candidates = planned_choices(cost_model, num_gpus, budget)
    comparison = compare(candidates, lengths, _global_batch(asked, num_gpus), num_gpus, LONGEST)
    changes = break_evens(AverageLayer(cost_model), int(lengths.max()))
    content = {
        "costs": cost_model.source,
        "num_gpus": num_gpus,
        "memory_budget_bytes": budget,
        "break_even_lengths": {str(cost_model.group_size): [dataclasses.asdict(each) for each in changes]},
        "sensitivity": None,
    }
    return comparison, content, ["give --cluster for Megatron's context parallelism, other group sizes and other links"]


def _on_cluster(asked: argparse.Namespace, lengths: np.ndarray) -> tuple[Comparison, dict[str, Any], list[str]]:
    """All estimated for one machine."""
    shape = ModelShape.from_yaml(asked.model) if asked.model else CostModel.load(asked.cost_model).shape
    cluster = Cluster.from_yaml(asked.cluster)
    budget = int(USABLE_SHARE * cluster.memory_bytes)
    if asked.memory_budget:
        budget = parse_size(asked.memory_budget, "--memory-budget")
    num_gpus = cluster.ranks_per_node if asked.gpus is None else asked.gpus
    network = Network(cluster, num_gpus)
    schedule = balanced_schedule()

    def candidates(factor: float) -> Iterable[Candidate]:
        return estimated_choices(shape, network.scaled(factor), budget, schedule, LONGEST)

    batch = _global_batch(asked, num_gpus)
    run_all = functools.partial(compare, lengths=lengths, global_batch=batch, num_gpus=num_gpus, limit=LONGEST)
    comparison = run_all(candidates(1.0))
    links = sensitivity(candidates, comparison, run_all)
    content = {
        "costs": "first principles",
        "num_gpus": num_gpus,
        "memory_budget_bytes": budget,
        "break_even_lengths": {
            str(ranks): [dataclasses.asdict(each) for each in changes]
            for ranks, changes in estimated_break_evens(shape, network, int(lengths.max())).items()
        },
        "sensitivity": links,
    }
    said = ", ".join(
        f"links x {factor}: {_times(found['speedup_over_best_static'])}" for factor, found in links.items()
    )
    return (
        comparison,
        content,
        [f"over the best static choice with {said}", f"costs: first principles, {asked.cluster}"],
    )


def _global_batch(asked: argparse.Namespace, num_gpus: int) -> int:
    if asked.global_batch < 0:
        raise ValueError(f"--global-batch must be at least 1, but it is {asked.global_batch}.")
    return asked.global_batch or 8 * num_gpus


def _described(name: str, lengths: np.ndarray) -> dict[str, Any]:
    quartiles = [int(each) for each in np.quantile(lengths, [0.25, 0.5, 0.75, 0.99])]
    known = DISTRIBUTIONS.get(name)
    return {
        "name": name,
        "text": known.text if known else "a file",
        "num_documents": len(lengths),
        "num_tokens": int(lengths.sum()),
        "quantiles": dict(zip(("0.25", "0.5", "0.75", "0.99"), quartiles, strict=True)),
        "longest": int(lengths.max()),
    }


def _worth_showing(comparison: Comparison) -> list[Outcome]:
    """The fastest, and each kind's fastest where it is not among them."""
    shown = list(comparison.outcomes[:SHOWN])
    for kind in dict.fromkeys(each.kind for each in comparison.outcomes):
        shown += [each for each in comparison.outcomes if each.kind == kind and kind not in {s.kind for s in shown}][:1]
    shown += [each for each in comparison.outcomes if each.name.startswith(("tp_sp P", "tp_sp+full P"))]
    return list(dict.fromkeys(shown))


def _row(each: Outcome) -> tuple[str, ...]:
    left_out = f"{each.oom_documents:,} documents" if each.oom_documents else ""
    return (
        each.name,
        each.kind,
        f"{each.step_ms:,.0f}",
        f"{each.gpu_hours_per_billion_tokens:,.1f}",
        f"{each.longest_length:,}",
        left_out,
    )


def _said(comparison: Comparison) -> list[str]:
    names = {
        "speedup_over_best_static": "the best static choice",
        "speedup_over_best_megatron_static": "Megatron's best static one",
        "speedup_over_megatron_hybrid_cp": "its length-dependent context parallelism",
    }
    said = ", ".join(f"{name} {_times(comparison.speedups[key])}" for key, name in names.items())
    return [f"the plan by length is faster than {said} (of those that complete all documents)"]


def _times(speedup: float | None) -> str:
    return "(none completes)" if speedup is None else f"{speedup:.2f} x"
