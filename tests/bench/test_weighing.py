"""Layers weighed on real ranks hold what costs say that they hold."""

from __future__ import annotations

import pytest

from paradyse_megatron.bench import weighing
from paradyse_megatron.costmodel.cluster import Cluster
from paradyse_megatron.costmodel.configs import shipped
from paradyse_megatron.costmodel.first_principles import estimate
from paradyse_megatron.costmodel.peaks import stack_bytes
from paradyse_megatron.costmodel.shape import ModelShape

OPTIONS = ["tp_sp", "tp_sp+full", "ulysses/tp_sp"]
"""Scores are stored, and multiplied into a buffer that nothing writes to before; Megatron's gather buffer stays."""


def test_buffers_that_stay_or_are_never_written_to_count(monkeypatch):
    cluster = Cluster.from_yaml(shipped("clusters", "cpu-2core"))
    costs = estimate(ModelShape.from_yaml(shipped("models", "tiny")), cluster, 2, options=OPTIONS)
    monkeypatch.setattr(weighing, "TOKENS_A_RANK", (1024,))
    peaks = weighing.weighed(costs, 4, 2**32)
    for option in OPTIONS:
        assert peaks[option][2048] == pytest.approx(stack_bytes(costs.predict(option, 2048), 4), rel=0.08), option
