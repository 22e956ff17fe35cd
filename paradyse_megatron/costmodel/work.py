"""What a layer does, apart from how long that takes on any machine."""

from __future__ import annotations

from dataclasses import dataclass, replace

from paradyse_megatron.costmodel.curve import Curve
from paradyse_megatron.costmodel.polynomial import NOTHING, Polynomial

KINDS = ("gather", "exchange", "hop", "broadcast")
"""Messages: all-gather and reduce-scatter; all-to-all; send to a neighbour; broadcast and reduce."""


@dataclass(frozen=True)
class Pass:
    """Arithmetic and memory traffic of one direction, by length.

    Attributes:
        product_flops: floating-point operations of matrix products.
        attention_flops: of attention kernels, for causal pairs only.
        product_bytes: read and written in memory by both.
        moved_bytes: read and written by everything else.
    """

    product_flops: Polynomial = NOTHING
    attention_flops: Polynomial = NOTHING
    product_bytes: Polynomial = NOTHING
    moved_bytes: Polynomial = NOTHING

    def __add__(self, other: Pass) -> Pass:
        return Pass(
            self.product_flops + other.product_flops,
            self.attention_flops + other.attention_flops,
            self.product_bytes + other.product_bytes,
            self.moved_bytes + other.moved_bytes,
        )


@dataclass(frozen=True)
class Transfer:
    """Messages of one kind, by length.

    Attributes:
        kind: one of `KINDS`.
        num_peers: consecutive ranks among which they travel.
        forward_bytes, backward_bytes: that leave this rank.
        forward_calls, backward_calls: collectives or hops.
        share_beside_attention: that travels while attention is computed.
    """

    kind: str
    num_peers: int
    forward_bytes: Polynomial
    backward_bytes: Polynomial
    forward_calls: int
    backward_calls: int
    share_beside_attention: float = 0.0

    def recomputed(self) -> Transfer:
        """With all of forward once more in backward."""
        return replace(
            self,
            backward_bytes=self.forward_bytes + self.backward_bytes,
            backward_calls=self.forward_calls + self.backward_calls,
        )


@dataclass(frozen=True)
class Work:
    """What one layer does for one micro-batch on one rank.

    Attributes:
        forward, backward: computed.
        transfers: sent.
        saved_bytes, workspace_bytes, buffer_bytes: held, as `planner.cost.Cost`.
        recomputes_all: whether backward runs all of forward first.
    """

    forward: Pass
    backward: Pass
    transfers: tuple[Transfer, ...]
    saved_bytes: Curve
    workspace_bytes: Curve
    buffer_bytes: Curve
    recomputes_all: bool = False


@dataclass(frozen=True)
class PartWork:
    """What one part of a layer (attention, or MLP) does, as traced.

    Attributes:
        forward, backward: computed.
        transfers: sent.
        saved_bytes: kept from forward to backward.
        forward_peak_bytes, backward_peak_bytes: polynomials, the largest of which is the most that is held in that
            direction above what was there before the part began.
        buffer_bytes: of Megatron's buffers among that, which stay for the next part to use.
        gathered_weight_bytes: of weights that it gathers, whole.
        forward_kernels, backward_kernels: operations that read or write memory.
    """

    forward: Pass
    backward: Pass
    transfers: tuple[Transfer, ...]
    saved_bytes: Polynomial
    forward_peak_bytes: tuple[Polynomial, ...]
    backward_peak_bytes: tuple[Polynomial, ...]
    buffer_bytes: Polynomial
    gathered_weight_bytes: int = 0
    forward_kernels: int = 0
    backward_kernels: int = 0
