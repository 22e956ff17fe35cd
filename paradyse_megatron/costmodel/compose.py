"""From the traced work of attention and of an MLP to that of a layer under an option.

A layer runs one after the other, so what they compute, send and keep adds up. What is held at the worst moment does
not: forward, attention's worst is above nothing and the MLP's above what attention saved; backward, the MLP's is above
both and attention's comes when the MLP has let go. Beside that, gathered weights travel one layer ahead, of the next
layer in forward and of the one before in backward (`layers.prefetch`): the layer's own, which have arrived already,
and as many of its neighbour. Megatron's buffers, once made, are there for both parts.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from paradyse_megatron.costmodel.curve import Curve, simplified
from paradyse_megatron.costmodel.polynomial import Polynomial
from paradyse_megatron.costmodel.setting import Setting
from paradyse_megatron.costmodel.work import PartWork, Work
from paradyse_megatron.planner.option import Option


def part_names(option: Option, kind: str) -> tuple[str, str]:
    """Which parts a layer of `kind` under `option` consists of."""
    recompute = "+selective" if option.recompute == "selective" else ""
    return f"attention {option.attention}{recompute}", "mlp experts" if kind == "moe" else f"mlp {option.mlp}"


def compose(parts: Mapping[str, PartWork], option: Option, kind: str, setting: Setting) -> Work:
    """The work of a layer of `kind` under `option`."""
    attention, mlp = (parts[name] for name in part_names(option, kind))
    is_full = option.recompute == "full"
    forward, backward = attention.forward + mlp.forward, attention.backward + mlp.backward
    saved = attention.saved_bytes + mlp.saved_bytes
    held = _held(attention, mlp, setting.group_size, ahead=not is_full)
    if is_full:
        saved, backward = setting.elements(setting.shape.hidden_size), forward + backward
    transfers = attention.transfers + mlp.transfers
    return Work(
        forward,
        backward,
        tuple(transfer.recomputed() for transfer in transfers) if is_full else transfers,
        Curve((saved,)),
        Curve(simplified(most.excess_over(saved) for most in held)),
        Curve(simplified((attention.buffer_bytes, mlp.buffer_bytes))),
        recomputes_all=is_full,
    )


def _held(attention: PartWork, mlp: PartWork, group_size: int, ahead: bool) -> list[Polynomial]:
    """The most that is held at a time, above what was there before the layer."""
    of_attention, of_mlp = attention.gathered_weight_bytes * ahead, mlp.gathered_weight_bytes * ahead
    neighbour = of_attention + of_mlp
    returning = neighbour / group_size  # shards of gradients, until the layer's backward has ended
    in_attention = mlp.buffer_bytes.excess_over(attention.buffer_bytes)
    in_mlp = attention.buffer_bytes.excess_over(mlp.buffer_bytes) + attention.saved_bytes
    return [
        *_raised(attention.forward_peak_bytes, in_attention + Polynomial(neighbour + of_mlp)),
        *_raised(mlp.forward_peak_bytes, in_mlp + Polynomial(neighbour)),
        *_raised(mlp.backward_peak_bytes, in_mlp + Polynomial(neighbour + of_attention + returning)),
        *_raised(attention.backward_peak_bytes, in_attention + Polynomial(neighbour + returning)),
    ]


def _raised(peaks: Iterable[Polynomial], by: Polynomial) -> list[Polynomial]:
    return [peak + by for peak in peaks]
