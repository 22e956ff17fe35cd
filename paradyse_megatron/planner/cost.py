"""What the planner knows of an option at one length, and what it asks of a cost model."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True)
class Cost:
    """Cost of one layer for one micro-batch of one length, on one rank.

    Attributes:
        milliseconds: forward plus backward.
        saved_bytes: kept from the layer's forward to its backward.
        workspace_bytes: the most that the layer holds for a moment above that, in forward or backward.
        buffer_bytes: of those, in Megatron's buffer, which stays once it is made (`levels`).
    """

    milliseconds: float
    saved_bytes: int
    workspace_bytes: int
    buffer_bytes: int = 0


@dataclass(frozen=True)
class HeadCost:
    """Cost of output projection and loss for one micro-batch, on one rank of the last pipeline stage.

    Attributes:
        milliseconds: forward plus backward.
        saved_bytes: all that the head holds at its peak, when every layer's saved bytes are still there.
        buffer_bytes: of those, in Megatron's buffer.
    """

    milliseconds: float
    saved_bytes: int
    buffer_bytes: int = 0


class CostSource(Protocol):
    """A cost model, as far as the planner is concerned.

    One that also knows the chunked loss head has a property `heads`, ("whole", "chunked"), and takes either as a second
    argument of `predict_head`; without that property the planner plans for the whole head only.
    """

    @property
    def group_size(self) -> int:
        """Ranks P of the model-parallel group."""

    @property
    def options(self) -> tuple[str, ...]:
        """Canonical texts of the options it knows."""

    def predict(self, option: str, seq_length: int) -> Cost:
        """Cost of one layer at `seq_length` tokens."""

    def predict_head(self, seq_length: int) -> HeadCost:
        """Cost of the loss head at `seq_length` tokens."""
