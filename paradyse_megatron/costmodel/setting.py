"""A layer and how it is cut, with the bytes that follow from these alone."""

from __future__ import annotations

from dataclasses import dataclass

from paradyse_megatron.costmodel.polynomial import TOKEN_PAIRS, TOKENS, Polynomial
from paradyse_megatron.costmodel.shape import ModelShape


@dataclass(frozen=True)
class Setting:
    """A layer, and how it is cut.

    Attributes:
        shape: of the model.
        group_size: P.
        batch: micro-batch size b.
        unfused: whether Megatron's local layers run, whose attention core stores s x s scores and whose RMSNorm is
            several operations, each of which keeps something.
        ranks_per_node: where the group spans nodes; None where it does not.
    """

    shape: ModelShape
    group_size: int
    batch: int
    unfused: bool
    ranks_per_node: int | None = None

    @property
    def rows(self) -> Polynomial:
        """Own tokens, t b."""
        return TOKENS * (self.batch / self.group_size)

    def elements(self, of_a_row: float) -> Polynomial:
        """Bytes of so many elements for each row, in the model's dtype."""
        return self.rows * (of_a_row * self.shape.bytes_per_element)

    def precise(self, of_a_row: float) -> Polynomial:
        """As `elements`, in the dtype of accumulators: at least fp32."""
        return self.rows * (of_a_row * max(4, self.shape.bytes_per_element))

    def scores(self, num_copies: float) -> Polynomial:
        """Bytes of s x s attention scores for the rank's own heads, in the model's dtype."""
        heads = self.shape.num_attention_heads / self.group_size * self.batch
        return TOKEN_PAIRS * (heads * num_copies * self.shape.bytes_per_element)

    def whole_weights(self, num_elements: int) -> Polynomial:
        """Bytes of gathered weights and of their gradient before it is scattered; on one rank of the gradient only."""
        copies = 2 if self.group_size > 1 else 1
        return Polynomial(copies * num_elements * self.shape.bytes_per_element)

    def streamed_weights(self, num_elements: int) -> Polynomial:
        """Bytes of two owners' shards, two owners' gradients and the own one; on one rank of the gradient only."""
        copies = 5 if self.group_size > 1 else 1
        return copies * self.shard(num_elements)

    def shard(self, num_elements: int) -> Polynomial:
        """Bytes of the gradient of the rank's share of weights, before it is added to the main gradient."""
        return Polynomial(num_elements * self.shape.bytes_per_element / self.group_size)

    def norm(self) -> Polynomial:
        """Bytes that a norm keeps: input, output, a row's mean and deviation; unfused RMSNorm the normalised input too.

        In half precision unfused RMSNorm keeps input and normalised input in fp32. RMSNorm has no mean.
        """
        hidden, statistics = self.shape.hidden_size, self.precise(1 if self.shape.rms_norm else 2)
        if not (self.unfused and self.shape.rms_norm):
            return self.elements(2 * hidden) + statistics
        return self.elements(hidden) + self.precise(2 * hidden) + statistics

    def whole_hidden(self) -> Polynomial:
        """Bytes of the gathered input [s, b, h] and of its gradient."""
        return 2 * self.gathered_hidden()

    def gathered_hidden(self) -> Polynomial:
        """Bytes of the gathered input [s, b, h]."""
        return self.elements(self.shape.hidden_size * self.group_size)
