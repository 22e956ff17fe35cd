"""Real documents of very different lengths that every machine has: the standard library's own sources, as bytes."""

from __future__ import annotations

import random
from pathlib import Path

from paradyse_megatron.data.corpus import default_folder, encode, select_files

SHORTEST = 32
"""Tokens to predict, of documents that spread over octaves."""


def sample_documents(count: int, longest: int, seed: int = 0) -> list[list[int]]:
    """Whole documents of at most `longest` tokens to predict, drawn so that their lengths spread as the corpus's do.

    Those documents, sorted by length, are cut into `count` equal shares, and one is drawn from each but the last, which
    gives its longest; they come back in a shuffled order. All byte values and the end of a document are tokens.
    """
    sizes = [(size, name) for size, name in _sizes() if 2 <= size <= longest]
    draw = random.Random(seed)
    shares = [sizes[i * len(sizes) // count : (i + 1) * len(sizes) // count] for i in range(count)]
    chosen = [*map(draw.choice, shares[:-1]), shares[-1][-1]]
    draw.shuffle(chosen)
    return [encode(Path(name).read_bytes()).tolist() for _, name in chosen]


def sample_octaves(count: int, longest: int, seed: int = 0) -> list[list[int]]:
    """Documents of which each octave of lengths, from `SHORTEST` to `longest` tokens to predict, has equally many.

    The range is cut into `count` shares of equal ratio, and a length is drawn from each but the last, whose is
    `longest`; each document is the beginning of a longer one. They come back in a shuffled order.
    """
    draw = random.Random(seed)
    ratio = longest / SHORTEST
    lengths = [int(SHORTEST * ratio ** ((share + draw.random()) / count)) for share in range(count - 1)]
    files = [name for size, name in _sizes() if size > longest]
    texts = [Path(draw.choice(files)).read_bytes()[:length] for length in [*lengths, longest]]
    draw.shuffle(texts)
    return [encode(text).tolist() for text in texts]


SPREADS = {"octaves": sample_octaves, "corpus": sample_documents}
"""How lengths spread, by name."""


def _sizes() -> list[tuple[int, str]]:
    """Bytes and names of all files, shortest first."""
    files = select_files(default_folder(), "**/*.py", Path("none"))
    return sorted((file.stat().st_size, str(file)) for file in files)
