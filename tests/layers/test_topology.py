"""Ranks on a node, from what torchrun says."""

import pytest

from paradyse_megatron.layers.topology import ranks_per_node


@pytest.mark.parametrize(("told", "world_size", "number"), [("8", 16, 8), ("4", 6, None), (None, 8, None), ("2", 2, 2)])
def test_ranks_of_a_node(monkeypatch, told, world_size, number):
    monkeypatch.delenv("LOCAL_WORLD_SIZE", raising=False)
    if told is not None:
        monkeypatch.setenv("LOCAL_WORLD_SIZE", told)
    assert ranks_per_node(world_size) == number
