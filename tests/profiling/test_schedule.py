"""The schedule of a profile, followed on a machine whose times are formulas."""

from __future__ import annotations

import itertools
import random

import pytest

from paradyse_megatron.profiling.schedule import MIN_SAMPLES, Point, Samples, Schedule, deviation, octaves

TARGETS = ("tp_sp", "ulysses")


def machine(point: Point) -> float:
    """Milliseconds."""
    target, length = point
    return 5 + 0.02 * length + (2e-5 if target == "tp_sp" else 5e-6) * length**2


def stepped(point: Point) -> float:
    """As `machine`, but twice as slow from 1,500 tokens on."""
    return machine(point) * (2 if point[1] >= 1500 else 1)


def follow(schedule: Schedule, budget_seconds: float, clock=machine) -> tuple[float, list[Point]]:
    """Seconds used, and the points in the order they were timed."""
    used, order = 0.0, []
    while (point := schedule.next(budget_seconds - used)) is not None:
        schedule.samples.add(point, clock(point))
        used += clock(point) / 1000
        order.append(point)
        assert len(order) < 100_000
    return used, order


def make(budget_seconds: float, longest: int = 4096, fits=lambda target, length: True, samples=None) -> Schedule:
    return Schedule(TARGETS, 128, longest, 2, fits, budget_seconds, samples)


@pytest.mark.parametrize("budget_seconds", [1, 10, 60])
def test_keeps_to_the_budget_and_samples_each_point_enough(budget_seconds):
    schedule = make(budget_seconds)
    used, _ = follow(schedule, budget_seconds)
    assert used <= budget_seconds + machine(("tp_sp", 128)) / 1000  # only the very first samples are not foreseen
    enough = [len(times) >= MIN_SAMPLES for times in schedule.samples.of.values()]
    assert len(enough) > 4 and sum(enough) >= 0.9 * len(enough)


def test_a_larger_budget_climbs_higher():
    reached = []
    for budget_seconds in (1, 10, 300):
        schedule = make(budget_seconds, longest=65536)
        follow(schedule, budget_seconds)
        reached.append(schedule.samples.lengths("tp_sp")[-1])
    assert reached == sorted(set(reached))


def test_sweeps_are_interleaved():
    """No target has all its samples of a length in one go, or a drift of the machine would look like a property."""
    _, order = follow(make(10), 10)
    changes = sum(before[0] != after[0] for before, after in itertools.pairwise(order))
    assert changes > 0.3 * len(order)
    assert all(before != after for before, after in itertools.pairwise(order[: len(TARGETS) * 6]))


def test_every_octave_gets_a_point_in_its_middle():
    schedule = make(60)
    follow(schedule, 60)
    for target in TARGETS:
        lengths = schedule.samples.lengths(target)
        assert [length for length in octaves(128, 4096, 4) if length not in lengths] == []
        for low in octaves(128, 2048, 4):
            assert any(low < length < 2 * low for length in lengths), (target, low)


def test_more_points_where_the_curve_bends():
    smooth, bent = make(60), make(60)
    follow(smooth, 60)
    follow(bent, 60, stepped)
    near = range(1024, 2049)
    count = {
        name: sum(length in near for length in s.samples.lengths("ulysses"))
        for name, s in (("smooth", smooth), ("bent", bent))
    }
    assert count["bent"] >= count["smooth"] + 2
    assert len(smooth.samples.lengths("ulysses")) <= 2 * len(octaves(128, 4096, 4)) + 3


def test_noise_draws_no_points():
    """Neighbours that are off by chance look like bends; all targets would be measured worse for one's sake."""
    chance = random.Random(1)
    schedule = make(60)
    follow(schedule, 60, lambda point: machine(point) * chance.lognormvariate(0, 0.08))
    for target in TARGETS:
        assert len(schedule.samples.lengths(target)) <= 3 * len(octaves(128, 4096, 4))


def test_points_are_never_so_close_that_nothing_lies_between():
    schedule = make(1e6)
    follow(schedule, 1e6, stepped)
    lengths = schedule.samples.lengths("ulysses")
    assert min(high / low for low, high in itertools.pairwise(lengths)) > 1.08


def test_what_does_not_fit_is_never_run():
    schedule = make(10, fits=lambda target, length: target == "ulysses" or length <= 512)
    _, order = follow(schedule, 10)
    assert max(length for target, length in order if target == "tp_sp") <= 512
    assert max(length for target, length in order if target == "ulysses") == 4096


def test_an_interrupted_profile_goes_on():
    first = make(60)
    follow(first, 2)
    again = make(60, samples=Samples({point: list(times) for point, times in first.samples.of.items()}))
    follow(again, 60)
    assert all(len(again.samples.of[point]) >= len(first.samples.of[point]) for point in first.samples.of)
    assert len(again.samples.of) > len(first.samples.of)


def test_it_ends_when_there_is_nothing_more_to_learn():
    schedule = make(1e9)
    used, _ = follow(schedule, 1e9)
    assert used < 1e6


@pytest.mark.parametrize(("shortest", "longest", "multiple"), [(1, 100, 8), (128, 128, 4), (100, 4096, 6), (9, 4, 2)])
def test_octaves(shortest, longest, multiple):
    found = octaves(shortest, longest, multiple)
    assert found and all(length % multiple == 0 for length in found)
    assert found == sorted(set(found)) and (len(found) == 1 or found[-1] <= longest)


def test_a_power_law_does_not_deviate():
    assert deviation((100, 2.0), (200, 8.0), (400, 32.0)) == pytest.approx(0)
    assert deviation((100, 2.0), (200, 8.8), (400, 32.0)) == pytest.approx(0.1)


def test_it_climbs_by_what_samples_take_to_take():
    """Of a stack of four layers a sample is the time of one."""
    reached = []
    for num_layers in (1, 4, 16):
        schedule, used = make(30, longest=65536), 0.0
        while (point := schedule.next(30 - used)) is not None:
            schedule.samples.add(point, machine(point))
            schedule.took(point, num_layers * machine(point) / 1000)
            used += num_layers * machine(point) / 1000
        counts = [len(times) for times in schedule.samples.of.values()]
        assert sum(count >= MIN_SAMPLES for count in counts) >= 0.9 * len(counts)
        reached.append(schedule.samples.lengths("ulysses")[-1])
    assert reached == sorted(set(reached), reverse=True)
