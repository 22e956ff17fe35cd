"""One corpus for all runs."""

from __future__ import annotations

import pytest

from tests.training.runs import make_corpus


@pytest.fixture(scope="session")
def corpus(tmp_path_factory):
    """Prefix of a data set whose documents have very different lengths."""
    return make_corpus(tmp_path_factory.mktemp("corpus"))
