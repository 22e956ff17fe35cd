"""Ranks of benchmarks: over links with a rate, and when one fails."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time

import pytest

from paradyse_megatron.bench.levels import balanced_rate_mbit
from paradyse_megatron.bench.links import Links, unavailable
from paradyse_megatron.bench.ranks import run_on_ranks
from paradyse_megatron.costmodel.cluster import Cluster
from paradyse_megatron.costmodel.configs import shipped
from tests.ranks import REPOSITORY

NUM_BYTES = 4_000_000


@pytest.mark.skipif(unavailable() is not None, reason=str(unavailable()))
def test_a_link_has_its_rate_and_is_gone_afterwards():
    arguments = {"num_bytes": NUM_BYTES}
    with Links(2, rate_mbit=80) as links:
        outcome = run_on_ranks("tests.bench.workers:seconds_to_gather", 2, arguments, links=links, timeout_seconds=120)
    assert outcome.failure is None
    wanted = NUM_BYTES / 2 * 8 / 80e6
    assert all(0.9 * wanted <= seconds <= 3 * wanted for seconds in outcome.results), (outcome.results, wanted)
    assert f"paradyse{os.getpid()}" not in _networks()


@pytest.mark.skipif(unavailable() is not None, reason=str(unavailable()))
def test_what_a_killed_benchmark_left_behind_is_cleared_away():
    gone = subprocess.Popen(["true"])
    gone.wait()
    subprocess.run(["ip", "netns", "add", f"paradyse{gone.pid}-0"], check=True)
    with Links(1, rate_mbit=100):
        there = _networks()
    assert f"paradyse{os.getpid()}-0" in there and f"paradyse{gone.pid}-0" not in there


@pytest.mark.skipif(unavailable() is not None, reason=str(unavailable()))
@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_an_interrupted_benchmark_leaves_no_networks(how):
    code = "from tests.bench.workers import hold_links; hold_links()"
    with subprocess.Popen(
        [sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, cwd=REPOSITORY
    ) as benchmark:
        assert benchmark.stdout is not None and benchmark.stdout.readline() == b"up\n"
        mine = f"paradyse{benchmark.pid}-"
        assert mine in _networks()
        benchmark.send_signal(how)
        benchmark.wait(30)
    end = time.monotonic() + 30
    while mine in _networks() and time.monotonic() < end:
        time.sleep(0.05)
    assert mine not in _networks()


def _networks() -> str:
    return subprocess.run(["ip", "netns", "list"], capture_output=True, text=True, check=True).stdout


def test_a_rank_that_fails_ends_the_others_and_is_named():
    begin, environment = time.monotonic(), dict(os.environ)
    outcome = run_on_ranks("tests.bench.workers:fail_on_rank_1", 2, {}, timeout_seconds=120)
    assert dict(os.environ) == environment  # what tells these ranks whose they are would end others' ranks
    assert "rank 1 ended with code 1" in outcome.failure and "as if it were real" in outcome.failure
    assert outcome.results == [None, None]
    assert time.monotonic() - begin < 50


def test_a_balanced_rate_moves_as_many_elements_an_operation():
    cluster = Cluster.from_yaml(shipped("clusters", "dgx-h100"))
    rate = balanced_rate_mbit(cluster, rank_flops_per_s=5e10)
    elements_per_s = rate * 1e6 / 8 / 4
    theirs = cluster.intra_node.bandwidth_bytes_per_s / 2 / (cluster.flops_per_ms("bf16") * 1000)
    assert elements_per_s / 5e10 == pytest.approx(theirs)
    assert 100 < rate < 10_000
