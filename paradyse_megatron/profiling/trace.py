"""The work of every part of a layer, counted on the real code at several lengths, as exact polynomials of the length.

Attention and MLP are traced apart and put together by `costmodel.compose`, as what they do adds up.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from paradyse_megatron.costmodel import messages
from paradyse_megatron.costmodel.compose import part_names
from paradyse_megatron.costmodel.curve import simplified
from paradyse_megatron.costmodel.first_principles import usable_options
from paradyse_megatron.costmodel.messages import Message
from paradyse_megatron.costmodel.polynomial import NOTHING, Polynomial
from paradyse_megatron.costmodel.setting import Setting
from paradyse_megatron.costmodel.work import KINDS, PartWork, Pass, Transfer
from paradyse_megatron.layouts.padding import padding_multiple
from paradyse_megatron.layouts.zigzag import num_chunks_sent
from paradyse_megatron.planner.option import USUAL_MLP, Option, all_options
from paradyse_megatron.profiling.counting import Part
from paradyse_megatron.profiling.exact import exact_polynomials
from paradyse_megatron.profiling.parts import Counts, run_part
from paradyse_megatron.profiling.world import fake_ranks

STEPS = (8, 12, 16, 24, 40)
"""Traced lengths as multiples of the shortest that everything accepts: three give the polynomials, two check them."""


def trace_parts(
    setting: Setting, options: Sequence[Option] | None = None, progress: Callable[[str], None] = lambda part: None
) -> dict[str, PartWork]:
    """The work of each part that layers under `options` consist of; None for all that the model can run.

    Args:
        progress: told of each part before it is traced.

    Raises:
        ValueError: nothing can run, or what a part does is no polynomial of the length.
    """
    wanted: dict[str, tuple[str, Option]] = {}
    for kind in setting.shape.kinds:
        for option in usable_options(setting, kind, options or all_options()):
            attention, mlp = part_names(option, kind)
            once = option if option.recompute == "selective" else Option(option.attention, option.mlp)
            wanted.setdefault(attention, ("attention", once))
            wanted.setdefault(mlp, ("moe" if kind == "moe" else "mlp", Option("tp_sp", option.mlp)))
    lengths = traced_lengths(setting)
    parts = {}
    with fake_ranks(setting.group_size, busiest_rank(setting), setting.ranks_per_node):
        for name, (part, option) in wanted.items():
            progress(name)
            counts = [run_part(part, option, setting, length) for length in lengths]
            parts[name] = _part_work(name, part, option, setting, lengths, counts)
    return parts


def traced_lengths(setting: Setting) -> list[int]:
    """In tokens. With experts, multiples of what gives each expert the same whole number of tokens of a rank.

    Where scores are stored, long enough that they are more than the hidden state: Megatron's buffer has to hold either.
    """
    shape = setting.shape
    unit = padding_multiple(setting.group_size) * max(1, shape.num_experts)
    longer_scores = 2 * shape.hidden_size * setting.group_size // shape.num_attention_heads * setting.unfused
    return [step * unit * -(-max(longer_scores, 1) // (STEPS[0] * unit)) for step in STEPS]


def busiest_rank(setting: Setting) -> int:
    """The one that sends most on the way to zigzag order."""
    size = setting.group_size
    return max(range(size), key=lambda rank: num_chunks_sent(rank, size, 1)) if size > 1 else 0


def _part_work(
    name: str, part: str, option: Option, setting: Setting, lengths: list[int], counts: list[Counts]
) -> PartWork:
    forward, backward = ([getattr(each, way) for each in counts] for way in ("forward", "backward"))
    before = [each.before_bytes for each in counts]
    kept = [[each.saved_bytes, each.buffer_bytes] for each in counts]
    saved, buffers = exact_polynomials(lengths, kept, f"{name}, saved bytes")
    return PartWork(
        _pass(lengths, forward, name),
        _pass(lengths, backward, name),
        _transfers(name, part, option, setting, lengths, forward, backward),
        saved,
        _peaks(lengths, before, forward, f"{name}, bytes held in forward"),
        _peaks(lengths, before, backward, f"{name}, bytes held in backward"),
        buffers,
        _gathered_bytes(part, option, setting),
        forward[0].kernels,
        backward[0].kernels,
    )


def _pass(lengths: list[int], parts: list[Part], name: str) -> Pass:
    fields = ("product_flops", "attention_flops", "product_bytes", "moved_bytes")
    rows = [[getattr(part, field) for field in fields] for part in parts]
    return Pass(*exact_polynomials(lengths, rows, f"{name}, {', '.join(fields)}"))


def _peaks(lengths: list[int], before: list[int], parts: list[Part], what: str) -> tuple[Polynomial, ...]:
    """Of what was held after each operation, those that are the most at some length."""
    rows = [[held - start for held in part.held_bytes] for start, part in zip(before, parts, strict=True)]
    held = {polynomial.excess_over(NOTHING) for polynomial in exact_polynomials(lengths, rows, what)}
    return simplified(held)


def _transfers(
    name: str,
    part: str,
    option: Option,
    setting: Setting,
    lengths: list[int],
    forward: list[Part],
    backward: list[Part],
) -> tuple[Transfer, ...]:
    """What was counted, by kind; shared out as the closed forms do where one kind is sent in several ways."""
    transfers: list[Transfer] = []
    for kind in KINDS:
        ahead, back = [each.sent[kind] for each in forward], [each.sent[kind] for each in backward]
        rows = [[a.num_bytes, b.num_bytes, a.calls, b.calls] for a, b in zip(ahead, back, strict=True)]
        sent, returned, calls, calls_back = exact_polynomials(lengths, rows, f"{name}, bytes sent")
        whole = Transfer(kind, setting.group_size, sent, returned, int(calls.constant), int(calls_back.constant))
        if calls != NOTHING or calls_back != NOTHING:
            transfers += _shared_out(whole, expected_messages(part, option, setting, lengths[-1]))
    return tuple(transfers)


def expected_messages(
    part: str, option: Option, setting: Setting, seq_length: int, rank: int | None = None
) -> list[Message]:
    """What the closed forms say that a part sends; nothing is known of experts."""
    place = setting.shape, setting.group_size, seq_length // setting.group_size, setting.batch
    if part == "attention":
        return messages.attention_messages(option.attention, *place, setting.ranks_per_node, rank)
    return messages.mlp_messages(option.mlp, *place) if part == "mlp" else []


def _shared_out(whole: Transfer, expected: list[Message]) -> list[Transfer]:
    """One transfer for each expected message of the kind, in proportion; the whole where none is expected."""
    messages = [message for message in expected if message.kind == whole.kind]
    totals = [sum(message.sent.forward for message in messages), sum(message.sent.backward for message in messages)]
    if not all(totals):
        return [whole]
    is_one = len(messages) == 1  # then what was counted, a recomputed core's messages among them
    shares = [(message.sent.forward / totals[0], message.sent.backward / totals[1]) for message in messages]
    return [
        replace(
            whole,
            num_peers=message.num_peers,
            forward_bytes=whole.forward_bytes * ahead,
            backward_bytes=whole.backward_bytes * back,
            forward_calls=whole.forward_calls if is_one else message.sent.forward_calls,
            backward_calls=whole.backward_calls if is_one else message.sent.backward_calls,
            share_beside_attention=message.share_beside_attention,
        )
        for message, (ahead, back) in zip(messages, shares, strict=True)
    ]


def _gathered_bytes(part: str, option: Option, setting: Setting) -> int:
    """Of the weights that travel a layer ahead, whole."""
    if setting.group_size == 1 or part == "moe":
        return 0
    if part == "attention":
        gathers, num_weights = USUAL_MLP[option.attention] == "gathered", setting.shape.attention_weights
    else:
        gathers, num_weights = option.mlp == "gathered", setting.shape.mlp_weights
    return num_weights * setting.shape.bytes_per_element * gathers
