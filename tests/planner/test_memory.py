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
        layers = [random_cost(chooser) for _ in range(chooser.randint(1, 9))]
        head, in_flight = chooser.randint(0, 300), chooser.randint(1, 4)
        held = head, in_flight, min(head, chooser.choice([0, 60]))
        peak = peak_bytes(layers, *held)
        assert peak == simulated_peak(layers, *held) == schedule_peak(layers, *held)
        largest = max(cost.buffer_bytes for cost in layers) > held[-1]
        kinds.add((largest, peak == in_flight * sum(cost.saved_bytes for cost in layers) + head))
    assert len(kinds) >= 3  # both the head and the layers decided somewhere, and whose buffer is the largest


def random_cost(chooser):
    buffer = chooser.choice([0, 0, 60, 90])
    return Cost(1.0, chooser.randint(0, 50), buffer + chooser.randint(0, 200), buffer)


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


def test_the_largest_buffer_stays_beside_every_layer():
    gathering, other = Cost(1.0, 10, 50, 40), Cost(1.0, 10, 30)
    assert peak_bytes([gathering, other]) == 20 + 30 + 40
    assert peak_bytes([other, other]) == 20 + 30
    assert peak_bytes([other, other], 60, 1, 45) == 20 + 30 + 45
    assert peak_bytes([gathering, other], 60, 2, 45) == 20 + 30 + 45 + 20


def test_no_32_bit_or_64_bit_arithmetic():
    layers = [Cost(1.0, 2**62, 2**62)] * 96
    assert peak_bytes(layers, 2**62, 8) == 96 * 8 * 2**62 + 2**62
