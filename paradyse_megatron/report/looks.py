"""How an option looks: a colour, a hatch and a short name, each of which tells it from the others on its own.

Colours are those of Okabe and Ito, which colour-blind readers tell apart; hatches and names serve black and white.
"""

from __future__ import annotations

from dataclasses import dataclass

from paradyse_megatron.planner.option import USUAL_MLP

_ATTENTION = {
    "tp_sp": ("#bbbbbb", "", "T"),
    "ulysses": ("#56b4e9", "///", "U"),
    "ring": ("#e69f00", "\\\\\\", "R"),
    "usp": ("#009e73", "xx", "S"),
    "upipe": ("#f0e442", "..", "P"),
    "upipe2": ("#d55e00", "oo", "W"),
    "metp": ("#cc79a7", "++", "M"),
}
_MLP = {"tp_sp": "t", "gathered": "g", "streamed": "s"}
_RECOMPUTE = {"none": "", "selective": "-", "full": "+"}
_UNKNOWN = ("#ffffff", "**", "?")


@dataclass(frozen=True)
class Look:
    """Of one option.

    Attributes:
        colour: as #rrggbb; lighter where backward computes the layer again.
        hatch: matplotlib's; upright lines more for an MLP that is not the usual, level ones for full recompute.
        name: attention's capital letter, the MLP's small one where it is not the usual, + for full recompute.
    """

    colour: str
    hatch: str
    name: str


def look(option: str) -> Look:
    """The look of an option's text; one that this version does not know gets a question mark."""
    rest, _, recompute = option.partition("+")
    attention, _, mlp = rest.partition("/")
    colour, hatch, letter = _ATTENTION.get(attention, _UNKNOWN)
    usual = not mlp or mlp == USUAL_MLP.get(attention)
    name = letter + ("" if usual else _MLP.get(mlp, "?")) + _RECOMPUTE.get(recompute or "none", "?")
    lighter = 0.3 * (not usual) + 0.4 * (recompute == "full") + 0.2 * (recompute == "selective")
    more_hatch = "" if usual else "|"
    more_hatch += {"none": "", "full": "-"}.get(recompute or "none", "o")
    return Look(_mixed_with_white(colour, lighter), hatch + more_hatch, name)


def _mixed_with_white(colour: str, share: float) -> str:
    parts = [int(colour[place : place + 2], 16) for place in (1, 3, 5)]
    return "#" + "".join(f"{round(part + (255 - part) * share):02x}" for part in parts)
