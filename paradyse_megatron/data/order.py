"""Which sample comes when: pure arithmetic on the global consumed sample number, so resuming is free.

An order maps the numbers 0, 1, 2, ... that Megatron counts in `consumed_train_samples`, over any number of epochs, to
samples. It knows neither ranks nor batches; a later order that brings similar lengths together takes its place here.
"""

from __future__ import annotations

from typing import Protocol

import numpy as np


class Order(Protocol):
    """What the loader needs of an order."""

    num_samples: int
    """Samples of one epoch."""

    def sample_ids(self, first: int, count: int) -> np.ndarray:
        """Samples number `first` .. `first + count - 1` of the run, int64 [count], each in 0 .. num_samples - 1."""
        ...


class FixedOrder:
    """0, 1, ..., num_samples - 1 and round again: for evaluation."""

    def __init__(self, num_samples: int) -> None:
        self.num_samples = _checked(num_samples)

    def sample_ids(self, first: int, count: int) -> np.ndarray:
        """See `Order`."""
        return np.arange(first, first + count, dtype=np.int64) % self.num_samples


class SampleOrder:
    """A fresh permutation every epoch; each sample exactly once an epoch.

    The permutation of an epoch sorts raw draws of PCG64, whose stream (unlike that of `Generator.permutation`) numpy
    promises to keep, so a run resumes under another numpy version. It is made when first asked for and the latest
    is kept; no earlier epoch is replayed.
    """

    def __init__(self, num_samples: int, seed: int) -> None:
        """Raises ValueError for no samples or a negative seed."""
        self.num_samples = _checked(num_samples)
        if seed < 0:
            raise ValueError(f"the seed of the sample order is {seed}; --seed must be 0 or more")
        self.seed = seed
        self._epoch = -1
        self._permutation = np.empty(0, dtype=np.int64)

    def sample_ids(self, first: int, count: int) -> np.ndarray:
        """See `Order`."""
        parts = [np.empty(0, dtype=np.int64)]
        while count > 0:
            epoch, start = divmod(first, self.num_samples)
            ids = self._permutation_of(epoch)[start : start + count]
            parts.append(ids)
            first, count = first + len(ids), count - len(ids)
        return np.concatenate(parts)

    def _permutation_of(self, epoch: int) -> np.ndarray:
        if epoch != self._epoch:
            draws = np.random.PCG64(np.random.SeedSequence((self.seed, epoch))).random_raw(self.num_samples)
            self._permutation = np.argsort(draws, kind="stable").astype(np.int64)
            self._epoch = epoch
        return self._permutation


def _checked(num_samples: int) -> int:
    if num_samples < 1:
        raise ValueError(f"an order needs at least one sample, got {num_samples}; see --data-path and --split")
    return num_samples
