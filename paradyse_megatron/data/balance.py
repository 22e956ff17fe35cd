"""Similar lengths together: an order that leaves each sample in its epoch, and near where chance had put it.

Chance (`SampleOrder`) deals an epoch's samples to windows of consecutive numbers. Within a window they are sorted by
length and cut into *steps*, the micro-batches that the data-parallel ranks compute at the same time. The steps come in
an order of chance again, and in each the longest micro-batch goes to the rank that has had the least work so far in
its global batch. All of this follows from the lengths, the seed and the sizes below: never from a plan or a clock.
So runs with other plans, or with Megatron's own layers, see the same batches.
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass

import numpy as np

from paradyse_megatron.data.order import SampleOrder

WINDOW_SAMPLES = 1024
"""At least as many samples as this are compared with each other, where lengths are balanced beyond a global batch."""


@dataclass(frozen=True)
class BatchShape:
    """How consecutive sample numbers become batches."""

    micro_batch_size: int
    """Samples of a micro-batch."""
    dp_size: int
    """Data-parallel ranks."""
    global_batch_size: int
    """Samples between two steps of the optimizer, a multiple of the two above."""

    @property
    def step(self) -> int:
        """Samples that all ranks compute at the same time."""
        return self.micro_batch_size * self.dp_size

    def window(self) -> int:
        """Samples of a window of global batches."""
        return -(-WINDOW_SAMPLES // self.global_batch_size) * self.global_batch_size


class BalancedOrder:
    """`SampleOrder`, with the samples of each window arranged by length.

    Args:
        lengths: tokens of each sample, int64 [samples].
        seed: as in `SampleOrder`.
        shape: the batches that consecutive numbers make.
        window_samples: samples of a window, a multiple of the global batch. With one global batch each batch holds the
            samples that `SampleOrder` gives it, arranged; with more, padding and waiting shrink further, but batches
            are of other samples, with lengths more alike.
        linear_tokens: length at which attention costs as much as all that is linear in the length.
    """

    def __init__(
        self, lengths: np.ndarray, seed: int, shape: BatchShape, window_samples: int, linear_tokens: int = 2048
    ) -> None:
        """Raises ValueError for no samples or a negative seed."""
        assert window_samples % shape.global_batch_size == 0 and shape.global_batch_size % shape.step == 0
        self._shuffled = SampleOrder(len(lengths), seed)
        self.num_samples = len(lengths)
        self._lengths = np.asarray(lengths)
        self._seed, self._shape, self._window, self._linear_tokens = seed, shape, window_samples, linear_tokens
        self._kept: tuple[int, int] = (0, 0)
        self._arranged = np.empty(0, dtype=np.int64)

    def sample_ids(self, first: int, count: int) -> np.ndarray:
        """See `Order`."""
        parts = [np.empty(0, dtype=np.int64)]
        while count > 0:
            begin, _ = self._arrange_around(first)
            ids = self._arranged[first - begin : first - begin + count]
            parts.append(ids)
            first, count = first + len(ids), count - len(ids)
        return np.concatenate(parts)

    def _arrange_around(self, number: int) -> tuple[int, int]:
        """The numbers of the window around `number`, from the first to behind the last; its samples are arranged."""
        begin, end = self._kept
        if not begin <= number < end:
            begin, end = self._kept = self._window_around(number)
            self._arranged = self._arrange(begin, end)
        return begin, end

    def _window_around(self, number: int) -> tuple[int, int]:
        """Borders are whole global batches, and the ends of the epoch, which need not be whole ones.

        Windows of an epoch are about equally large, so that none is left with a few samples that do not match.
        """
        epoch = number // self.num_samples
        begin, end = epoch * self.num_samples, (epoch + 1) * self.num_samples
        batch = self._shape.global_batch_size
        if self._window == batch:
            return max(begin, number // batch * batch), min(end, (number // batch + 1) * batch)
        num_windows = max(1, round(self.num_samples / self._window))
        inner = [begin + part * self.num_samples // num_windows for part in range(1, num_windows)]
        borders = [begin, *(-(-border // batch) * batch for border in inner), end]
        place = bisect_right(borders, number)
        return borders[place - 1], borders[place]

    def _arrange(self, begin: int, end: int) -> np.ndarray:
        """The samples of the numbers `begin` .. `end` - 1, arranged.

        A step that an end of the epoch cuts through gets the shortest samples from both sides, which match each other.
        """
        ids = self._shuffled.sample_ids(begin, end - begin)
        ids = ids[np.argsort(self._lengths[ids], kind="stable")]
        head = min(-begin % self._shape.step, len(ids))
        tail = (len(ids) - head) % self._shape.step
        steps = ids[head + tail :].reshape(-1, self._shape.step)
        first_step = (begin + head) // self._shape.step
        steps = self._dealt(steps[self._chance(begin, len(steps))], first_step)
        return np.concatenate([ids[:head], steps.ravel(), ids[head : head + tail]])

    def _chance(self, begin: int, count: int) -> np.ndarray:
        """A permutation of `count` steps, from raw draws as in `SampleOrder`."""
        draws = np.random.PCG64(np.random.SeedSequence((self._seed, begin, 1))).random_raw(count)
        return np.argsort(draws, kind="stable")

    def _dealt(self, steps: np.ndarray, first_step: int) -> np.ndarray:
        """The micro-batches of each row of `steps` (by rising length) in the order of the ranks that compute them."""
        shape = self._shape
        micro_batches = steps.reshape(len(steps), shape.dp_size, shape.micro_batch_size)
        longest = self._lengths[micro_batches].max(axis=2).astype(np.float64)
        work = longest * (1 + longest / self._linear_tokens)
        dealt = np.empty_like(micro_batches)
        steps_per_batch = shape.global_batch_size // shape.step
        done = np.zeros(shape.dp_size)
        for row in range(len(steps)):
            if (first_step + row) % steps_per_batch == 0:
                done[:] = 0.0
            ranks = np.argsort(-done, kind="stable")  # the least work to the rank that has done the most
            dealt[row, ranks] = micro_batches[row]
            done[ranks] += work[row]
        return dealt
