"""What one rank sends for one layer and micro-batch: closed forms, one function a strategy.

Symbols: t = s / P own tokens (`local_tokens`), b micro-batch (`batch`), h hidden, a heads, g key/value heads, d head
size, P ranks (`group_size`), W elements of the weights concerned. Counts are elements, whatever their type.

Backward sends 1.5 times the forward of `tp_sp` (all-gather of the output's gradient, all-gather of the input again,
reduce-scatter of the input's gradient: 3 instead of 2), as much as forward for exchanges, twice as much for weights
(gathered again, gradients reduce-scattered) and for travelling keys and values (they travel again, and so do their
gradients).

TP+SP and Ulysses with gathered weights send the same, forward and backward, where
10 t b h (P-1) = 3 W (P-1)/P + 4 (a+g) d t b (P-1)/P, that is s = 3 W / (10 h - 4 (a+g) d / P) for b = 1.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from paradyse_megatron.costmodel.shape import ModelShape
from paradyse_megatron.layouts.zigzag import num_chunks_sent
from paradyse_megatron.planner.option import Option


@dataclass(frozen=True)
class Sent:
    """Elements that leave a rank, and the number of collectives (or ring hops) that carry them.

    Attributes:
        forward, backward: elements.
        forward_calls, backward_calls: collectives and hops.
    """

    forward: int = 0
    backward: int = 0
    forward_calls: int = 0
    backward_calls: int = 0

    def __add__(self, other: Sent) -> Sent:
        return Sent(
            self.forward + other.forward,
            self.backward + other.backward,
            self.forward_calls + other.forward_calls,
            self.backward_calls + other.backward_calls,
        )

    def __sub__(self, part: Sent) -> Sent:
        return self + Sent(-part.forward, -part.backward, -part.forward_calls, -part.backward_calls)

    def recomputed(self) -> Sent:
        """With all of forward run once more during backward."""
        return self + Sent(backward=self.forward, backward_calls=self.forward_calls)


def tp_sp(shape: ModelShape, group_size: int, local_tokens: int, batch: int = 1) -> Sent:
    """Attention or MLP of `tp_sp`: all-gather of the input, reduce-scatter of the output, 2 t b h (P-1)."""
    hidden = local_tokens * batch * shape.hidden_size * (group_size - 1)
    return Sent(2 * hidden, 3 * hidden, 2, 3) if group_size > 1 else Sent()


def gathered_weights(num_weights: int, num_biases: int, group_size: int) -> Sent:
    """Two matrices and a bias (or none) gathered for a use and let go, W (P-1)/P; backward needs the bias no more."""
    if group_size == 1:
        return Sent()
    matrices = (num_weights - num_biases) * (group_size - 1) // group_size
    bias = num_biases * (group_size - 1) // group_size
    num_tensors = 1 if num_biases else 0
    return Sent(matrices + bias, 2 * matrices + bias, 2 + num_tensors, 4 + num_tensors)


def _qkv_biases(shape: ModelShape) -> int:
    return (shape.query_size + shape.key_value_size) * shape.add_bias


def gathered_mlp(shape: ModelShape, group_size: int, local_tokens: int, batch: int = 1) -> Sent:
    """MLP `gathered`: both matrices, and the first one's bias."""
    return gathered_weights(shape.mlp_weights, shape.fc1_size * shape.add_bias, group_size)


def ulysses(shape: ModelShape, group_size: int, local_tokens: int, batch: int = 1) -> Sent:
    """Attention `ulysses`: weights, and (2a + 2g) d t b (P-1)/P for q, k, v there and the output back."""
    weights = gathered_weights(shape.attention_weights, _qkv_biases(shape), group_size)
    of_a_token = 2 * shape.query_size + shape.key_value_size
    exchanged = of_a_token * local_tokens * batch * (group_size - 1) // group_size
    return weights + Sent(exchanged, exchanged, 2, 2) if group_size > 1 else Sent()


def ring(shape: ModelShape, group_size: int, local_tokens: int, batch: int = 1, rank: int | None = None) -> Sent:
    """Attention `ring`: weights, K/V blocks, and the hidden state to zigzag order and back.

    Args:
        rank: whose exchange with the zigzag order; None for the rank that sends most.
    """
    if group_size == 1:
        return Sent()
    weights = gathered_weights(shape.attention_weights, _qkv_biases(shape), group_size)
    hops = ring_hops(shape, group_size, local_tokens, batch)
    return weights + hops + zigzag_exchanges(shape, group_size, local_tokens, batch, rank)


def ring_hops(shape: ModelShape, group_size: int, local_tokens: int, batch: int = 1) -> Sent:
    """Keys and values once round the ring, 2 g d t b (P-1); in backward again, with as many elements of gradients."""
    hops = group_size - 1
    blocks = shape.key_value_size * local_tokens * batch * hops
    return Sent(blocks, 2 * blocks, hops, 2 * hops)


def zigzag_exchanges(
    shape: ModelShape, group_size: int, local_tokens: int, batch: int = 1, rank: int | None = None
) -> Sent:
    """The hidden state to zigzag order and back: 2 t b h times the share of the rank's chunks that belong elsewhere."""
    ranks = range(group_size) if rank is None else [rank]
    num_chunks = max(num_chunks_sent(each, group_size) for each in ranks)
    sent = 2 * num_chunks * (local_tokens // 2) * batch * shape.hidden_size
    return Sent(sent, sent, 2, 2)


ATTENTION: dict[str, Callable[..., Sent]] = {"tp_sp": tp_sp, "ulysses": ulysses, "ring": ring}
MLP: dict[str, Callable[..., Sent]] = {"tp_sp": tp_sp, "gathered": gathered_mlp}


def layer(option: Option, shape: ModelShape, group_size: int, local_tokens: int, batch: int = 1) -> Sent:
    """What one layer sends under `option`; for `ring`, on the rank that sends most."""
    attention = ATTENTION[option.attention](shape, group_size, local_tokens, batch)
    sent = attention + MLP[option.mlp](shape, group_size, local_tokens, batch)
    return sent.recomputed() if option.recompute == "full" else sent
