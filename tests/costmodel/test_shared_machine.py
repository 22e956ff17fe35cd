"""A CPU's description with more ranks than it has places for."""

from __future__ import annotations

from dataclasses import replace

from paradyse_megatron.costmodel.cluster import Cluster, Link
from paradyse_megatron.costmodel.configs import shipped
from paradyse_megatron.costmodel.first_principles import estimate, make_setting
from paradyse_megatron.costmodel.shape import ModelShape


def test_ranks_share_what_a_node_has():
    cluster = Cluster.from_yaml(shipped("clusters", "cpu-2core"))
    assert cluster.shared_by(1) is cluster.shared_by(2) is cluster
    crowded = cluster.shared_by(4)
    assert crowded.ranks_per_node == 4 and crowded.memory_bytes == cluster.memory_bytes // 2
    assert crowded.flops_per_ms("fp32") * 4 == cluster.flops_per_ms("fp32") * 2  # of all ranks together
    assert crowded.intra_node.latency_us == 2 * cluster.intra_node.latency_us


def test_all_of_them_are_on_one_node():
    """So `usp` has sub-groups of all ranks, as the layers have where torchrun starts four on a machine."""
    shape = ModelShape.from_yaml(shipped("models", "tiny"))
    crowded = Cluster.from_yaml(shipped("clusters", "cpu-2core")).shared_by(4)
    assert make_setting(shape, crowded, 4).ranks_per_node is None
    costs = estimate(shape, crowded, 4, options=["usp", "ulysses"])
    assert costs.predict("usp", 4096).saved_bytes == costs.predict("ulysses", 4096).saved_bytes


def test_links_that_are_known_by_kind_are_shared_too():
    cluster = replace(Cluster.from_yaml(shipped("clusters", "cpu-2core")), links={"hop": Link(1e9, 7.0)})
    assert cluster.shared_by(4).links == {"hop": Link(5e8, 14.0)}
