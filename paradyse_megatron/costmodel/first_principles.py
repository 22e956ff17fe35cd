"""A cost model from arithmetic alone: FLOPs, bytes moved in memory, bytes sent, calls.

Good enough that plans differ by length and that nothing is measured before the first step; traced and measured costs
replace it piece by piece. Time is the sum of its parts, but for a share of each ring hop, which hides behind compute.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from paradyse_megatron.costmodel import activations, volumes
from paradyse_megatron.costmodel.activations import Setting
from paradyse_megatron.costmodel.cluster import Cluster
from paradyse_megatron.costmodel.model import CostModel, HeadCosts, OptionCosts
from paradyse_megatron.costmodel.polynomial import TOKEN_PAIRS, TOKENS, Polynomial
from paradyse_megatron.costmodel.shape import ModelShape
from paradyse_megatron.costmodel.support import excluded_options
from paradyse_megatron.layouts.padding import positive_whole
from paradyse_megatron.planner.option import Option, all_options

FLASH_BACKWARD = 2.5  # backward of flash attention over its forward: five products instead of two (arXiv 2307.08691)
SCORE_PASSES = 8  # reads and writes of the s x s scores in a forward that materialises them; as many in its backward
ELEMENTWISE_PASSES = 2  # a saved byte is written and read in forward; backward does the same to it and to its gradient


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
    excluded = excluded_options(shape, group_size)
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
        head=_head_costs(setting, cluster),
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
    recomputed = parts.forward + overhead / 3 if option.recompute == "full" else Polynomial()
    held = activations.layer(option, setting)
    return OptionCosts(parts.forward + parts.backward + overhead + recomputed, held.saved, held.workspace)


def _linear_layers(option: Option, setting: Setting, cluster: Cluster) -> _Milliseconds:
    """2 FLOPs a weight and token, twice that in backward, and the weights moved through memory.

    Gathered weights are written and read whole, and so is their gradient; `tp_sp` reads and writes its shard.
    """
    shape, rate = setting.shape, cluster.flops_per_ms(setting.shape.dtype)
    all_weights = shape.attention_weights + shape.mlp_weights
    compute = setting.rows * (2 * all_weights / rate)
    moved = _moved_weights(option.attention, shape.attention_weights, setting) + _moved_weights(
        option.mlp, shape.mlp_weights, setting
    )
    memory = Polynomial(moved * shape.bytes_per_element) / _bytes_per_ms(cluster)
    return _Milliseconds(compute + memory, 2 * compute + 2 * memory)


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


def _elementwise(option: Option, setting: Setting, cluster: Cluster) -> _Milliseconds:
    """Norms, activation, residual: bound by memory, so counted by the bytes that they keep per token.

    `ring` also merges partial results: P - 1 times three passes over the fp32 accumulator, in forward and in backward.
    """
    kept = activations.layer(Option(option.attention, option.mlp), setting).saved
    forward = Polynomial(per_token=kept.per_token) * (ELEMENTWISE_PASSES / _bytes_per_ms(cluster))
    merged = Polynomial()
    if option.attention == "ring":
        passes = 3 * (setting.group_size - 1)
        merged = setting.precise(passes * setting.shape.query_size) / _bytes_per_ms(cluster)
    return _Milliseconds(forward + merged, 2 * forward + merged)


def _communication(option: Option, setting: Setting, cluster: Cluster) -> _Milliseconds:
    """Elements sent over the link's bandwidth, and a latency for each call; less what hides behind compute."""
    place = setting.shape, setting.group_size
    once = Option(option.attention, option.mlp)
    if option.attention != "ring" or setting.group_size == 1:
        return _sending(lambda tokens: volumes.layer(once, *place, tokens, setting.batch), setting, cluster)
    hops = _sending(lambda tokens: volumes.ring_hops(*place, tokens, setting.batch), setting, cluster)
    rest = _sending(
        lambda tokens: (
            volumes.layer(once, *place, tokens, setting.batch) - volumes.ring_hops(*place, tokens, setting.batch)
        ),
        setting,
        cluster,
    )
    exposed = 1 - cluster.hop_overlap_fraction
    precise = max(4, setting.shape.bytes_per_element) / setting.shape.bytes_per_element
    gradients_in_fp32 = (1 + precise) / 2  # half of the backward's elements are gradients
    return rest + _Milliseconds(exposed * hops.forward, exposed * gradients_in_fp32 * hops.backward)


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


def _head_costs(setting: Setting, cluster: Cluster) -> HeadCosts:
    """Output projection on the rank's share of the vocabulary, and the vocabulary-parallel cross entropy.

    Held at its peak: the final norm's, the gathered hidden state and its gradient, and for each logit the model's
    dtype twice (logit, gradient) and fp32 three times (copy, softmax, gradient); little of it can be freed before the
    others are there.
    """
    shape = setting.shape
    logits = TOKENS * (setting.batch * shape.padded_vocab_size(setting.group_size) / setting.group_size)
    products = logits * (6 * shape.hidden_size / cluster.flops_per_ms(shape.dtype))
    held_of_logits = logits * (2 * shape.bytes_per_element + 3 * max(4, shape.bytes_per_element))
    passes = held_of_logits * (ELEMENTWISE_PASSES / _bytes_per_ms(cluster))
    sent = _sending(
        lambda tokens: volumes.tp_sp(shape, setting.group_size, tokens, setting.batch), setting, cluster
    )  # the input gathered twice, its gradient scattered: what `tp_sp` sends in backward
    return HeadCosts(products + passes + sent.backward, held_of_logits + setting.norm() + setting.whole_hidden())


def _bytes_per_ms(cluster: Cluster) -> float:
    return cluster.memory_bandwidth_bytes_per_s / 1000
