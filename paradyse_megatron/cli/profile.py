"""Make the cost model of a model: trace its layers, then measure them here, or cost them on a described machine."""

from __future__ import annotations

import argparse
import importlib.util
import logging
import math
import os
import sys
import warnings
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from paradyse_megatron.cli.answer import Answer
from paradyse_megatron.costmodel.cluster import Cluster
from paradyse_megatron.costmodel.configs import shipped
from paradyse_megatron.costmodel.model import CostModel
from paradyse_megatron.costmodel.model_sources import read_shape
from paradyse_megatron.integration.machine import Machine, described_machine, this_machine
from paradyse_megatron.planner.option import Option

EXAMPLE = "paradyse profile --model configs/models/tiny.yaml --group-size 2 --budget-seconds 60 --out tiny.cost.json"
SHOWN_TOKENS = 32_768
IMPLEMENTATIONS = ("local", "transformer_engine")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Flags of this verb."""
    parser.add_argument(
        "--model",
        required=True,
        metavar="F",
        help="a description as in configs/models, a Hugging Face config.json, or a text with Megatron's arguments",
    )
    parser.add_argument("--group-size", required=True, type=int, metavar="P", help="tensor-parallel ranks")
    parser.add_argument("--out", required=True, metavar="FILE", help="where to write the cost model")
    parser.add_argument(
        "--trace-only", action="store_true", help="measure nothing: count on fake tensors, for a described machine"
    )
    parser.add_argument(
        "--cluster",
        metavar="F",
        help="a file or name as in configs/clusters (default: dgx-h100 with --trace-only, else the one most like this)",
    )
    parser.add_argument(
        "--budget-seconds", type=float, default=300, metavar="T", help="for measuring times (default: 300)"
    )
    parser.add_argument(
        "--longest", type=int, default=131_072, metavar="N", help="measure no longer sequences (default: 131072 tokens)"
    )
    parser.add_argument("--options", metavar="LIST", help="measure these only, such as tp_sp,ulysses (default: all)")
    parser.add_argument(
        "--transformer-impl",
        choices=IMPLEMENTATIONS,
        help="whose layers, as in training (default: with --trace-only as the cluster's description says; to measure, "
        "Transformer Engine's on GPUs where it is installed, else Megatron's local ones)",
    )
    parser.add_argument("--micro-batch-size", type=int, default=1, metavar="B", help="sequences (default: 1)")


def run(asked: argparse.Namespace) -> Answer:
    """Write the file; the answer is no where the trace contradicts the closed forms."""
    if not 0 < asked.budget_seconds < math.inf:
        raise ValueError(f"--budget-seconds must be above 0, but it is {asked.budget_seconds}.")
    _refuse_unwritable(Path(asked.out))
    environment = dict(os.environ)
    machine = None if asked.trace_only else this_machine(environment)
    name = asked.cluster or ("dgx-h100" if machine is None else machine.cluster)
    shape, description = read_shape(asked.model), shipped("clusters", name)
    implementation = _implementation(asked.transformer_impl, machine)
    cluster = Cluster.from_yaml(description) if machine is None else described_machine(name, asked.group_size)
    if implementation is not None:
        cluster = replace(cluster, attention_materialised=implementation == "local")
    warnings.simplefilter("ignore")  # Megatron's and torch's, on every import and every message
    _import_megatron()
    from paradyse_megatron.profiling.traced_model import disagreements, traced_cost_model

    model = traced_cost_model(
        shape, cluster, description.stem, asked.group_size, asked.micro_batch_size, progress=_tell
    )
    faults = disagreements(model, cluster)
    if machine is not None:
        model = _measured(asked, model, cluster, machine, implementation or "local", environment)
    model.save(asked.out)
    return _answer(model, faults, asked.out)


def _refuse_unwritable(out: Path) -> None:
    """Before minutes of work whose result could not be kept."""
    if not out.parent.is_dir():
        raise ValueError(f"--out {out} cannot be written: there is no folder {out.parent}.")
    if out.is_dir() or not os.access(out.parent, os.W_OK):
        raise ValueError(f"--out {out} cannot be written; give another file.")


def _implementation(wanted: str | None, machine: Machine | None) -> str | None:
    """Of the layers, as asked for or as this machine would train; None for what a described machine says."""
    if wanted == "local" or machine is None:
        return wanted
    has_engine = importlib.util.find_spec("transformer_engine") is not None
    if wanted and not has_engine:
        raise ValueError(
            "--transformer-impl transformer_engine asks for layers to measure that are not here: Transformer Engine is "
            "not installed; give local, or --trace-only."
        )
    return wanted or ("transformer_engine" if machine.num_gpus and has_engine else "local")


def _measured(
    asked: argparse.Namespace,
    traced: CostModel,
    cluster: Cluster,
    machine: Machine,
    implementation: str,
    environment: Mapping[str, str],
) -> CostModel:
    if machine.num_gpus and asked.group_size > machine.num_gpus:
        raise ValueError(f"--group-size {asked.group_size} is more than the {machine.num_gpus} GPUs here.")
    from paradyse_megatron.integration import profile

    out = Path(asked.out)
    request = profile.Request(
        traced=traced,
        cluster=cluster,
        budget_seconds=asked.budget_seconds,
        longest_tokens=asked.longest,
        memory_bytes=machine.rank_memory_bytes(asked.group_size),
        keep=out.with_name(f".{out.name}.measured.json"),
        machine=machine.name,
        options=asked.options and [str(Option.parse(text)) for text in asked.options.split(",")],
        on_gpu=machine.num_gpus > 0,
        transformer_impl=implementation,
    )
    return profile.measure(request, profile.by_torchrun(asked.group_size, request.on_gpu, environment))


def _import_megatron() -> None:
    """On the CPU, whatever the machine has: what is traced has no values, and is the same everywhere."""
    if "torch" not in sys.modules:
        os.environ["CUDA_VISIBLE_DEVICES"] = ""
    logging.getLogger("paradyse_megatron.cpu").setLevel(logging.ERROR)
    from paradyse_megatron import cpu

    cpu.enable()
    try:
        import megatron.core.parallel_state  # noqa: F401
    except ImportError as error:
        raise ValueError(
            f"tracing runs Megatron's layers, which cannot be imported ({error}): "
            "pip install 'megatron-core[training]'."
        ) from error


def _tell(part: str) -> None:
    sys.stderr.write(f"tracing {part}\n")


def _answer(model: CostModel, faults: dict[str, list[str]], path: str) -> Answer:
    content = {"out": path, "disagreements": faults, "options": {}}
    rows = []
    for kind in model.kinds:
        for option in model.options_of(kind):
            cost = model.predict(option, SHOWN_TOKENS, kind)
            agrees = "yes" if kind == "dense" and option not in faults else "no" if option in faults else "-"
            rows.append((kind, option, f"{cost.milliseconds:,.2f}", f"{cost.saved_bytes / 2**20:,.1f}",
                         f"{cost.workspace_bytes / 2**20:,.1f}", agrees))  # fmt: skip
    title = f"One layer at {SHOWN_TOKENS:,} tokens on {model.group_size} ranks of {model.provenance.machine}"
    notes = [*model.provenance.assumptions, f"written to {path}"]
    notes += [f"{option}: {clause}" for option, found in faults.items() for clause in found]
    columns = ("layer", "option", "ms", "saved MiB", "workspace MiB", "agrees with closed forms")
    return Answer(content | {"options": {f"{r[0]} {r[1]}": float(r[2].replace(",", "")) for r in rows}}, title, columns,
                  rows, notes, yes=not faults)  # fmt: skip
