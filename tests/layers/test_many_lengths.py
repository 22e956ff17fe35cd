"""200 micro-batches of 200 lengths, under mixed plans, leave nothing behind."""

from __future__ import annotations


def test_nothing_is_left_behind(findings):
    """Resident memory may move by what the allocator of C holds on to; one such model's activations are 10 MiB."""
    for early, late in findings(2)["many lengths"]:
        assert 0 < late["tensors"] <= early["tensors"]
        assert late["groups"] == early["groups"] > 0
        assert late["resident_bytes"] <= early["resident_bytes"] + 8 * 2**20, (early, late)
