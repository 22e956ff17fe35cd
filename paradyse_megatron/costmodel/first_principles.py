"""A cost model from arithmetic alone: FLOPs, bytes moved in memory, bytes sent, calls.

Good enough that plans differ by length and that nothing is measured before the first step; traced and measured costs
replace it piece by piece. Time is the sum of its parts, but for a share of what a strategy sends beside compute: ring
hops, exchanges of chunks.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from paradyse_megatron.costmodel import activations, head_bytes, volumes
from paradyse_megatron.costmodel.activations import Setting
from paradyse_megatron.costmodel.cluster import Cluster
from paradyse_megatron.costmodel.model import CostModel, HeadCosts, OptionCosts
from paradyse_megatron.costmodel.polynomial import TOKEN_PAIRS, TOKENS, Polynomial
from paradyse_megatron.costmodel.shape import ModelShape
from paradyse_megatron.costmodel.support import excluded_options
from paradyse_megatron.layouts.padding import positive_whole
from paradyse_megatron.layouts.subgroups import ulysses_degree
from paradyse_megatron.planner.option import Option, all_options

FLASH_BACKWARD = 2.5  # backward of flash attention over its forward: five products instead of two (arXiv 2307.08691)
SCORE_PASSES = 8  # reads and writes of the s x s scores in a forward that materialises them; as many in its backward
ELEMENTWISE_PASSES = 2  # a saved byte is written and read in forward; backward does the same to it and to its gradient

WHOLE_HEAD_PASSES = (12, 5)
"""Times that a logit is read or written in accumulator precision (cast, largest, difference, exponential, sum,
quotient; product with the gradient, cast) and in the model's (product, cast; cast, two products)."""
CHUNKED_HEAD_PASSES = (15, 7)
"""The same with the logits computed again: no quotient, but cast, difference and exponential twice."""

KEEPS_ALL = {"upipe": "ulysses", "metp": "ring", "streamed": "gathered"}
"""For strategies that drop intermediate results and compute them again: the strategy that keeps them."""


def estimate(
    shape: ModelShape,
    cluster: Cluster,
    group_size: int,
    options: Sequence[str] | None = None,
    micro_batch_size: int = 1,
) -> CostModel:
    """Costs of every option in `options` that the shape can run; None means all that this version can run.

    Raises:
        ValueError: an option that cannot be parsed, or none that the shape can run.
    """
    group_size = positive_whole(group_size, "The group size", "rank")
    batch = positive_whole(micro_batch_size, "The micro-batch size", "sequence")
    asked = all_options() if options is None else tuple(Option.parse(text) for text in options)
    excluded = excluded_options(shape, group_size, cluster.attention_materialised)
    usable = [option for option in asked if str(option) not in excluded]
    if not usable:
        reasons = "; ".join(dict.fromkeys(excluded[str(option)] for option in asked)) or "none was asked for"
        raise ValueError(f"No option can run this model on {group_size} ranks: {reasons}.")
    setting = Setting(shape, group_size, batch, cluster.attention_materialised)
    return CostModel(
        shape=shape,
        group_size=group_size,
        micro_batch_size=batch,
        source="first principles",
        costs={str(option): _option_costs(option, setting, cluster) for option in usable},
        head=_whole_head(setting, cluster),
        chunked_head=_chunked_head(setting, cluster),
    )


@dataclass(frozen=True)
class _Milliseconds:
    """Of one layer by length, apart for the two directions, as `full` recompute runs forward twice."""

    forward: Polynomial
    backward: Polynomial

    def __add__(self, other: _Milliseconds) -> _Milliseconds:
        return _Milliseconds(self.forward + other.forward, self.backward + other.backward)


def _option_costs(option: Option, setting: Setting, cluster: Cluster) -> OptionCosts:
    parts = (
        _linear_layers(option, setting, cluster)
        + _attention_core(option, setting, cluster)
        + _elementwise(option, setting, cluster)
        + _communication(option, setting, cluster)
    )
    overhead = Polynomial(cluster.layer_overhead_us / 1000)
    recomputed = {
        "none": Polynomial(),
        "selective": _core_again(option, setting, cluster),
        "full": parts.forward + overhead / 3,
    }[option.recompute]
    held = activations.layer(option, setting)
    return OptionCosts(parts.forward + parts.backward + overhead + recomputed, held.saved, held.workspace)


def _linear_layers(option: Option, setting: Setting, cluster: Cluster) -> _Milliseconds:
    """2 FLOPs a weight and token, twice that in backward, and the weights moved through memory.

    Gathered weights are written and read whole, and so is their gradient; `tp_sp` reads and writes its shard.
    """
    shape, rate = setting.shape, cluster.flops_per_ms(setting.shape.dtype)
    all_weights = shape.attention_weights + shape.mlp_weights
    compute = setting.rows * (2 * all_weights / rate)
    recomputed = setting.rows * (2 * _recomputed_weights(option, shape) / rate)
    moved = _moved_weights(option.attention, shape.attention_weights, setting) + _moved_weights(
        option.mlp, shape.mlp_weights, setting
    )
    memory = Polynomial(moved * shape.bytes_per_element) / _bytes_per_ms(cluster)
    return _Milliseconds(compute + memory, 2 * compute + recomputed + 2 * memory)


def _recomputed_weights(option: Option, shape: ModelShape) -> int:
    """Elements of the weights whose product is computed again in backward, whatever the option's recompute."""
    projection = (shape.query_size + shape.key_value_size) * shape.hidden_size
    return projection * (option.attention in ("upipe", "metp")) + shape.fc1_size * shape.hidden_size * (
        option.mlp == "streamed"
    )


def _moved_weights(strategy: str, num_elements: int, setting: Setting) -> float:
    """Elements read or written in one forward."""
    return num_elements / setting.group_size if strategy == "tp_sp" else 2 * num_elements


def _attention_core(option: Option, setting: Setting, cluster: Cluster) -> _Milliseconds:
    """4 a d FLOPs for each of the s^2 / 2 causal pairs; all s^2, and the scores in memory, where materialised."""
    shape, rate = setting.shape, cluster.flops_per_ms(setting.shape.dtype)
    all_pairs = TOKEN_PAIRS * (4 * shape.query_size * setting.batch / setting.group_size / rate)
    if option.attention == "tp_sp" and setting.unfused:
        memory = setting.scores(SCORE_PASSES) / _bytes_per_ms(cluster)
        return _Milliseconds(all_pairs + memory, 2 * all_pairs + memory)
    return _Milliseconds(all_pairs / 2, all_pairs * (FLASH_BACKWARD / 2))


def _core_again(option: Option, setting: Setting, cluster: Cluster) -> Polynomial:
    """The core's forward: attention, its hops where it is a ring, and the reads and writes of what was dropped."""
    once = Option(option.attention, option.mlp)
    dropped = activations.layer(once, setting).saved.excess_over(activations.layer(option, setting).saved)
    time = _attention_core(option, setting, cluster).forward + _passes(dropped, cluster)
    if option.attention not in volumes.IN_CORE or setting.group_size == 1:
        return time
    hops = volumes.IN_CORE[option.attention]
    sent = _sending(lambda tokens: hops(setting.shape, setting.group_size, tokens, setting.batch), setting, cluster)
    return time + (1 - cluster.hop_overlap_fraction) * sent.forward


def _passes(of_bytes: Polynomial, cluster: Cluster) -> Polynomial:
    """Time of elementwise work that keeps so many bytes; what grows with s^2 are scores, counted with the core."""
    return Polynomial(per_token=of_bytes.per_token) * (ELEMENTWISE_PASSES / _bytes_per_ms(cluster))


def _elementwise(option: Option, setting: Setting, cluster: Cluster) -> _Milliseconds:
    """Norms, activation, residual: bound by memory, so counted by the bytes that they keep per token.

    A strategy that keeps less does as much in forward as the one of `KEEPS_ALL`, and does it again in backward.
    """
    keeps_all = Option(KEEPS_ALL.get(option.attention, option.attention), KEEPS_ALL.get(option.mlp, option.mlp))
    kept = activations.layer(keeps_all, setting).saved
    dropped = kept.excess_over(activations.layer(Option(option.attention, option.mlp), setting).saved)
    passes = setting.precise(_accumulated(option, setting)) / _bytes_per_ms(cluster)
    once, again = _passes(kept, cluster), _passes(dropped, cluster)
    return _Milliseconds(once + passes, 2 * once + again + passes)


def _accumulated(option: Option, setting: Setting) -> int:
    """Accumulators' elements of a row that are read or written, in forward and again in backward.

    Around a ring of n ranks, partial results are merged n - 1 times, in three passes. A sum over owners or over
    chunks of heads takes two for each of them.
    """
    shape, num_ranks = setting.shape, setting.group_size
    ring_size = {
        "ring": num_ranks,
        "metp": num_ranks,
        "usp": num_ranks // ulysses_degree(num_ranks, shape.num_query_groups),
    }
    merges = ring_size.get(option.attention, 1) - 1
    summands = {"metp": num_ranks, "streamed": num_ranks, "upipe": volumes.upipe_chunks(shape, num_ranks)}
    num_sums = summands.get(option.attention, 0) + summands.get(option.mlp, 0)
    return 3 * merges * shape.query_size + 2 * num_sums * shape.hidden_size


def _communication(option: Option, setting: Setting, cluster: Cluster) -> _Milliseconds:
    """Elements sent over the link's bandwidth, and a latency for each call; less what hides behind compute."""
    place = setting.shape, setting.group_size
    once = Option(option.attention, option.mlp)
    hidden_of = volumes.HIDDEN.get(option.attention)
    if hidden_of is None or setting.group_size == 1:
        return _sending(lambda tokens: volumes.layer(once, *place, tokens, setting.batch), setting, cluster)
    hidden = _sending(lambda tokens: hidden_of(*place, tokens, setting.batch), setting, cluster)
    rest = _sending(
        lambda tokens: volumes.layer(once, *place, tokens, setting.batch) - hidden_of(*place, tokens, setting.batch),
        setting,
        cluster,
    )
    exposed = 1 - cluster.hop_overlap_fraction
    precise = max(4, setting.shape.bytes_per_element) / setting.shape.bytes_per_element
    # Half of the elements of a ring's backward are gradients, in fp32.
    backward_factor = 1 if option.attention == "upipe" else (1 + precise) / 2
    return rest + _Milliseconds(exposed * hidden.forward, exposed * backward_factor * hidden.backward)


def _sending(sent: Callable[[int], volumes.Sent], setting: Setting, cluster: Cluster) -> _Milliseconds:
    """Time of what a function of t says is sent; it is a line, so two points give it exactly."""
    none, two = sent(0), sent(2)
    ms_per_element = setting.shape.bytes_per_element * 1000 / cluster.link_bandwidth_bytes_per_s
    latency_ms = cluster.collective_latency_us / 1000

    def line(at_none: int, at_two: int, calls: int) -> Polynomial:
        per_token = (at_two - at_none) / 2 / setting.group_size * ms_per_element
        return Polynomial(at_none * ms_per_element + calls * latency_ms, per_token)

    return _Milliseconds(
        line(none.forward, two.forward, none.forward_calls),
        line(none.backward, two.backward, none.backward_calls),
    )


def _whole_head(setting: Setting, cluster: Cluster) -> HeadCosts:
    """Output projection on the rank's share of the vocabulary, and the vocabulary-parallel cross entropy."""
    milliseconds = _head_compute(6, WHOLE_HEAD_PASSES, setting, cluster) + _head_sending(setting, cluster)
    return HeadCosts(milliseconds, head_bytes.whole(setting))


def _chunked_head(setting: Setting, cluster: Cluster) -> HeadCosts:
    """As `_whole_head`, with the logits computed twice; and for each chunk three collectives and a pass over the sum
    of the weight's gradient, to which the chunk's is added."""
    shape, tokens = setting.shape, head_bytes.chunk_tokens(setting)
    precise = max(4, shape.bytes_per_element)
    copied = 0 if precise == shape.bytes_per_element else shape.bytes_per_element
    weight = head_bytes.num_columns(setting) * shape.hidden_size
    of_a_chunk = weight * 2 * (precise + copied) / _bytes_per_ms(cluster)
    if setting.group_size > 1:
        of_a_chunk += 3 * cluster.collective_latency_us / 1000
    milliseconds = _head_compute(8, CHUNKED_HEAD_PASSES, setting, cluster) + _head_sending(setting, cluster)
    return HeadCosts(milliseconds + TOKENS * (setting.batch * of_a_chunk / tokens), head_bytes.chunked(setting))


def _head_compute(flops_of_a_weight: int, passes: tuple[int, int], setting: Setting, cluster: Cluster) -> Polynomial:
    """Products, and the logits' way through memory; `passes` counts accesses in accumulator and in model precision."""
    shape = setting.shape
    logits = TOKENS * (setting.batch * head_bytes.num_columns(setting))
    moved = passes[0] * max(4, shape.bytes_per_element) + passes[1] * shape.bytes_per_element
    flops = flops_of_a_weight * shape.hidden_size
    return logits * (flops / cluster.flops_per_ms(shape.dtype) + moved / _bytes_per_ms(cluster))


def _head_sending(setting: Setting, cluster: Cluster) -> Polynomial:
    """The input gathered twice, its gradient scattered: what `tp_sp` sends in backward."""
    shape, ranks = setting.shape, setting.group_size
    return _sending(lambda tokens: volumes.tp_sp(shape, ranks, tokens, setting.batch), setting, cluster).backward


def _bytes_per_ms(cluster: Cluster) -> float:
    return cluster.memory_bandwidth_bytes_per_s / 1000
