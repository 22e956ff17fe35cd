"""The work of a layer and of the loss head by arithmetic alone: FLOPs, bytes moved in memory, bytes sent, calls.

Exact for arithmetic and messages, an upper bound of memory, a rough count of memory traffic; at once for any shape
without experts. A trace (`paradyse profile --trace-only`) counts all of that on the layers themselves.
"""

from __future__ import annotations

from dataclasses import replace

from paradyse_megatron.costmodel import activations, head_bytes, messages, volumes
from paradyse_megatron.costmodel.curve import Curve
from paradyse_megatron.costmodel.messages import Message
from paradyse_megatron.costmodel.polynomial import NOTHING, TOKEN_PAIRS, TOKENS, Polynomial
from paradyse_megatron.costmodel.setting import Setting
from paradyse_megatron.costmodel.shape import ModelShape
from paradyse_megatron.costmodel.work import Pass, Transfer, Work
from paradyse_megatron.layouts.heads import CHUNKS_WANTED
from paradyse_megatron.layouts.subgroups import ulysses_degree
from paradyse_megatron.planner.option import Option

FLASH_BACKWARD = 2.5  # backward of flash attention over its forward: five products instead of two (arXiv 2307.08691)
SCORE_PASSES = 8  # reads and writes of the s x s scores in a forward that materialises them; as many in its backward
ELEMENTWISE_PASSES = 2  # a saved byte is written and read in forward; backward does the same to it and to its gradient

WHOLE_HEAD_PASSES = (12, 5)
"""Times that a logit is read or written in accumulator precision (cast, largest, difference, exponential, sum,
quotient; product with the gradient, cast) and in the model's (product, cast; cast, two products)."""
CHUNKED_HEAD_PASSES = (15, 7)
"""The same with the logits computed again: no quotient, but cast, difference and exponential twice."""

KEEPS_ALL = {**dict.fromkeys(CHUNKS_WANTED, "ulysses"), "metp": "ring", "streamed": "gathered"}
"""For strategies that drop intermediate results and compute them again: the strategy that keeps them."""


def layer_work(option: Option, setting: Setting) -> Work:
    """Of one layer under `option`."""
    forward, backward = (
        _linear_layers(option, setting)[direction]
        + _attention_core(option, setting)[direction]
        + _elementwise(option, setting)[direction]
        for direction in (0, 1)
    )
    held, sent = activations.layer(option, setting), transfers(option, setting)
    is_full = option.recompute == "full"
    if option.recompute == "selective":
        backward, sent = backward + _core_again(option, setting), tuple(_hops_again(each, option) for each in sent)
    if is_full:
        backward, sent = forward + backward, tuple(each.recomputed() for each in sent)
    buffer = Curve(activations.buffer(option, setting))
    return Work(forward, backward, sent, Curve((held.saved,)), Curve((held.workspace,)), buffer, is_full)


def _linear_layers(option: Option, setting: Setting) -> tuple[Pass, Pass]:
    """2 FLOPs a weight and token, twice that in backward, and the weights moved through memory.

    Gathered weights are written and read whole, and so is their gradient; `tp_sp` reads and writes its shard.
    """
    shape = setting.shape
    flops = setting.rows * (2 * (shape.attention_weights + shape.mlp_weights))
    again = setting.rows * (2 * _recomputed_weights(option, shape))
    moved = _moved_weights(option.attention, shape.attention_weights, setting)
    moved += _moved_weights(option.mlp, shape.mlp_weights, setting)
    num_bytes = Polynomial(moved * shape.bytes_per_element)
    forward = Pass(product_flops=flops, product_bytes=num_bytes)
    return forward, Pass(product_flops=2 * flops + again, product_bytes=2 * num_bytes)


def _recomputed_weights(option: Option, shape: ModelShape) -> int:
    """Elements of the weights whose product is computed again in backward, whatever the option's recompute."""
    projection = (shape.query_size + shape.key_value_size) * shape.hidden_size
    return projection * (option.attention in activations.MANY_ROUNDS) + shape.fc1_size * shape.hidden_size * (
        option.mlp == "streamed"
    )


def _moved_weights(strategy: str, num_elements: int, setting: Setting) -> float:
    """Elements read or written in one forward."""
    return num_elements / setting.group_size if strategy == "tp_sp" else 2 * num_elements


def _attention_core(option: Option, setting: Setting) -> tuple[Pass, Pass]:
    """4 a d FLOPs for each of the s^2 / 2 causal pairs; all s^2, and the scores in memory, where materialised."""
    all_pairs = TOKEN_PAIRS * (4 * setting.shape.query_size * setting.batch / setting.group_size)
    if option.attention == "tp_sp" and setting.unfused:
        scores = setting.scores(SCORE_PASSES)
        forward = Pass(product_flops=all_pairs, moved_bytes=scores)
        return forward, Pass(product_flops=2 * all_pairs, moved_bytes=scores)
    return Pass(attention_flops=all_pairs / 2), Pass(attention_flops=all_pairs * (FLASH_BACKWARD / 2))


def _core_again(option: Option, setting: Setting) -> Pass:
    """The core's forward, and the reads and writes of what was dropped."""
    once = Option(option.attention, option.mlp)
    dropped = activations.layer(once, setting).saved.excess_over(activations.layer(option, setting).saved)
    return _attention_core(option, setting)[0] + Pass(moved_bytes=_passes(dropped))


def _hops_again(transfer: Transfer, option: Option) -> Transfer:
    """Where the core itself sends, its messages run beside attention."""
    in_core = option.attention in volumes.IN_CORE and transfer.kind == "hop"
    return transfer.recomputed() if in_core else transfer


def _elementwise(option: Option, setting: Setting) -> tuple[Pass, Pass]:
    """Norms, activation, residual: bound by memory, so counted by the bytes that they keep per token.

    A strategy that keeps less does as much in forward as the one of `KEEPS_ALL`, and does it again in backward.
    """
    keeps_all = Option(KEEPS_ALL.get(option.attention, option.attention), KEEPS_ALL.get(option.mlp, option.mlp))
    kept = activations.layer(keeps_all, setting).saved
    dropped = kept.excess_over(activations.layer(Option(option.attention, option.mlp), setting).saved)
    sums = setting.precise(_accumulated(option, setting))
    once, again = _passes(kept), _passes(dropped)
    return Pass(moved_bytes=once + sums), Pass(moved_bytes=2 * once + again + sums)


def _passes(of_bytes: Polynomial) -> Polynomial:
    """Memory traffic of elementwise work that keeps so many bytes; what grows with s^2 is counted with the core."""
    return Polynomial(per_token=of_bytes.per_token) * ELEMENTWISE_PASSES


def _accumulated(option: Option, setting: Setting) -> int:
    """Accumulators' elements of a row that are read or written, in forward and again in backward.

    Around a ring of n ranks, partial results are merged n - 1 times, in three passes. A sum over owners or over
    chunks of heads takes two for each of them.
    """
    shape, num_ranks = setting.shape, setting.group_size
    degree = ulysses_degree(num_ranks, shape.num_query_groups, setting.ranks_per_node)
    ring_size = {"ring": num_ranks, "metp": num_ranks, "usp": num_ranks // degree}
    merges = ring_size.get(option.attention, 1) - 1
    of_attention = activations.rounds(option.attention, setting) * (option.attention in activations.MANY_ROUNDS)
    num_sums = of_attention + num_ranks * (option.mlp == "streamed")
    return 3 * merges * shape.query_size + 2 * num_sums * shape.hidden_size


def transfers(option: Option, setting: Setting) -> tuple[Transfer, ...]:
    """What `volumes` says is sent, in bytes by length."""
    none, two = (_messages(option, setting, local_tokens) for local_tokens in (0, 2))
    return tuple(_transfer(short, long, setting) for short, long in zip(none, two, strict=True))


def _messages(option: Option, setting: Setting, local_tokens: int) -> list[Message]:
    place = setting.shape, setting.group_size, local_tokens, setting.batch
    attention = messages.attention_messages(option.attention, *place, setting.ranks_per_node)
    return attention + messages.mlp_messages(option.mlp, *place)


def _transfer(short: Message, long: Message, setting: Setting) -> Transfer:
    """From a message at no and at two own tokens; it is a line, so two points give it exactly."""
    num_bytes = setting.shape.bytes_per_element

    def line(at_none: int, at_two: int) -> Polynomial:
        return num_bytes * Polynomial(at_none, (at_two - at_none) / 2 / setting.group_size)

    # Half of the elements of a hop's backward are gradients, in accumulator precision.
    backward_factor = (1 + max(4, num_bytes) / num_bytes) / 2 if short.kind == "hop" else 1.0
    return Transfer(
        short.kind,
        short.num_peers,
        line(short.sent.forward, long.sent.forward),
        backward_factor * line(short.sent.backward, long.sent.backward),
        long.sent.forward_calls,
        long.sent.backward_calls,
        short.share_beside_attention,
    )


def head_work(setting: Setting, chunked: bool) -> Work:
    """Of output projection and vocabulary-parallel cross entropy, forward and backward in one.

    In chunks the logits are computed twice, and each chunk's gradient is added to the sum of the weight's.
    """
    flops_of_a_weight, passes = (8, CHUNKED_HEAD_PASSES) if chunked else (6, WHOLE_HEAD_PASSES)
    shape, precise = setting.shape, max(4, setting.shape.bytes_per_element)
    logits = TOKENS * (setting.batch * head_bytes.num_columns(setting))
    moved = logits * (passes[0] * precise + passes[1] * shape.bytes_per_element)
    if chunked:
        copied = 0 if precise == shape.bytes_per_element else shape.bytes_per_element
        weight = head_bytes.num_columns(setting) * shape.hidden_size
        moved += TOKENS * (setting.batch * weight * 2 * (precise + copied) / head_bytes.chunk_tokens(setting))
    computed = Pass(product_flops=logits * (flops_of_a_weight * shape.hidden_size), moved_bytes=moved)
    held = head_bytes.chunked(setting) if chunked else head_bytes.whole(setting)
    buffer = Curve((NOTHING if chunked else head_bytes.whole_buffer(setting),))
    return Work(Pass(), computed, _head_transfers(setting), Curve((held,)), Curve((NOTHING,)), buffer)


def _head_transfers(setting: Setting) -> tuple[Transfer, ...]:
    """The input gathered twice, its gradient scattered: what `tp_sp` sends in backward."""
    option = Option("tp_sp", "tp_sp")
    of_mlp = transfers(option, setting)[1:]
    return tuple(replace(each, forward_bytes=NOTHING, forward_calls=0) for each in of_mlp)
