"""With the chunked loss head, loss and every gradient of whole models equal those of the unsharded stock model."""

from __future__ import annotations

import pytest

from tests.layers.equality import CASES
from tests.ranks import run_ranks

TOLERANCE = {"float64": 1e-10, "float32": 1e-5, "window": 1e-10}
"""Relative L2 per tensor: rounding of another order of summation, nothing else."""


@pytest.mark.parametrize("num_ranks", [1, 2, 3])
def test_tied_and_untied_models_match_the_unsharded_one(references, num_ranks):
    found = run_ranks("tests.layers.loss_head:found", num_ranks, references, timeout_seconds=120)[0]
    assert len(found["errors"]) == 2 * 2 * len(CASES) + 2
    wrong = {
        key: error
        for key, error in found["errors"].items()
        if not error <= TOLERANCE[next(name for name in TOLERANCE if name in key)]
    }
    assert not wrong
    assert len(found["chunks"]) == 2 * 2 * 2 * len(CASES)  # each forward and backward passed through the chunked head
    assert max(found["chunks"]) >= 4
