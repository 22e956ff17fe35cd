"""Megatron's length-dependent context parallelism beside the plan by length: on paper, as it needs many GPUs."""

from __future__ import annotations

from typing import Any

from paradyse_megatron.costmodel.cluster import Cluster
from paradyse_megatron.costmodel.configs import shipped
from paradyse_megatron.costmodel.curve import LONGEST
from paradyse_megatron.costmodel.shape import ModelShape
from paradyse_megatron.integration.balanced_cp import balanced_schedule
from paradyse_megatron.simulation.field import estimated_choices
from paradyse_megatron.simulation.lengths import read_lengths
from paradyse_megatron.simulation.network import Network
from paradyse_megatron.simulation.outcome import best
from paradyse_megatron.simulation.simulate import compare

MODEL, CLUSTER, LENGTHS, NUM_GPUS = "llama-3-8b", "dgx-h100", "github-code-like", 64
USABLE_SHARE, DOCUMENTS_A_GPU = 0.9, 8
DYNAMIC, HYBRID = "dynamic", "megatron hybrid"


def against_balanced_cp(num_documents: int) -> dict[str, Any]:
    """Milliseconds of a step under the best of each, and their ratio; as `paradyse simulate` has it.

    Values are None where this Megatron has no such scheduler.
    """
    shape, cluster = ModelShape.from_yaml(shipped("models", MODEL)), Cluster.from_yaml(shipped("clusters", CLUSTER))
    budget = int(USABLE_SHARE * cluster.memory_bytes)
    schedule, network = balanced_schedule(), Network(cluster, NUM_GPUS)
    field = estimated_choices(shape, network, budget, schedule, LONGEST)
    chosen = [each for each in field if each.kind in (DYNAMIC, HYBRID)]
    lengths = read_lengths(LENGTHS, num_documents, seed=1234)
    found = compare(chosen, lengths, DOCUMENTS_A_GPU * NUM_GPUS, NUM_GPUS, LONGEST)
    mine, theirs = best(found.outcomes, [DYNAMIC]), best(found.outcomes, [HYBRID])
    return {
        "simulated_speedup_over_balanced_cp": found.speedups["speedup_over_megatron_hybrid_cp"],
        "simulated_dynamic_ms": mine and mine.step_ms,
        "simulated_balanced_cp_ms": theirs and theirs.step_ms,
        "simulated_balanced_cp_choice": theirs and theirs.name,
        "simulated_setting": f"{MODEL} on {NUM_GPUS} GPUs of {CLUSTER}, {num_documents} {LENGTHS} documents",
    }
