"""Where the ranks are."""

from __future__ import annotations

import os


def ranks_per_node(world_size: int) -> int | None:
    """Ranks on every node, as torchrun tells each of them; None where it does not, or where nodes cannot be alike."""
    number = int(os.environ.get("LOCAL_WORLD_SIZE", "0"))
    return number if number and world_size % number == 0 else None
