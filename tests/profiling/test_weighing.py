"""At which lengths memory is weighed, on a machine whose times are formulas."""

from __future__ import annotations

import pytest

from paradyse_megatron.profiling.weighing import rounds, that_count

LONGEST = {"tp_sp": 1000, "ulysses": 100_000}


class Machine:
    """A clock that each round moves on by what its points take."""

    def __init__(self, seconds_per_token: float):
        self.now, self.seconds_per_token = 0.0, seconds_per_token

    def follow(self, seconds: float, longest: dict[str, int] = LONGEST, group_size: int = 2) -> list[list[tuple]]:
        followed = []
        for points in rounds(longest, group_size, seconds, lambda: self.now):
            self.now += self.seconds_per_token * sum(length for _, length in points)
            followed.append(points)
        return followed


def test_every_target_is_weighed_an_octave_longer_each_time_up_to_its_longest():
    followed = Machine(0.001).follow(1000)
    assert [[point for point in points if point[0] == "ulysses"] for points in followed] == [
        [("ulysses", length)] for length in (248, 496, 992, 1984, 3968)
    ]
    assert [point for points in followed for point in points if point[0] == "tp_sp"] == [
        ("tp_sp", length) for length in (248, 496, 992, 1000)
    ]


@pytest.mark.parametrize("seconds", [1, 3, 10, 30])
def test_it_ends_within_its_time(seconds):
    machine = Machine(0.001)
    followed = machine.follow(seconds, {"ulysses": 100_000})
    assert machine.now <= seconds
    next_round = 0.001 * 2 * followed[-1][0][1]
    assert followed[-1][0][1] == 4096 or machine.now + 1.5 * next_round > seconds  # one more was not foreseen to fit


def test_the_first_round_takes_what_it_takes():
    assert len(Machine(10.0).follow(1)) == 1


def test_short_sequences_are_weighed_at_several_lengths_too():
    followed = Machine(0.0).follow(1, {"ring": 64}, 4)
    assert [points for points in followed if points] == [[("ring", n)] for n in (16, 32, 64)]


def test_the_longest_three_count():
    peaks = {("ring", n): n for n in (128, 256, 512, 1024)} | {("metp", 128): 1, ("metp", 64): 2}
    assert that_count(peaks) == {key: peaks[key] for key in peaks if key != ("ring", 128)}
