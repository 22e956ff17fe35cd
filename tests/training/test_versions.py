"""Real checkouts of Megatron-LM: PARADYSE_TEST_MEGATRON_PATHS=A:B... names clones without changes (a minute each)."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.training.runs import make_corpus, train
from tests.training.versions import FLAGS, losses_of, try_checkout

CHECKOUTS = [Path(path) for path in os.environ.get("PARADYSE_TEST_MEGATRON_PATHS", "").split(os.pathsep) if path]


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    return make_corpus(tmp_path_factory.mktemp("corpus"))


@pytest.fixture(scope="module")
def expected(corpus, tmp_path_factory):
    return losses_of(train(corpus, tmp_path_factory.mktemp("installed"), FLAGS))


@pytest.mark.skipif(not CHECKOUTS, reason="PARADYSE_TEST_MEGATRON_PATHS names no Megatron-LM checkout")
@pytest.mark.parametrize("checkout", CHECKOUTS, ids=str)
def test_a_checkout_trains_patched_and_unpatched_as_the_installed_package(checkout, corpus, expected, tmp_path):
    outcome = try_checkout(checkout, corpus, tmp_path, expected)
    assert outcome.is_clean
    assert outcome.difference == outcome.own_difference == 0
