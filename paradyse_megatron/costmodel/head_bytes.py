"""Bytes that the loss head holds at its peak, in closed form, when every layer's saved bytes are there too.

Both heads keep the final norm's input and output, and end with the gradients of the rank's own tokens and of its share
of the weight. `tests/strategies/test_loss_head_bytes.py` compares with what the real heads hold.
"""

from __future__ import annotations

from paradyse_megatron.costmodel.polynomial import NOTHING, TOKENS, Polynomial
from paradyse_megatron.costmodel.setting import Setting
from paradyse_megatron.layouts.loss_chunks import tokens_per_chunk

NUMBERS_PER_TOKEN = 8
"""Of the chunked head, for each of all s b tokens: maximum, sum and target, of the rank and merged, loss, gradient."""


LONGEST_WHOLE_BYTES = 2**30
"""Of the logits in fp32, [s, b, V/P]: up to here nobody needs chunks. The whole head holds up to 1.5 times that."""


def longest_whole(num_columns: int, batch: int) -> int:
    """Tokens up to which the head stays whole when no planner decides about it; V/P columns, b sequences."""
    return LONGEST_WHOLE_BYTES // (4 * batch * num_columns)


def whole(setting: Setting) -> Polynomial:
    """Megatron's: all tokens' hidden state and its gradient; each logit in the model's dtype and in fp32.

    In fp32 those two are one. What the cross entropy does to logits, softmax and gradient, it does in place.
    """
    num_bytes = setting.shape.bytes_per_element
    of_a_logit = 4 if num_bytes == 4 else 4 + num_bytes
    logits = TOKENS * (setting.batch * num_columns(setting) * of_a_logit)
    gradients = setting.elements(setting.shape.hidden_size) + Polynomial(_weight(setting) * num_bytes)
    return logits + setting.norm() + setting.whole_hidden() + gradients


def whole_buffer(setting: Setting) -> Polynomial:
    """Of those, in Megatron's buffer: the gathered hidden state."""
    return setting.gathered_hidden() if setting.group_size > 1 else NOTHING


def chunked(setting: Setting) -> Polynomial:
    """`strategies.loss_head`: for all tokens a few numbers each; everything else for one chunk only.

    For a sequence that is shorter than a chunk, this is more than is needed.
    """
    shape, precise = setting.shape, _precise_bytes(setting)
    copied = 0 if precise == shape.bytes_per_element else shape.bytes_per_element
    logits = chunk_tokens(setting) * num_columns(setting) * (precise + copied)
    num_buffers = 2 if setting.group_size == 1 else 4
    buffers = num_buffers * chunk_tokens(setting) * shape.hidden_size * shape.bytes_per_element
    weight_gradient = _weight(setting) * (precise + copied)
    of_a_token = NUMBERS_PER_TOKEN * precise + 9  # and a label's column, and whether it is owned
    numbers = TOKENS * (setting.batch * of_a_token)
    own_gradient = setting.elements(shape.hidden_size)
    return setting.norm() + own_gradient + numbers + Polynomial(logits + buffers + weight_gradient)


def num_columns(setting: Setting) -> int:
    """Columns of the vocabulary on a rank, V/P."""
    return setting.shape.padded_vocab_size(setting.group_size) // setting.group_size


def chunk_tokens(setting: Setting) -> int:
    """The most tokens of a chunk; at least one row of all ranks."""
    most = tokens_per_chunk(num_columns(setting), setting.shape.hidden_size, _precise_bytes(setting))
    return max(most, setting.group_size * setting.batch)


def _weight(setting: Setting) -> int:
    """Elements of a rank's share of the output projection."""
    return num_columns(setting) * setting.shape.hidden_size


def _precise_bytes(setting: Setting) -> int:
    return max(4, setting.shape.bytes_per_element)
