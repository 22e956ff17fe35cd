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

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from paradyse_megatron.costmodel.shape import ModelShape
from paradyse_megatron.layouts.heads import CHUNKS_WANTED, HeadDealing, NumChunks, num_head_chunks
from paradyse_megatron.layouts.subgroups import ulysses_degree
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
        return self + self.forward_in_backward()

    def forward_in_backward(self) -> Sent:
        """Forward alone, run during backward."""
        return Sent(backward=self.forward, backward_calls=self.forward_calls)


def tp_sp(shape: ModelShape, group_size: int, local_tokens: int, batch: int = 1) -> Sent:
    """Attention or MLP of `tp_sp`: all-gather of the input, reduce-scatter of the output, 2 t b h (P-1)."""
    hidden = local_tokens * batch * shape.hidden_size * (group_size - 1)
    return Sent(2 * hidden, 3 * hidden, 2, 3) if group_size > 1 else Sent()


def tp_sp_attention(shape: ModelShape, group_size: int, local_tokens: int, batch: int = 1) -> Sent:
    """Attention of `tp_sp`; where ranks share key/value heads, Megatron also gathers q, k, v, (a + 2g) d t b (P-1)."""
    shared = shape.num_query_groups < group_size
    gathered = (shape.query_size + shape.key_value_size) * local_tokens * batch * (group_size - 1) * shared
    return tp_sp(shape, group_size, local_tokens, batch) + Sent(gathered, gathered, int(shared), int(shared))


def gathered_weights(num_weights: int, num_biases: int, group_size: int) -> Sent:
    """Two matrices and a bias (or none) gathered for a use and let go, W (P-1)/P; backward needs the bias no more."""
    if group_size == 1:
        return Sent()
    matrices = (num_weights - num_biases) * (group_size - 1) // group_size
    bias = num_biases * (group_size - 1) // group_size
    num_tensors = 1 if num_biases else 0
    return Sent(matrices + bias, 2 * matrices + bias, 2 + num_tensors, 4 + num_tensors)


def qkv_biases(shape: ModelShape) -> int:
    """Elements of the q, k, v projection's bias, of all heads; 0 for models without biases."""
    return (shape.query_size + shape.key_value_size) * shape.add_bias


def gathered_mlp(shape: ModelShape, group_size: int, local_tokens: int, batch: int = 1) -> Sent:
    """MLP `gathered`: both matrices, and the first one's bias."""
    return gathered_weights(shape.mlp_weights, shape.fc1_size * shape.add_bias, group_size)


def ulysses(shape: ModelShape, group_size: int, local_tokens: int, batch: int = 1) -> Sent:
    """Attention `ulysses`: weights, and exchanges there and back."""
    weights = gathered_weights(shape.attention_weights, qkv_biases(shape), group_size)
    return weights + exchanges(shape, group_size, local_tokens, batch)


def exchanges(shape: ModelShape, num_peers: int, local_tokens: int, batch: int = 1) -> Sent:
    """q, k, v to all tokens of own heads and the output back, (2a + 2g') d t b (u-1)/u among u peers.

    With g' = max(g, u) key/value heads, as peers that share one get a copy each.
    """
    if num_peers == 1:
        return Sent()
    of_a_token = 2 * (shape.num_attention_heads + max(shape.num_query_groups, num_peers)) * shape.head_dim
    exchanged = of_a_token * local_tokens * batch * (num_peers - 1) // num_peers
    return Sent(exchanged, exchanged, 2, 2)


def upipe(
    shape: ModelShape, group_size: int, local_tokens: int, batch: int = 1, wanted: NumChunks = "fewest_bytes"
) -> Sent:
    """Attention in `wanted` chunks of heads: weights as `ulysses`, the bias in backward again; the same exchanges.

    Backward exchanges twice the forward: q, k, v again and the output's gradient, then gradients of q, k, v and the
    output.
    """
    if group_size == 1:
        return Sent()
    bias = qkv_biases(shape) * (group_size - 1) // group_size
    weights = gathered_weights(shape.attention_weights, qkv_biases(shape), group_size)
    return (
        weights
        + Sent(backward=bias, backward_calls=int(bias > 0))
        + upipe_exchanges(shape, group_size, local_tokens, batch, wanted)
    )


def upipe_exchanges(
    shape: ModelShape, group_size: int, local_tokens: int, batch: int = 1, wanted: NumChunks = "fewest_bytes"
) -> Sent:
    """Two exchanges a chunk, each way."""
    once = exchanges(shape, group_size, local_tokens, batch)
    calls = 2 * upipe_chunks(shape, group_size, wanted)
    return Sent(once.forward, 2 * once.forward, calls, calls)


def upipe_chunks(shape: ModelShape, group_size: int, wanted: NumChunks = "fewest_bytes") -> int:
    """The number of chunks that are made where so many are wanted."""
    dealing = HeadDealing(shape.num_attention_heads, shape.num_query_groups, group_size)
    return num_head_chunks(dealing, wanted)


def upipe_hidden(
    shape: ModelShape, group_size: int, local_tokens: int, batch: int = 1, wanted: NumChunks = "fewest_bytes"
) -> Sent:
    """Of these exchanges those that run beside the attention of another chunk: all but the first and the last."""
    all_of_them = upipe_exchanges(shape, group_size, local_tokens, batch, wanted)
    num_chunks = upipe_chunks(shape, group_size, wanted)
    return Sent(*(count * (num_chunks - 1) // num_chunks for count in dataclasses.astuple(all_of_them)))


def usp(shape: ModelShape, group_size: int, local_tokens: int, batch: int = 1, rank: int | None = None) -> Sent:
    """Attention `usp`: weights, exchanges in sub-groups of u, K/V round rings of P/u, the hidden state to zigzag."""
    if group_size == 1:
        return Sent()
    degree = ulysses_degree(group_size, shape.num_query_groups)
    weights = gathered_weights(shape.attention_weights, qkv_biases(shape), group_size)
    inside = exchanges(shape, degree, local_tokens, batch)
    across = usp_hops(shape, group_size, local_tokens, batch)
    return weights + inside + across + zigzag_exchanges(shape, group_size, local_tokens, batch, rank, degree)


def usp_hops(shape: ModelShape, group_size: int, local_tokens: int, batch: int = 1) -> Sent:
    """As `ring_hops` in a ring of P/u: u times the tokens and 1/u of the key/value heads."""
    return ring_hops(shape, group_size // ulysses_degree(group_size, shape.num_query_groups), local_tokens, batch)


def ring(shape: ModelShape, group_size: int, local_tokens: int, batch: int = 1, rank: int | None = None) -> Sent:
    """Attention `ring`: weights, K/V blocks, and the hidden state to zigzag order and back.

    Args:
        rank: whose exchange with the zigzag order; None for the rank that sends most.
    """
    if group_size == 1:
        return Sent()
    weights = gathered_weights(shape.attention_weights, qkv_biases(shape), group_size)
    hops = ring_hops(shape, group_size, local_tokens, batch)
    return weights + hops + zigzag_exchanges(shape, group_size, local_tokens, batch, rank)


def ring_hops(shape: ModelShape, group_size: int, local_tokens: int, batch: int = 1) -> Sent:
    """Keys and values once round the ring, 2 g d t b (P-1); in backward again, with as many elements of gradients."""
    hops = group_size - 1
    blocks = shape.key_value_size * local_tokens * batch * hops
    return Sent(blocks, 2 * blocks, hops, 2 * hops)


def streamed_weights(num_weights: int, num_tensors: int, group_size: int) -> Sent:
    """Shards broadcast owner after owner, W (P-1)/P; backward needs all of them again, and reduces their gradients."""
    if group_size == 1:
        return Sent()
    sent, calls = num_weights * (group_size - 1) // group_size, num_tensors * group_size
    return Sent(sent, 2 * sent, calls, 2 * calls)


def streamed_mlp(shape: ModelShape, group_size: int, local_tokens: int, batch: int = 1) -> Sent:
    """MLP `streamed`: both matrices, and the first one's bias."""
    return streamed_weights(shape.mlp_weights, 2 + shape.add_bias, group_size)


def metp(shape: ModelShape, group_size: int, local_tokens: int, batch: int = 1, rank: int | None = None) -> Sent:
    """Attention `metp`: streamed weights, and otherwise what `ring` sends; `rank` as there."""
    if group_size == 1:
        return Sent()
    weights = streamed_weights(shape.attention_weights, 2 + shape.add_bias, group_size)
    hops = metp_hops(shape, group_size, local_tokens, batch)
    return weights + hops + zigzag_exchanges(shape, group_size, local_tokens, batch, rank)


def metp_hops(shape: ModelShape, group_size: int, local_tokens: int, batch: int = 1) -> Sent:
    """As many elements as `ring_hops`, in one round a head group, of which there are P."""
    whole = ring_hops(shape, group_size, local_tokens, batch)
    return Sent(whole.forward, whole.backward, group_size * whole.forward_calls, group_size * whole.backward_calls)


def zigzag_exchanges(
    shape: ModelShape,
    group_size: int,
    local_tokens: int,
    batch: int = 1,
    rank: int | None = None,
    subgroup_size: int = 1,
) -> Sent:
    """The hidden state to zigzag order and back: 2 t b h times the share of the rank's chunks that belong elsewhere."""
    if subgroup_size == group_size:
        return Sent()
    ranks = range(group_size) if rank is None else [rank]
    num_chunks = max(num_chunks_sent(each, group_size, subgroup_size) for each in ranks)
    sent = 2 * num_chunks * (local_tokens // 2) * batch * shape.hidden_size
    return Sent(sent, sent, 2, 2)


ATTENTION: dict[str, Callable[..., Sent]] = {
    "tp_sp": tp_sp_attention,
    "ulysses": ulysses,
    "ring": ring,
    "usp": usp,
    **{name: partial(upipe, wanted=wanted) for name, wanted in CHUNKS_WANTED.items()},
    "metp": metp,
}
MLP: dict[str, Callable[..., Sent]] = {"tp_sp": tp_sp, "gathered": gathered_mlp, "streamed": streamed_mlp}
HIDDEN: dict[str, Callable[..., Sent]] = {
    "ring": ring_hops,
    "usp": usp_hops,
    **{name: partial(upipe_hidden, wanted=wanted) for name, wanted in CHUNKS_WANTED.items()},
    "metp": metp_hops,
}
"""What travels beside compute: each hop of a ring beside a block's attention, an exchange beside another chunk's."""

IN_CORE: dict[str, Callable[..., Sent]] = {"usp": usp_hops, "metp": metp_hops}
"""What the attention core itself sends in forward, and again when `selective` recomputes it."""


def layer(option: Option, shape: ModelShape, group_size: int, local_tokens: int, batch: int = 1) -> Sent:
    """What one layer sends under `option`; for `ring`, `usp` and `metp`, on the rank that sends most."""
    attention = ATTENTION[option.attention](shape, group_size, local_tokens, batch)
    sent = attention + MLP[option.mlp](shape, group_size, local_tokens, batch)
    if option.recompute == "full":
        return sent.recomputed()
    again = IN_CORE.get(option.attention) if option.recompute == "selective" else None
    return sent if again is None else sent + again(shape, group_size, local_tokens, batch).forward_in_backward()
