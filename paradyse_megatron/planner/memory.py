"""The peak-memory rule: how much of a rank's memory one plan needs.

Forward runs layers 1 to L, then the head; backward runs the head, then layers L to 1. What a layer saved is there
from its forward to the end of its backward. So while layer i works, in either direction, the saved bytes of layers 1
to i are there (in its forward its own are growing), and those of the layers above are not: not yet, or no more. Hence

    peak = max( saved_1 + ... + saved_L + head,  max over i of (saved_1 + ... + saved_i + workspace_i) ).

A workspace is therefore cheap in an early layer, where little is saved yet, and dear in a late one.

With m micro-batches in flight (a pipeline schedule), the other m - 1 have all their layers' saved bytes there.

What some layers and the whole head gather into is Megatron's buffer: one for all, which stays once it is made. So each
workspace counts without its share of it, and on top of all that comes the buffer at the largest that the plan needs.
All numbers are Python integers: they do not overflow.
"""

from __future__ import annotations

from collections.abc import Sequence

from paradyse_megatron.planner.cost import Cost


def peak_bytes(layers: Sequence[Cost], head_bytes: int = 0, num_in_flight: int = 1, head_buffer_bytes: int = 0) -> int:
    """Peak of activations in bytes on one rank.

    Args:
        layers: cost of each layer under the plan, first layer first.
        head_bytes: what the loss head holds at its peak; 0 on pipeline stages without it.
        num_in_flight: micro-batches whose forward has begun and whose backward has not ended, this one included.
        head_buffer_bytes: of the head's bytes, in Megatron's buffer.
    """
    saved_so_far = 0
    peak = 0
    buffer = head_buffer_bytes
    for cost in layers:
        saved_so_far += cost.saved_bytes
        peak = max(peak, saved_so_far + cost.workspace_bytes - cost.buffer_bytes)
        buffer = max(buffer, cost.buffer_bytes)
    peak = max(peak, saved_so_far + head_bytes - head_buffer_bytes)
    return peak + buffer + (num_in_flight - 1) * saved_so_far
