"""The peak rule against a simulation of the forward-backward order."""

import random

import pytest

from paradyse_megatron.bench.schedule import schedule_peak, simulated_peak
from paradyse_megatron.planner.cost import Cost
from paradyse_megatron.planner.memory import peak_bytes


def test_the_rule_equals_the_simulation_on_random_layers():
    chooser = random.Random(5)
    kinds = set()
    for _ in range(2000):
        layers = [Cost(1.0, chooser.randint(0, 50), chooser.randint(0, 200)) for _ in range(chooser.randint(1, 9))]
        head, in_flight = chooser.randint(0, 300), chooser.randint(1, 4)
        peak = peak_bytes(layers, head, in_flight)
        assert peak == simulated_peak(layers, head, in_flight) == schedule_peak(layers, head, in_flight)
        kinds.add(peak == in_flight * sum(cost.saved_bytes for cost in layers) + head)
    assert kinds == {True, False}  # both the head and the layers decided somewhere


@pytest.mark.parametrize(
    ("layers", "head", "in_flight", "peak"),
    [
        ([(10, 5), (10, 5)], 0, 1, 25),
        ([(10, 5), (10, 5)], 30, 1, 50),
        ([(10, 100), (10, 5)], 0, 1, 110),  # a workspace in the first layer is on top of 10 only
        ([(10, 5), (10, 100)], 0, 1, 120),
        ([(10, 5), (10, 100)], 0, 3, 160),
    ],
)
def test_by_hand(layers, head, in_flight, peak):
    assert peak_bytes([Cost(1.0, *pair) for pair in layers], head, in_flight) == peak


def test_no_32_bit_or_64_bit_arithmetic():
    layers = [Cost(1.0, 2**62, 2**62)] * 96
    assert peak_bytes(layers, 2**62, 8) == 96 * 8 * 2**62 + 2**62
