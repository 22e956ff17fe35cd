"""How pipeline stages tell each other the shapes of what they send."""

from __future__ import annotations

from typing import Any


def separate_shape_exchanges() -> None:
    """Let pipeline stages tell each other shapes in one direction at a time.

    With virtual stages a stage sends to and receives from both neighbours at once, in messages without tags. In a
    pipeline of two the neighbours are one rank, and each side takes the other's two messages in the wrong order: still
    so in 0.19.2. Drop this when Megatron tags them.
    """
    from megatron.core.pipeline_parallel.p2p_communication import P2PCommunicator

    both_at_once = P2PCommunicator._communicate_shapes
    if getattr(both_at_once, "is_separate", False):
        return

    def one_at_a_time(self: Any, send_next: Any, send_prev: Any, recv_prev: bool, recv_next: bool) -> Any:
        shape_of_prev, _ = both_at_once(self, send_next, None, recv_prev, False)
        _, shape_of_next = both_at_once(self, None, send_prev, False, recv_next)
        return shape_of_prev, shape_of_next

    one_at_a_time.is_separate = True  # type: ignore[attr-defined]
    P2PCommunicator._communicate_shapes = one_at_a_time
