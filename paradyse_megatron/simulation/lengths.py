"""Lengths of documents: from a file, or from a named distribution.

Named ones other than `demo` are stand-ins, for want of the data itself: their form is ours, and each says what its
numbers come from. They are sampled at evenly spaced quantiles and shuffled, so that few documents show their tails.
"""

from __future__ import annotations

import functools
import json
import statistics
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from paradyse_megatron.data.corpus import default_folder, select_files

LONGEST_DOCUMENT = 1_048_576
"""Where the unbounded distributions are cut."""


@dataclass(frozen=True)
class Distribution:
    """A named distribution.

    Attributes:
        text: parameters and where they come from.
        quantile: tokens of a document by quantile, both arrays.
    """

    text: str
    quantile: Callable[[np.ndarray], np.ndarray]


def _log_normal(median: float, sigma: float) -> Callable[[np.ndarray], np.ndarray]:
    normal = statistics.NormalDist()
    return lambda q: median * np.exp(sigma * np.array([normal.inv_cdf(each) for each in q]))


@functools.cache
def _demo_lengths() -> np.ndarray:
    folder = default_folder()
    return np.array([1 + path.stat().st_size for path in select_files(folder, "**/*.py", folder / "none")])


DISTRIBUTIONS = {
    "demo": Distribution(
        "the demo's documents: the Python standard library's source files here, one token a byte and one at the end",
        lambda q: np.quantile(_demo_lengths(), q),
    ),
    "github-code-like": Distribution(
        "log-normal, median 1,860 tokens, sigma 1.4: median and 99th percentile of the demo's files (6.5 and 170 KB), "
        "at 3.5 bytes a token",
        _log_normal(1860, 1.4),
    ),
    "genome-like": Distribution(
        "log-uniform from 1,024 to 624,000 tokens: windows of any scale, up to the longest sequence of ParaDySe's "
        "experiments (arXiv 2511.13198)",
        lambda q: 1024 * (624_000 / 1024) ** q,
    ),
    "chat-like": Distribution(
        "log-normal with a mean of 568 tokens, 2.0 turns of 69.5 and 214.5 tokens (LMSYS-Chat-1M, arXiv 2309.11998, "
        "table 1); sigma 1.1 is assumed",
        _log_normal(568 * float(np.exp(-(1.1**2) / 2)), 1.1),
    ),
    "uniform": Distribution("uniform from 1 to 131,072 tokens", lambda q: 131_072 * q),
}
"""By name."""


def read_lengths(name: str, num_documents: int, seed: int) -> np.ndarray:
    """Lengths in tokens, int64, in the order of training.

    Args:
        name: a file (one length a line, or a JSON list), or a name of `DISTRIBUTIONS`.
        num_documents: how many to draw from a distribution; a file is taken whole.
        seed: of the order of a distribution's documents.

    Raises:
        ValueError: neither a name nor a file, or a file with anything but whole numbers above 0.
    """
    if name not in DISTRIBUTIONS:
        return _from_file(name)
    if num_documents < 1:
        raise ValueError(f"The number of documents must be at least 1, but it is {num_documents}; see --num-documents.")
    quantiles = (np.arange(num_documents) + 0.5) / num_documents
    tokens = np.clip(np.rint(DISTRIBUTIONS[name].quantile(quantiles)), 1, LONGEST_DOCUMENT).astype(np.int64)
    return np.random.Generator(np.random.PCG64(seed)).permutation(tokens)


def _from_file(name: str) -> np.ndarray:
    try:
        text = Path(name).read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        known = ", ".join(DISTRIBUTIONS)
        raise ValueError(f"--lengths '{name}' is neither a readable text file nor one of {known}.") from error
    try:
        found = json.loads(text) if text.lstrip().startswith("[") else [int(line) for line in text.split()]
    except ValueError as error:
        raise ValueError(f"The lengths in {name} must be one whole number a line, or a JSON list: {error}.") from error
    if not found or not all(type(each) is int and 0 < each < 2**40 for each in found):
        raise ValueError(f"The lengths in {name} must be whole numbers of at least 1, and at least one of them.")
    return np.array(found, np.int64)
