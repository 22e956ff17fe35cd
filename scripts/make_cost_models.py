"""Makes the shipped cost models, configs/costs/MODEL-pRANKS-CLUSTER.cost.json, anew.

    python scripts/make_cost_models.py [MODEL ...]

Each model is traced once for GPUs and once for this CPU (some minutes in all; no GPU, no weights), and its times are
worked out for every cluster.
"""

from __future__ import annotations

import dataclasses
import logging
import os
import sys
import warnings
from pathlib import Path

os.environ["CUDA_VISIBLE_DEVICES"] = ""
REPOSITORY = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(REPOSITORY))
warnings.simplefilter("ignore")

from paradyse_megatron import cpu  # noqa: E402
from paradyse_megatron.costmodel.cluster import Cluster  # noqa: E402
from paradyse_megatron.costmodel.configs import shipped  # noqa: E402
from paradyse_megatron.costmodel.first_principles import estimate  # noqa: E402
from paradyse_megatron.costmodel.model_sources import read_shape  # noqa: E402

logging.getLogger("paradyse_megatron.cpu").setLevel(logging.ERROR)
cpu.enable()
from paradyse_megatron.profiling.traced_model import traced_cost_model  # noqa: E402

MACHINES = ((8, ("dgx-a100", "dgx-h100", "h200", "8x4090-pcie")), (2, ("cpu-2core",)))
MODELS = {"llama-2-7b": MACHINES, "gpt-13b": MACHINES, "mixtral-8x7b": ((8, ("dgx-h100",)),)}


def main() -> None:
    folder = REPOSITORY / "configs" / "costs"
    folder.mkdir(exist_ok=True)
    for name in sys.argv[1:] or MODELS:
        for ranks, clusters in MODELS.get(name, MACHINES):
            shape, machines = (
                read_shape(name),
                {each: Cluster.from_yaml(shipped("clusters", each)) for each in clusters},
            )
            traced = traced_cost_model(shape, machines[clusters[0]], clusters[0], ranks)
            for cluster, machine in machines.items():
                about = dataclasses.replace(traced.provenance, machine=cluster)
                model = estimate(shape, machine, ranks, parts=traced.parts, provenance=about)
                model.save(folder / f"{name}-p{ranks}-{cluster}.cost.json")


if __name__ == "__main__":
    main()
