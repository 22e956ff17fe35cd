"""--paradyse-cost-model: the given file, or the right one found or made."""

from __future__ import annotations

import argparse
import fcntl
import functools
import hashlib
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import asdict, replace
from pathlib import Path

import torch
import yaml

from paradyse_megatron.costmodel.cluster import Cluster
from paradyse_megatron.costmodel.configs import configs_folder
from paradyse_megatron.costmodel.first_principles import estimate
from paradyse_megatron.costmodel.model import CostModel
from paradyse_megatron.costmodel.model_sources import shape_of_arguments
from paradyse_megatron.costmodel.provenance import running_versions
from paradyse_megatron.costmodel.shape import ModelShape
from paradyse_megatron.integration.hybrid import num_planned_layers
from paradyse_megatron.integration.machine import CLUSTERS, described_machine

COST_FILE = "cost_model.json"
"""Next to the run's trace."""


def find_cost_model(args: argparse.Namespace, shape: ModelShape) -> CostModel:
    """The file of --paradyse-cost-model, which has to match what runs; with `auto` the best that does.

    That is a measured one next to the run, else a shipped one of this machine, else one that is worked out now: by
    closed forms, or where the model has experts from a trace in a process of its own, kept next to the run. All of that
    is the same on every rank.

    Raises:
        ValueError: the file cannot be read, or is of another model, group size, batch, dtype or version.
    """
    ranks, batch = args.tensor_model_parallel_size, args.micro_batch_size
    versions = running_versions(_megatron_version())
    if args.paradyse_cost_model != "auto":
        given = CostModel.load(args.paradyse_cost_model)
        given.require_match(shape, ranks, batch, versions)
        return given
    machine = replace(this_cluster(), attention_materialised=args.transformer_impl == "local")
    for candidate in _candidates(args, ranks, machine):
        try:
            candidate.require_match(shape, ranks, batch, versions)
        except ValueError:
            continue
        return candidate
    if "moe" in shape.kinds:
        return _traced(shape, ranks, batch, machine, _run_folder(args))
    return _estimated(shape, ranks, batch, cluster_name(), machine.attention_materialised)


def model_shape(args: argparse.Namespace) -> ModelShape:
    """The shape of the model that Megatron's arguments describe; of a hybrid one in whole layers."""
    return replace(shape_of_arguments(args), num_layers=num_planned_layers(args))


def cluster_name() -> str:
    """PARADYSE_CLUSTER, or the shipped machine description that is nearest to this rank's device."""
    from paradyse_megatron import cpu

    if "PARADYSE_CLUSTER" in os.environ:
        return os.environ["PARADYSE_CLUSTER"]
    if cpu.is_enabled() or not torch.cuda.is_available():
        return "cpu-2core"
    found = torch.cuda.get_device_name()
    return next((name for part, name in CLUSTERS.items() if part in found), "dgx-h100")


def _candidates(args: argparse.Namespace, ranks: int, machine: Cluster) -> Iterator[CostModel]:
    measured = _run_folder(args) / COST_FILE
    if measured.is_file():
        try:
            beside = CostModel.load(measured)
        except ValueError:  # of another version; what `auto` makes takes its place
            beside = None
        if beside is not None and beside.is_measured:
            yield beside
    if machine != this_cluster():  # shipped ones are of the layers that the machine's description says
        return
    for path in sorted((configs_folder() / "costs").glob(f"*-p{ranks}-{Path(cluster_name()).stem}.cost.json")):
        yield CostModel.load(path)


@functools.lru_cache(maxsize=1)
def _estimated(shape: ModelShape, ranks: int, micro_batch_size: int, cluster: str, local: bool) -> CostModel:
    """`local`: whether Megatron's local layers run, whose attention core stores its scores, whatever the machine."""
    machine = replace(described_machine(cluster, _ranks_here()), attention_materialised=local)
    return estimate(shape, machine, ranks, micro_batch_size=micro_batch_size)


def this_cluster() -> Cluster:
    """The machine that is planned for."""
    return described_machine(cluster_name(), _ranks_here())


def _ranks_here() -> int:
    """That torchrun has put on this machine."""
    return int(os.environ.get("LOCAL_WORLD_SIZE", "1"))


def _traced(shape: ModelShape, ranks: int, micro_batch_size: int, machine: Cluster, folder: Path) -> CostModel:
    """From the cache, or traced by the first rank of the node that comes by while the others wait."""
    asked = [shape.as_dict(), ranks, micro_batch_size, asdict(machine), running_versions(_megatron_version())]
    digest = hashlib.sha256(json.dumps(asked).encode()).hexdigest()[:16]
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{digest}.cost.json"
    description, cluster = folder / f"{digest}.model.yaml", folder / f"{digest}.cluster.yaml"
    with open(folder / f"{digest}.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not path.exists():
            description.write_text(yaml.safe_dump(shape.as_dict(), sort_keys=False))
            cluster.write_text(yaml.safe_dump(asdict(machine), sort_keys=False))
            _trace(description, ranks, micro_batch_size, cluster, path)
    return CostModel.load(path)


def _trace(description: Path, ranks: int, micro_batch_size: int, cluster: Path, path: Path) -> None:
    command = f"{sys.executable} -m paradyse_megatron profile --trace-only --json".split()
    command += ["--model", str(description), "--group-size", str(ranks), "--cluster", str(cluster), "--out", str(path)]
    command += ["--micro-batch-size", str(micro_batch_size)]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    if not path.exists():
        last = done.stderr.strip().splitlines()[-1:] or ["it said nothing"]
        raise ValueError(
            f"--paradyse-cost-model auto traces a model with experts by '{' '.join(command[1:])}', which failed: "
            f"{last[0]}"
        )


def _run_folder(args: argparse.Namespace) -> Path:
    if getattr(args, "paradyse_trace", None):
        return Path(args.paradyse_trace).parent
    return Path(args.save) if getattr(args, "save", None) else Path(tempfile.gettempdir()) / f"paradyse-{os.getuid()}"


def _megatron_version() -> str:
    from megatron.core.package_info import __version__ as version

    return version
