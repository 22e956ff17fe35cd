"""Predicted against measured, of a machine that follows laws with known deviations."""

from __future__ import annotations

import statistics
from dataclasses import replace

import pytest

from paradyse_megatron.bench.accuracy import assess
from paradyse_megatron.cli.benches import accuracy
from paradyse_megatron.costmodel.cluster import Cluster
from paradyse_megatron.costmodel.configs import shipped
from paradyse_megatron.costmodel.first_principles import estimate
from paradyse_megatron.costmodel.measured import with_measurements
from paradyse_megatron.costmodel.measurements import Measurements
from paradyse_megatron.costmodel.peaks import message_bytes, stack_bytes
from paradyse_megatron.costmodel.shape import ModelShape

LENGTHS = [128, 256, 512, 724, 1024, 1448, 2048, 4096, 8192]
OPTIONS = ["tp_sp", "ulysses", "ring+full"]
NUM_LAYERS = 4


@pytest.fixture(scope="module")
def traced():
    cluster = Cluster.from_yaml(shipped("clusters", "cpu-2core"))
    return estimate(ModelShape.from_yaml(shipped("models", "tiny")), cluster, 2, options=OPTIONS)


def measured(traced, off_at=None, heavier=1.0):
    """Samples with 2 % of spread; at the length `off_at` twice the time."""

    def samples(option, length):
        median = traced.predict(option, length).milliseconds * (2 if length == off_at else 1)
        return [0.98 * median, median, 1.02 * median]

    times = {option: {n: samples(option, n) for n in LENGTHS} for option in OPTIONS}
    peaks = {
        option: {n: round(heavier * stack_bytes(traced.predict(option, n), NUM_LAYERS)) for n in LENGTHS[-3:]}
        for option in OPTIONS
    }
    return Measurements(times, peaks, NUM_LAYERS, "a test")


def test_a_machine_that_follows_the_laws_is_predicted(traced):
    found = assess(traced, measured(traced))
    assert found["time"]["noise"] == pytest.approx(0.02)
    assert found["time"]["held_out"]["mape"] < 0.08 and found["time"]["beyond_4x"]["mape"] < 0.15
    assert found["time"]["held_out_by_random_forest"]["mape"] > 2 * found["time"]["held_out"]["mape"]
    assert found["time"]["beyond_4x_by_random_forest"]["mape"] > 0.6  # it cannot say more than it has seen
    assert found["memory"]["traced"]["mape"] < 1e-6


def test_every_inner_length_but_one_is_held_out_and_each_is_a_point(traced):
    points = assess(traced, measured(traced))["time"]["held_out"]["points"]
    assert sorted({point["length"] for point in points}) == LENGTHS[1:-1:2]
    assert len(points) == 4 * len(OPTIONS)
    for point in points:
        assert point["measured"] == pytest.approx(traced.predict(point["target"], point["length"]).milliseconds)


def test_a_length_that_is_off_shows(traced):
    plain, off = (assess(traced, measured(traced, off_at=at))["time"]["held_out"] for at in (None, 724))
    assert off["furthest_under"] == pytest.approx(-0.5, abs=0.05) and plain["furthest_under"] > -0.05
    assert off["mape"] > plain["mape"] + 0.5 / 4 * 0.8  # one of four held-out lengths


def test_memory_is_compared_as_traced_and_with_the_correction_of_other_lengths(traced):
    memory = assess(traced, measured(traced, heavier=1.25))["memory"]
    assert memory["traced"]["furthest_under"] == pytest.approx(-0.2, abs=1e-3)
    assert memory["traced"]["furthest_over"] == pytest.approx(-0.2, abs=1e-3)
    corrected = memory["corrected_by_other_lengths"]
    assert 0 < corrected["mape"] < 0.05 and corrected["furthest_under"] > 0  # by a message that may be on its way
    for point in corrected["points"]:
        message = message_bytes(traced)(point["length"])
        assert point["predicted"] == pytest.approx(point["measured"] + message, rel=1e-3)
    assert memory["traced"]["num_points"] == 3 * len(OPTIONS)


def test_what_a_process_takes_whatever_it_runs_is_told_apart(traced):
    overhead = 3 * 2**20
    plain = measured(traced)
    peaks = {option: {n: peak + overhead for n, peak in of.items()} for option, of in plain.peaks.items()}
    memory = assess(traced, replace(plain, peaks=peaks))["memory"]
    assert memory["process_overhead_bytes"] == pytest.approx(overhead, rel=1e-3)
    assert memory["traced"]["mape"] < 1e-3 and memory["corrected_by_other_lengths"]["mape"] < 0.05
    costs = with_measurements(traced, replace(plain, peaks=peaks))
    for option in OPTIONS:
        before, after = traced.predict(option, 65_536), costs.predict(option, 65_536)
        assert after.saved_bytes == pytest.approx(before.saved_bytes, rel=1e-3)
        expected = before.workspace_bytes + overhead + message_bytes(traced)(65_536)
        assert after.workspace_bytes == pytest.approx(expected, rel=1e-3)


@pytest.mark.parametrize("heavier", [1.05, 1.25])
def test_the_answer_is_no_where_a_bar_is_missed(traced, heavier):
    content = {"group_size_2": assess(traced, measured(traced, heavier=heavier))}
    answer = accuracy.answer(content)
    assert answer.yes == (heavier < 1.1)
    assert any(row[2] == "traced" and row[5] == "10.0%" for row in answer.rows)


def test_the_picture_shows_each_strategy(traced, tmp_path):
    from paradyse_megatron.report.accuracy import draw

    draw({"group_size_2": assess(traced, measured(traced)), "group_size_4": assess(traced, measured(traced))},
         tmp_path / "a.svg")  # fmt: skip
    drawn = (tmp_path / "a.svg").read_text()
    assert all(name in drawn for name in ("P = 2: time", "P = 4: memory", "ulysses", "ring+full"))
    with pytest.raises(ValueError, match="cannot be written"):
        draw({"group_size_2": assess(traced, measured(traced))}, tmp_path / "none" / "a.svg")


@pytest.mark.parametrize(("what", "keys"), [("time", ("time", "milliseconds")), ("memory", ("memory",))])
def test_one_of_the_two_is_an_answer(traced, tmp_path, what, keys):
    from paradyse_megatron.report.accuracy import draw

    found = measured(traced) if what == "time" else replace(measured(traced), times={})
    figures = assess(traced, found)
    content = {"group_size_2": {key: figures[key] for key in keys}}
    answer = accuracy.answer(content)
    assert answer.yes and {row[1] for row in answer.rows} == {what}
    assert len(answer.notes) == (what == "time")
    draw(content, tmp_path / "a.svg")
    drawn = (tmp_path / "a.svg").read_text()
    assert {what} == {kind for kind in ("time", "memory") if f"P = 2: {kind}" in drawn} and "tp_sp" in drawn


def test_too_few_lengths_leave_errors_open(traced):
    times = {"tp_sp": {128: [1.0], 256: [2.0]}}
    found = assess(traced, Measurements(times, {}, NUM_LAYERS, "a test"))
    assert found["time"]["held_out"]["mape"] is found["time"]["noise"] is found["memory"]["traced"]["mape"] is None
    assert not accuracy.answer({"group_size_2": found}).yes


def test_a_point_is_the_median_of_its_samples(traced):
    found = measured(traced)
    points = assess(traced, found)["time"]["beyond_4x"]["points"]
    assert points and all(
        point["measured"] == statistics.median(found.times[point["target"]][point["length"]]) for point in points
    )
    assert min(point["length"] for point in points) >= 2048 * 4 * 0.75
