"""Bytes of activations that one layer holds, in closed form, by option.

In the manner of "Reducing activation recomputation in large Transformer models" (arXiv 2205.05198, section 4), but
counted for the code that runs here, without dropout; `tests/costmodel/test_activations.py` has what real layers held.
Symbols as in `volumes.py`; a *row* is one of the rank's own t b tokens.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial

from paradyse_megatron.costmodel.polynomial import NOTHING, TOKEN_PAIRS, Polynomial
from paradyse_megatron.costmodel.setting import Setting
from paradyse_megatron.costmodel.shape import ModelShape
from paradyse_megatron.costmodel.volumes import upipe_chunks
from paradyse_megatron.layouts.heads import CHUNKS_WANTED, NumChunks
from paradyse_megatron.layouts.subgroups import ulysses_degree
from paradyse_megatron.planner.option import USUAL_MLP, Option

MANY_ROUNDS = (*CHUNKS_WANTED, "metp")
"""Attention strategies that attend with some heads at a time, and keep none of q, k, v."""


@dataclass(frozen=True)
class Held:
    """Bytes by length.

    Attributes:
        saved: kept from forward to backward.
        workspace: transient above that, in forward or backward, whichever is more.
    """

    saved: Polynomial
    workspace: Polynomial


def layer(option: Option, setting: Setting) -> Held:
    """What a layer holds under `option`.

    Backward runs the MLP first and lets go of what that saved, so attention's workspace counts only where it is more
    than that; term by term, so as never to be less than either.
    """
    attention, mlp = _attention(option, setting), MLP[option.mlp](setting)
    saved = attention.saved + mlp.saved
    stream_gradient = setting.elements(2 * setting.shape.hidden_size)
    beside_mlp = setting.gathered_hidden() if option.attention == "tp_sp" != option.mlp else Polynomial()
    in_mlp = mlp.workspace + beside_mlp  # the buffer that Megatron gathers into stays
    workspace = in_mlp.upper_bound(attention.workspace.excess_over(mlp.saved)) + stream_gradient
    if option.recompute != "full":
        return Held(saved, workspace + _ahead(option, setting))
    layer_input = setting.elements(setting.shape.hidden_size)
    return Held(layer_input, saved + workspace)


def buffer(option: Option, setting: Setting) -> tuple[Polynomial, ...]:
    """Of the workspace, Megatron's buffer: the largest of these.

    Both parts of `tp_sp` gather the hidden state into it; attention that stores its scores computes them there.
    """
    gathers = setting.group_size > 1 and "tp_sp" in (option.attention, option.mlp)
    stores = setting.unfused and option.attention == "tp_sp"
    found = [setting.gathered_hidden()] * gathers + [setting.scores(1)] * stores
    return tuple(found) or (NOTHING,)


def _attention(option: Option, setting: Setting) -> Held:
    """With `selective` recompute what the core keeps is transient: of all heads, or of those treated at once."""
    held = ATTENTION[option.attention](setting)
    if option.recompute != "selective":
        return held
    dropped = held.saved.excess_over(_kept_around_core(option.attention, setting))
    return Held(held.saved.excess_over(dropped), held.workspace + dropped / rounds(option.attention, setting))


def rounds(attention: str, setting: Setting) -> int:
    """How many times one after the other the core attends, each time with some of the heads."""
    if attention in CHUNKS_WANTED:
        return upipe_chunks(setting.shape, setting.group_size, CHUNKS_WANTED[attention])
    return setting.group_size if attention == "metp" else 1


def _kept_around_core(attention: str, setting: Setting) -> Polynomial:
    """Norm, and what attention starts from: q, k, v with rotation in `tp_sp`, without where that is part of the core.

    Then the context, which the output projection keeps; those that attend in rounds start from the norm's output.
    """
    shape = _with_copies(setting) if attention == "ulysses" else setting.shape
    if attention in MANY_ROUNDS:
        return setting.norm()
    rotated = _rotated(shape, setting.group_size) if attention == "tp_sp" else 0
    return setting.norm() + setting.elements(_projected(shape) + rotated + shape.query_size)


def _ahead(option: Option, setting: Setting) -> Polynomial:
    """Bytes of gathered weights that travel ahead while the MLP works: the neighbour layer's and attention's own."""
    if setting.group_size == 1:
        return Polynomial()
    of_attention = setting.shape.attention_weights * (USUAL_MLP[option.attention] == "gathered")
    of_mlp = setting.shape.mlp_weights * (option.mlp == "gathered")
    return Polynomial((2 * of_attention + of_mlp) * setting.shape.bytes_per_element)


def _tp_sp_attention(setting: Setting) -> Held:
    """Norm, projection, context; the scores where they are stored (in half precision in fp32 as well) and their mask.

    The workspace has four more of the scores. One of those is Megatron's global buffer, which stays.
    """
    shape = setting.shape
    kept = _projected(shape) + _rotated(shape, setting.group_size) + shape.query_size
    saved = setting.norm() + setting.elements(kept)
    gradients = setting.elements(2 * _projected(shape) + shape.query_size) + setting.shard(shape.attention_weights)
    workspace = setting.whole_hidden() + gradients
    if not setting.unfused:
        return Held(saved + _log_sum_exp(setting), workspace)
    repeated = setting.elements(2 * shape.query_size if _is_grouped(shape) else 0)
    mask = TOKEN_PAIRS * float(setting.batch)
    copies = 3 if shape.bytes_per_element == 2 else 1
    return Held(saved + repeated + setting.scores(copies) + mask, workspace + repeated + setting.scores(4))


def _ulysses(setting: Setting) -> Held:
    """As `tp_sp`, with the context before and after its exchange; whole weights, and send and receive buffers.

    Where ranks share key/value heads, each holds a copy. Queries that lie between keys and values are copied out.
    """
    shape = _with_copies(setting)
    is_copied = _is_grouped(shape) and shape.num_query_groups > setting.group_size and not shape.rotary
    copied = shape.query_size if is_copied else 0
    kept = _projected(shape) + copied + _rotated(shape, setting.group_size) + 2 * shape.query_size
    buffers = setting.elements(3 * _projected(shape) + 2 * shape.query_size)
    workspace = setting.whole_weights(setting.shape.attention_weights) + buffers
    return Held(setting.norm() + setting.elements(kept) + _log_sum_exp(setting), workspace)


def _ring(setting: Setting) -> Held:
    return _ring_across(setting, degree=1)


def _usp(setting: Setting) -> Held:
    degree = ulysses_degree(setting.group_size, setting.shape.num_query_groups, setting.ranks_per_node)
    return _ulysses(setting) if degree == setting.group_size else _ring_across(setting, degree)


def _ring_across(setting: Setting, degree: int) -> Held:
    """Norm, q, K/V block, context; in the workspace two K/V blocks, three of their gradients, three accumulators.

    Exchanges in sub-groups of more than one rank add their buffers, and the context before and after.
    """
    shape, exchanged = setting.shape, degree > 1
    tables = 4 * shape.head_dim * degree if shape.rotary else 0
    kept = shape.query_size + shape.key_value_size + shape.query_size * (1 + exchanged) + tables
    in_flight = setting.elements(2 * shape.key_value_size) + setting.precise(3 * shape.key_value_size)
    accumulators = setting.precise(3 * shape.query_size)
    buffers = setting.elements(
        2 * shape.hidden_size + (2 + exchanged) * _projected(shape) + 2 * exchanged * shape.query_size
    )
    workspace = setting.whole_weights(shape.attention_weights) + in_flight + accumulators + buffers
    return Held(setting.norm() + setting.elements(kept) + _log_sum_exp(setting), workspace)


def _upipe(setting: Setting, wanted: NumChunks) -> Held:
    """Norm and context; in the workspace a sum in accumulators, a product on its way there, and some chunks of heads.

    At the worst moment five chunks' buffers, each of q, k, v and the context's gradient: one that is attended and two
    on each way, or being filled; and where q and k are rotated, as much again for those of one chunk.
    """
    shape = _with_copies(setting)
    num_chunks = upipe_chunks(setting.shape, setting.group_size, wanted)
    with_own_keys = min(num_chunks, shape.num_query_groups // setting.group_size)
    of_a_chunk = 2 * shape.query_size / num_chunks + shape.key_value_size / with_own_keys
    rotated = 4 * (shape.query_size / num_chunks + shape.key_value_size / 2 / with_own_keys) if shape.rotary else 0
    tables = 4 * shape.head_dim * setting.group_size if shape.rotary else 0
    chunks = setting.elements(5 * of_a_chunk + rotated + tables)
    sums = setting.precise(shape.hidden_size) + setting.elements(shape.hidden_size)
    saved = setting.norm() + setting.elements(shape.query_size) + _log_sum_exp(setting)
    return Held(saved, setting.whole_weights(setting.shape.attention_weights) + sums + chunks)


def _metp(setting: Setting) -> Held:
    """Norm, whose output is kept in zigzag order, and context; in the workspace one head group's share of `ring`'s.

    Besides that share: the sum in accumulators, a product on its way there, and the output's gradient.
    """
    shape = setting.shape
    saved = setting.norm() + setting.elements(shape.query_size) + _log_sum_exp(setting)
    rotated = shape.query_size + shape.key_value_size / 2 if shape.rotary else 0
    of_all_groups = setting.elements(_projected(shape) + shape.query_size + rotated + 4 * shape.key_value_size)
    of_all_groups += setting.precise(3 * shape.key_value_size + 3 * shape.query_size)
    tables = setting.elements(4 * shape.head_dim if shape.rotary else 0)
    return Held(saved, of_all_groups / setting.group_size + tables + _streamed(setting, shape.attention_weights))


def _tp_sp_mlp(setting: Setting) -> Held:
    """Norm, and what the activation keeps; in the workspace the whole hidden state and the activation's gradients."""
    saved = setting.norm() + setting.elements(_activation_kept(setting.shape))
    gradients = setting.elements(_activation_gradients(setting.shape)) + setting.shard(setting.shape.mlp_weights)
    return Held(saved, setting.whole_hidden() + gradients)


def _gathered_mlp(setting: Setting) -> Held:
    """As `tp_sp` on own tokens, with whole weights instead of the whole hidden state."""
    saved = setting.norm() + setting.elements(_activation_kept(setting.shape))
    whole_weights = setting.whole_weights(setting.shape.mlp_weights)
    return Held(saved, whole_weights + setting.elements(_activation_gradients(setting.shape)))


def _streamed_mlp(setting: Setting) -> Held:
    """Norm only; in the workspace one owner's share of what `gathered` keeps and of its gradients."""
    shape = setting.shape
    of_all_owners = setting.elements(_activation_kept(shape) + _activation_gradients(shape))
    return Held(setting.norm(), of_all_owners / setting.group_size + _streamed(setting, shape.mlp_weights))


ATTENTION: dict[str, Callable[[Setting], Held]] = {
    "tp_sp": _tp_sp_attention,
    "ulysses": _ulysses,
    "ring": _ring,
    "usp": _usp,
    **{name: partial(_upipe, wanted=wanted) for name, wanted in CHUNKS_WANTED.items()},
    "metp": _metp,
}
MLP: dict[str, Callable[[Setting], Held]] = {
    "tp_sp": _tp_sp_mlp,
    "gathered": _gathered_mlp,
    "streamed": _streamed_mlp,
}


def _streamed(setting: Setting, num_weights: int) -> Polynomial:
    """Workspace of a sum over owners: their weights, the sum, a product or the rounded sum, two gradients under way."""
    hidden = setting.shape.hidden_size
    return setting.streamed_weights(num_weights) + setting.precise(hidden) + setting.elements(3 * hidden)


def _with_copies(setting: Setting) -> ModelShape:
    """The shape with a key/value head for each rank, where they are fewer."""
    shape = setting.shape
    return replace(shape, num_query_groups=max(shape.num_query_groups, setting.group_size))


def _projected(shape: ModelShape) -> int:
    """Elements of a row of the fused q, k, v; v is a view that keeps all three."""
    return shape.query_size + shape.key_value_size


def _rotated(shape: ModelShape, group_size: int) -> float:
    """Elements of a row: rotated q and k, and their cosines and sines, which are for all s tokens of one sequence."""
    if not shape.rotary:
        return 0
    return shape.query_size + shape.key_value_size / 2 + 4 * shape.head_dim * group_size


def _is_grouped(shape: ModelShape) -> bool:
    return shape.num_query_groups < shape.num_attention_heads


def _log_sum_exp(setting: Setting) -> Polynomial:
    return setting.precise(setting.shape.num_attention_heads)


def _activation_kept(shape: ModelShape) -> int:
    """Elements of a row: GELU's input and output; gated, [gate, linear], silu(gate), a copy of linear, the product."""
    return (5 if shape.gated_mlp else 2) * shape.ffn_hidden_size


def _activation_gradients(shape: ModelShape) -> float:
    """Elements of a row at the worst moment of the activation's backward, above what was saved."""
    return (2.5 if shape.gated_mlp else 1.0) * shape.ffn_hidden_size
