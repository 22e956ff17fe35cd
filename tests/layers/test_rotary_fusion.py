"""Where Megatron fuses RoPE, conversions rotate queries and keys on their way: the same losses and gradients."""

from __future__ import annotations

from tests.layers.models import NUM_LAYERS
from tests.layers.rotary_fusion import MODELS, PLANS


def test_rotating_on_the_way_changes_nothing(findings):
    """To the rounding of fp64. With `full` recompute forward runs twice."""
    found = findings(4)["rotary fusion"][0]
    assert len(found) == len(MODELS) * len(PLANS)
    for case, (error, num_rotating) in found.items():
        assert error <= 1e-12, case
        is_plain = not case.startswith(("with norms", "without rotation"))
        assert num_rotating == is_plain * (NUM_LAYERS + case.count("+full")), case
