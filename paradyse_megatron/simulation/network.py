"""What the simulation needs of a machine: links inside and between nodes, and the same with other bandwidths."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

from paradyse_megatron.costmodel.cluster import Cluster, Link
from paradyse_megatron.costmodel.shape import ModelShape


@dataclass(frozen=True)
class Network:
    """GPUs in nodes.

    Attributes:
        cluster: one GPU, with its links.
        num_gpus: in all.
    """

    cluster: Cluster
    num_gpus: int

    def __post_init__(self) -> None:
        if not 1 <= self.num_gpus <= 1024:
            raise ValueError(f"--gpus must be from 1 to 1,024, but it is {self.num_gpus}.")

    @property
    def gpus_per_node(self) -> int:
        """That reach each other without the network between nodes."""
        return self.cluster.ranks_per_node

    def link(self, group_size: int) -> Link:
        """The slowest link in a group of `group_size` neighbouring GPUs."""
        return self.cluster.intra_node if group_size <= self.gpus_per_node else self.cluster.inter_node

    def scaled(self, factor: float) -> Network:
        """With every link `factor` times as fast."""

        def faster(link: Link) -> Link:
            return dataclasses.replace(link, bandwidth_bytes_per_s=link.bandwidth_bytes_per_s * factor)

        inside, between = faster(self.cluster.intra_node), faster(self.cluster.inter_node)
        return dataclasses.replace(
            self, cluster=dataclasses.replace(self.cluster, intra_node=inside, inter_node=between)
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
