"""Links as measured: what they change, and that profiles over networks that no description knows can be believed."""

from __future__ import annotations

import random
from dataclasses import asdict, replace

import pytest
import yaml

from paradyse_megatron.costmodel.cluster import Cluster, Link
from paradyse_megatron.costmodel.configs import shipped
from paradyse_megatron.costmodel.first_principles import estimate, redescribed
from paradyse_megatron.costmodel.links import COLLECTIVES, measured_links
from paradyse_megatron.costmodel.measured import with_measurements
from paradyse_megatron.costmodel.measurements import Measurements
from paradyse_megatron.costmodel.shape import ModelShape
from paradyse_megatron.costmodel.work import KINDS

OPTIONS = ["tp_sp", "ulysses", "ulysses/tp_sp", "ring", "metp"]
SLOW = {"latency_us": 500.0, "bytes_per_s": 1e7}
"""A fortieth of the bandwidth that the description says."""


@pytest.fixture(scope="module")
def cluster():
    return Cluster.from_yaml(shipped("clusters", "cpu-2core"))


@pytest.fixture(scope="module")
def described(cluster):
    return estimate(ModelShape.from_yaml(shipped("models", "tiny")), cluster, 2, options=OPTIONS)


def test_every_kind_of_message_has_a_link():
    links = measured_links({name: SLOW for names in COLLECTIVES.values() for name in names})
    assert set(links) == set(KINDS) and set(links.values()) == {Link(1e7, 500.0)}
    assert measured_links({}) == {}


def test_bytes_of_a_kind_take_as_long_as_its_two_collectives_together():
    wires = {name: SLOW for names in COLLECTIVES.values() for name in names} | {
        "all_gather": {"latency_us": 100.0, "bytes_per_s": 3e7}
    }
    link = measured_links(wires)["gather"]
    assert 2 / link.bandwidth_bytes_per_s == pytest.approx(1 / 3e7 + 1 / 1e7) and link.latency_us == 300.0


def test_a_link_counts_for_its_kind_of_message_alone(described, cluster):
    slow = redescribed(described, replace(cluster, links={"hop": Link(1e6, 500.0)}))
    for option in OPTIONS:
        before, after = (costs.predict(option, 2048) for costs in (described, slow))
        assert (after.milliseconds > 1.5 * before.milliseconds) == (option in ("ring", "metp")), option
        assert (after.saved_bytes, after.workspace_bytes) == (before.saved_bytes, before.workspace_bytes)
    assert slow.predict_head(2048) == described.predict_head(2048)


def test_a_network_that_the_description_does_not_know(described, cluster):
    """Timed up to 512 tokens: there weights take most of what `ulysses` sends, and next to nothing of `tp_sp`."""
    wires = {name: SLOW for names in COLLECTIVES.values() for name in names}
    links = measured_links(wires)
    network = redescribed(described, replace(cluster, links=links))

    def of_network(option: str, length: int) -> float:
        return 1.5 * network.predict(option, length).milliseconds + 2.0

    lengths = (128, 181, 256, 362, 512)
    times = {option: {n: [of_network(option, n)] * 3 for n in lengths} for option in OPTIONS}
    found = Measurements(times, links=links)
    costs = with_measurements(network, found)
    for option in OPTIONS:
        for length in (2048, 8192):
            expected = of_network(option, length)
            assert costs.predict(option, length).milliseconds == pytest.approx(expected, rel=0.05), option
    assert any("exchange 10 MB/s after 500 us" in sentence for sentence in costs.provenance.assumptions)


@pytest.mark.parametrize("times_as_long", [1, 5, 20])
def test_a_latency_that_was_measured_too_long_spoils_no_extrapolation(described, cluster, times_as_long):
    """By itself, between barriers, a collective of ranks that share cores takes longer than among other work."""
    seen = Link(cluster.intra_node.bandwidth_bytes_per_s, times_as_long * cluster.intra_node.latency_us)
    links = dict.fromkeys(KINDS, seen)
    lengths, chance = (128, 181, 256, 362, 512), random.Random(1)
    times = {
        option: {
            n: [chance.lognormvariate(0, 0.05) * (described.predict(option, n).milliseconds + 5.0) for _ in range(3)]
            for n in lengths
        }
        for option in OPTIONS
    }
    known = redescribed(described, replace(cluster, links=links))
    costs = with_measurements(known, Measurements(times, links=links))
    for option in OPTIONS:
        expected = described.predict(option, 2048).milliseconds + 5.0
        assert costs.predict(option, 2048).milliseconds == pytest.approx(expected, rel=0.2), option


def test_a_description_may_name_links_by_kind(cluster, tmp_path):
    path = tmp_path / "cluster.yaml"
    known = asdict(replace(cluster, links={"hop": Link(1e9, 7.0)}))
    path.write_text(yaml.safe_dump(known))
    assert Cluster.from_yaml(path).links == {"hop": Link(1e9, 7.0)}
    path.write_text(yaml.safe_dump(known | {"links": {"hop": {"latency_us": 7.0}}}))
    with pytest.raises(ValueError, match=r"'links', 'hop', has no key 'bandwidth_bytes_per_s'"):
        Cluster.from_yaml(path)
    path.write_text(yaml.safe_dump(known | {"links": {"pop": {"bandwidth_bytes_per_s": 1.0, "latency_us": 7.0}}}))
    with pytest.raises(ValueError, match="links"):
        Cluster.from_yaml(path)
