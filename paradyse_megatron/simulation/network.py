"""What the simulation needs of a machine: links inside and between nodes, and the same with other bandwidths."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

from paradyse_megatron.costmodel.cluster import Cluster
from paradyse_megatron.costmodel.shape import ModelShape


@dataclass(frozen=True)
class Network:
    """GPUs in nodes.

    Attributes:
        cluster: one GPU, and its link within the node.
        num_gpus: in all.
        gpus_per_node: in one node.
        between_nodes_bytes_per_s: what a GPU can send to other nodes, its share of the node's network.
    """

    cluster: Cluster
    num_gpus: int
    gpus_per_node: int
    between_nodes_bytes_per_s: float

    def __post_init__(self) -> None:
        if not 1 <= self.num_gpus <= 1024:
            raise ValueError(f"--gpus must be from 1 to 1,024, but it is {self.num_gpus}.")
        if self.gpus_per_node < 1 or self.between_nodes_bytes_per_s <= 0:
            raise ValueError("--gpus-per-node and --inter-node-bandwidth must be above 0.")

    def seen_by(self, group_size: int) -> Cluster:
        """The machine as a group of `group_size` neighbouring GPUs sees it: its slowest link."""
        if group_size <= self.gpus_per_node:
            return self.cluster
        slowest = min(self.cluster.link_bandwidth_bytes_per_s, self.between_nodes_bytes_per_s)
        return dataclasses.replace(self.cluster, link_bandwidth_bytes_per_s=slowest)

    def scaled(self, factor: float) -> Network:
        """With every link `factor` times as fast."""
        link = self.cluster.link_bandwidth_bytes_per_s * factor
        return dataclasses.replace(
            self,
            cluster=dataclasses.replace(self.cluster, link_bandwidth_bytes_per_s=link),
            between_nodes_bytes_per_s=self.between_nodes_bytes_per_s * factor,
        )

    def fused(self) -> Network:
        """With attention by a flash kernel, which Megatron's context parallelism needs."""
        return dataclasses.replace(self, cluster=dataclasses.replace(self.cluster, attention_materialised=False))


def static_bytes(shape: ModelShape, tensor_ranks: int, num_gpus: int) -> int:
    """Weights, gradients and Adam on a GPU, the optimizer's part sharded over the replicas of a weight shard.

    Megatron's distributed optimizer shards over data and context parallel ranks: of 18 bytes a parameter in half
    precision 12, of 16 in fp32 8 (arXiv 1910.02054, P_os).
    """
    whole = shape.static_bytes(tensor_ranks)
    sharded = 12 / 18 if shape.bytes_per_element == 2 else 1 / 2
    replicas = max(1, num_gpus // tensor_ranks)
    return round(whole * (1 - sharded + sharded / replicas))
