"""A traced cost model with measurements, which here follow laws, in its place."""

from __future__ import annotations

import pytest

from paradyse_megatron.costmodel.cluster import Cluster
from paradyse_megatron.costmodel.configs import shipped
from paradyse_megatron.costmodel.first_principles import estimate
from paradyse_megatron.costmodel.measured import with_measurements
from paradyse_megatron.costmodel.measurements import Measurements
from paradyse_megatron.costmodel.model import CostModel
from paradyse_megatron.costmodel.peaks import message_bytes, stack_bytes
from paradyse_megatron.costmodel.provenance import NOT_MEASURED, Provenance
from paradyse_megatron.costmodel.shape import ModelShape

LENGTHS = [128, 256, 512, 724, 1024, 1448, 2048, 4096, 8192]
SLOWER, HEAVIER, NUM_LAYERS = 3.0, 1.2, 4


@pytest.fixture(scope="module")
def traced():
    shape = ModelShape.from_yaml(shipped("models", "tiny"))
    cluster = Cluster.from_yaml(shipped("clusters", "cpu-2core"))
    about = Provenance.now("a described one", assumptions=(NOT_MEASURED, "Something else."))
    return estimate(shape, cluster, 2, options=["tp_sp", "ulysses", "ring+full"], provenance=about)


@pytest.fixture(scope="module")
def found(traced):
    """This machine is 3 times slower than the described one, and takes 1.2 times the memory; ring+full was left out."""
    times = {
        option: {n: [SLOWER * traced.predict(option, n).milliseconds] * 3 for n in LENGTHS}
        for option in ("tp_sp", "ulysses")
    }
    times["head:whole"] = {n: [SLOWER * traced.predict_head(n).milliseconds] * 3 for n in LENGTHS}
    peaks = {
        option: {n: int(HEAVIER * stack_bytes(traced.predict(option, n), NUM_LAYERS)) for n in LENGTHS[-3:]}
        for option in ("tp_sp", "ulysses")
    }
    return Measurements(times, peaks, NUM_LAYERS, "a test")


@pytest.fixture(scope="module")
def measured(traced, found):
    return with_measurements(traced, found)


@pytest.mark.parametrize("option", ["tp_sp", "ulysses", "ring+full"])
@pytest.mark.parametrize("length", [64, 128, 700, 8192, 65_536])
def test_times_and_memory_are_those_of_the_machine(traced, measured, option, length):
    """`ring+full`, which was not measured, is slower by what the others are."""
    before, after = traced.predict(option, length), measured.predict(option, length)
    assert after.milliseconds == pytest.approx(SLOWER * before.milliseconds, rel=0.1)
    factor = HEAVIER if option != "ring+full" else 1
    assert after.saved_bytes == pytest.approx(factor * before.saved_bytes, rel=0.01)
    expected = factor * before.workspace_bytes + message_bytes(traced)(length)
    assert after.workspace_bytes == pytest.approx(expected, rel=0.01)


def test_the_file_says_where_it_comes_from(measured, tmp_path):
    measured.save(tmp_path / "costs.json")
    again = CostModel.load(tmp_path / "costs.json")
    assert again == measured and again.is_measured
    assert again.provenance.machine == "a test" and list(again.provenance.grid_tokens) == LENGTHS
    said = " ".join(again.provenance.assumptions)
    assert "ring+full" in said and NOT_MEASURED not in said and "Something else." in said
    assert "this machine takes 3 times as long for latencies, 3 for what grows" in said


def test_accuracy_is_stated(measured):
    about = measured.provenance.accuracy
    assert 0 <= about.time_mape_held_out < 0.05
    assert 0 <= about.memory_mape_held_out < 0.05
    assert 0 <= about.time_mape_extrapolated_4x < 0.2
    assert about.time_mape_random_forest > about.time_mape_held_out


def test_nothing_measured_twice_leaves_accuracy_open(traced):
    about = with_measurements(traced, Measurements({"tp_sp": {512: [40.0]}})).provenance.accuracy
    assert about.time_mape_held_out is None and about.memory_mape_held_out is None


def test_measured_memory_only_ever_adds(traced):
    """A resident set that grew by half of the traced bytes reused memory; the bytes are needed all the same."""
    halves = {n: stack_bytes(traced.predict("tp_sp", n), NUM_LAYERS) // 2 for n in (1024, 2048)}
    measured = with_measurements(traced, Measurements({"tp_sp": {512: [40.0]}}, {"tp_sp": halves}, NUM_LAYERS))
    assert measured.predict("tp_sp", 2048).saved_bytes == traced.predict("tp_sp", 2048).saved_bytes


def test_an_overhead_that_short_lengths_show_does_not_grow_with_length(traced):
    """A machine as fast as described, but for 2 ms a layer: at 128 tokens that is many times what is described."""
    lengths = (128, 181, 256, 362, 512)
    times = {
        option: {n: [2.0 + traced.predict(option, n).milliseconds] for n in lengths} for option in ("tp_sp", "ulysses")
    }
    measured = with_measurements(traced, Measurements(times))
    for option in traced.options:
        expected = 2.0 + traced.predict(option, 32_768).milliseconds
        assert measured.predict(option, 32_768).milliseconds == pytest.approx(expected, rel=0.1)


def test_a_message_is_a_ranks_part_of_the_hidden_state(traced):
    assert message_bytes(traced)(1000) == 1000 * traced.shape.hidden_size * 4 / 2  # fp32, two ranks


def test_recomputing_never_saves_time_whatever_noise_says(traced):
    """`ring+full` was measured faster than `ring`, which does less: a plan would recompute for no memory's sake."""
    cluster = Cluster.from_yaml(shipped("clusters", "cpu-2core"))
    traced = estimate(ModelShape.from_yaml(shipped("models", "tiny")), cluster, 2, options=["ring", "ring+full"])
    once = {n: [traced.predict("ring", n).milliseconds] * 3 for n in LENGTHS}
    faster = {n: [0.8 * milliseconds for milliseconds in samples] for n, samples in once.items()}
    measured = with_measurements(traced, Measurements({"ring": once, "ring+full": faster}))
    for length in (64, 128, 600, 4096, 32_768):
        less, more = (measured.predict(option, length).milliseconds for option in ("ring", "ring+full"))
        assert more > 1.05 * less
    shown = measured.costs["dense"]["ring+full"].measured
    assert [point.milliseconds for point in shown] == pytest.approx([faster[n][0] for n in LENGTHS])


def test_recomputing_saves_no_time_below_the_measured_lengths_either():
    """Samples that fall more steeply towards short lengths would meet those without recompute at some length."""
    cluster = Cluster.from_yaml(shipped("clusters", "cpu-2core"))
    traced = estimate(ModelShape.from_yaml(shipped("models", "tiny")), cluster, 2, options=["tp_sp", "tp_sp+full"])
    times = {
        "tp_sp": {n: [20.0 + n / 100] * 3 for n in LENGTHS},
        "tp_sp+full": {n: [n / 5] * 3 for n in LENGTHS},
    }
    measured = with_measurements(traced, Measurements(times))
    for length in (4, 16, 41, 64, 100, 128):
        less, more = (measured.predict(option, length).milliseconds for option in ("tp_sp", "tp_sp+full"))
        assert more > 1.05 * less, length


def test_an_option_has_its_own_overhead_or_what_is_typical():
    """Megabytes that one way of sending holds and another does not; which of them a run meets is chance."""
    cluster = Cluster.from_yaml(shipped("clusters", "cpu-2core"))
    options = ["tp_sp", "ulysses", "ring+full", "ring", "metp", "upipe"]
    traced = estimate(ModelShape.from_yaml(shipped("models", "tiny")), cluster, 2, options=options)
    own = dict(zip(options, (1 << 20, 2 << 20, 3 << 20, 4 << 20, 9 << 20), strict=False))
    peaks = {
        option: {n: stack_bytes(traced.predict(option, n), NUM_LAYERS) + more for n in LENGTHS[-3:]}
        for option, more in own.items()
    }
    found = Measurements({"tp_sp": {512: [40.0]}}, peaks, NUM_LAYERS)
    measured = with_measurements(traced, found)
    for option, more in (own | {"upipe": 0}).items():  # that was not weighed
        before, after = traced.predict(option, 65_536), measured.predict(option, 65_536)
        assert after.saved_bytes == pytest.approx(before.saved_bytes)
        expected = before.workspace_bytes + max(more, 3 << 20) + message_bytes(traced)(65_536)
        assert after.workspace_bytes == pytest.approx(expected, abs=16)


@pytest.mark.parametrize("heavy", [-3, -2, -1])
def test_no_weighed_peak_is_above_what_is_predicted(traced, heavy):
    """One length held a megabyte more than the others, by chance; it may again."""
    peaks = {option: {n: stack_bytes(traced.predict(option, n), NUM_LAYERS) for n in LENGTHS[-3:]}
             for option in traced.options}  # fmt: skip
    option, length = traced.options[0], LENGTHS[heavy]
    peaks[option][length] += 1 << 20
    measured = with_measurements(traced, Measurements({option: {512: [40.0]}}, peaks, NUM_LAYERS))
    message = message_bytes(traced)
    expected = stack_bytes(measured.predict(option, length), NUM_LAYERS)
    assert expected >= peaks[option][length] + message(length) - 16  # one message may be on its way beside
    if heavy != -1:  # and what a short length holds by chance is not multiplied at long ones
        far = [stack_bytes(costs.predict(option, 262_144), NUM_LAYERS) for costs in (traced, measured)]
        assert far[1] - far[0] == pytest.approx((1 << 20) + message(262_144), abs=16)
