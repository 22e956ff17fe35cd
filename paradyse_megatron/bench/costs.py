"""The cost model of a benchmark's model, measured on the ranks and over the interconnect that it will run on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from paradyse_megatron.bench.links import Links
from paradyse_megatron.bench.ranks import run_on_ranks
from paradyse_megatron.costmodel.cluster import Cluster
from paradyse_megatron.costmodel.measured import with_measurements
from paradyse_megatron.costmodel.measurements import Measurements
from paradyse_megatron.costmodel.model import CostModel
from paradyse_megatron.costmodel.shape import ModelShape
from paradyse_megatron.integration.machine import Machine, described_machine, this_machine
from paradyse_megatron.planner.jsonfile import Json

RANK = "paradyse_megatron.integration.profile_rank:run"


def traced_here(shape: ModelShape, num_ranks: int) -> tuple[CostModel, Cluster, Machine]:
    """The cost model before anything is measured, what it takes this machine's CPUs for, and the machine."""
    from paradyse_megatron import cpu

    cpu.enable()
    from paradyse_megatron.profiling.traced_model import traced_cost_model

    machine = this_machine({"CUDA_VISIBLE_DEVICES": ""})
    cluster = described_machine(machine.cluster, num_ranks)
    return traced_cost_model(shape, cluster, machine.cluster, num_ranks), cluster, machine


def measured_over(
    shape: ModelShape,
    num_ranks: int,
    links: Links | None,
    budget_seconds: float,
    longest: int,
    folder: Path,
    options: Sequence[str] | None = None,
    weighs: bool = True,
) -> tuple[CostModel, Measurements]:
    """The traced cost model over `links` as ranks measured them, and all that they measured, memory if wanted.

    Of all options if none are named; those that the model cannot follow are left out. Memory is weighed on loopback,
    which holds as much in less time.

    Traced in this process, which must have no process groups.
    """
    from paradyse_megatron.integration.profile import Request, measurements

    def launch(arguments: Json, variables: Mapping[str, str]) -> None:
        seconds = 10 * budget_seconds
        networks = None if arguments["weighs"] else links
        outcome = run_on_ranks(
            RANK, num_ranks, arguments, links=networks, timeout_seconds=seconds, environment=variables
        )
        if outcome.failure:
            raise ChildProcessError(f"the profile did not end: {outcome.failure}")

    traced, cluster, machine = traced_here(shape, num_ranks)
    memory_bytes = machine.rank_memory_bytes(num_ranks) // 2
    keep = folder / "measured.json"
    wanted = None if options is None else [option for option in options if option in traced.options]
    request = Request(traced, cluster, budget_seconds, longest, memory_bytes, keep, machine.name, wanted, weighs=weighs)
    return measurements(request, launch)


def measured_alone(traced: CostModel, found: Measurements) -> CostModel:
    """The cost model of the options that were measured, and of no others."""
    model = with_measurements(traced, found)
    kind = model.kinds[0]
    return replace(model, costs={kind: {name: of for name, of in model.costs[kind].items() if name in found.times}})
