"""Real documents of very different lengths that every machine has: the standard library's own sources, as bytes."""

from __future__ import annotations

import random
from pathlib import Path

from paradyse_megatron.data.corpus import default_folder, encode, select_files


def sample_documents(count: int, longest: int, seed: int = 0) -> list[list[int]]:
    """Whole documents of at most `longest` tokens to predict, drawn so that their lengths spread as the corpus's do.

    Those documents, sorted by length, are cut into `count` equal shares, and one is drawn from each but the last, which
    gives its longest; they come back in a shuffled order. All byte values and the end of a document are tokens.
    """
    files = [file for file in select_files(default_folder(), "**/*.py", Path("none"))]
    sizes = sorted((file.stat().st_size, str(file)) for file in files)
    sizes = [(size, name) for size, name in sizes if 2 <= size <= longest]
    draw = random.Random(seed)
    shares = [sizes[i * len(sizes) // count : (i + 1) * len(sizes) // count] for i in range(count)]
    chosen = [*map(draw.choice, shares[:-1]), shares[-1][-1]]
    draw.shuffle(chosen)
    return [encode(Path(name).read_bytes()).tolist() for _, name in chosen]
