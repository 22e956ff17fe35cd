"""Bytes of activations that one layer holds, in closed form, by option.

In the manner of "Reducing activation recomputation in large Transformer models" (arXiv 2205.05198, section 4), but
counted for the code that runs here, without dropout; `tests/costmodel/test_activations.py` has what real layers held.
Symbols as in `volumes.py`; a *row* is one of the rank's own t b tokens.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from paradyse_megatron.costmodel.polynomial import TOKEN_PAIRS, TOKENS, Polynomial
from paradyse_megatron.costmodel.shape import ModelShape
from paradyse_megatron.planner.option import Option


@dataclass(frozen=True)
class Held:
    """Bytes by length.

    Attributes:
        saved: kept from forward to backward.
        workspace: transient above that, in forward or backward, whichever is more.
    """

    saved: Polynomial
    workspace: Polynomial


@dataclass(frozen=True)
class Setting:
    """A layer, and how it is cut.

    Attributes:
        shape: of the model.
        group_size: P.
        batch: micro-batch size b.
        unfused: whether Megatron's local layers run, whose attention core stores s x s scores and whose RMSNorm is
            several operations, each of which keeps something.
    """

    shape: ModelShape
    group_size: int
    batch: int
    unfused: bool

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

    def shard(self, num_elements: int) -> Polynomial:
        """Bytes of the gradient of the rank's share of weights, before it is added to the main gradient."""
        return Polynomial(num_elements * self.shape.bytes_per_element / self.group_size)

    def norm(self) -> Polynomial:
        """Bytes that a norm keeps: input and output; unfused RMSNorm also one more (half precision: two) in fp32."""
        hidden = self.shape.hidden_size
        kept = self.elements(2 * hidden)
        if not (self.unfused and self.shape.rms_norm):
            return kept
        return kept + self.precise((2 if self.shape.bytes_per_element == 2 else 1) * hidden)

    def whole_hidden(self) -> Polynomial:
        """Bytes of the gathered input [s, b, h] and of its gradient."""
        return self.elements(2 * self.shape.hidden_size * self.group_size)


def layer(option: Option, setting: Setting) -> Held:
    """What a layer holds under `option`.

    Backward runs the MLP first and lets go of what that saved, so attention's workspace counts only where it is more
    than that; term by term, so as never to be less than either.
    """
    attention, mlp = ATTENTION[option.attention](setting), MLP[option.mlp](setting)
    saved = attention.saved + mlp.saved
    stream_gradient = setting.elements(2 * setting.shape.hidden_size)
    workspace = mlp.workspace.upper_bound(attention.workspace.excess_over(mlp.saved)) + stream_gradient
    if option.recompute != "full":
        return Held(saved, workspace)
    layer_input = setting.elements(setting.shape.hidden_size)
    return Held(layer_input, saved + workspace)


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
    """As `tp_sp`, with the context before and after its exchange; whole weights, and send and receive buffers."""
    shape = setting.shape
    copied = shape.query_size if _is_grouped(shape) and not shape.rotary else 0
    kept = _projected(shape) + copied + _rotated(shape, setting.group_size) + 2 * shape.query_size
    buffers = setting.elements(3 * _projected(shape) + 2 * shape.query_size)
    workspace = setting.whole_weights(shape.attention_weights) + buffers
    return Held(setting.norm() + setting.elements(kept) + _log_sum_exp(setting), workspace)


def _ring(setting: Setting) -> Held:
    """Norm, q, K/V block, context; in the workspace two K/V blocks, three of their gradients, three accumulators.

    Where q is not copied on its way (neither grouped nor rotated), it keeps the whole projection.
    """
    shape = setting.shape
    query = shape.query_size if _is_grouped(shape) or shape.rotary else _projected(shape)
    tables = 4 * shape.head_dim if shape.rotary else 0
    kept = query + shape.key_value_size + shape.query_size + tables
    in_flight = setting.elements(2 * shape.key_value_size) + setting.precise(3 * shape.key_value_size)
    accumulators = setting.precise(3 * shape.query_size)
    buffers = setting.elements(2 * shape.hidden_size + 2 * _projected(shape))
    workspace = setting.whole_weights(shape.attention_weights) + in_flight + accumulators + buffers
    return Held(setting.norm() + setting.elements(kept) + _log_sum_exp(setting), workspace)


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


ATTENTION: dict[str, Callable[[Setting], Held]] = {"tp_sp": _tp_sp_attention, "ulysses": _ulysses, "ring": _ring}
MLP: dict[str, Callable[[Setting], Held]] = {"tp_sp": _tp_sp_mlp, "gathered": _gathered_mlp}


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
