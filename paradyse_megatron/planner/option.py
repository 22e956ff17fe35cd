"""An option: how one layer is computed in parallel, and what of it is recomputed in backward.

Grammar: `attention[/mlp][+recompute]`. A bare attention name implies its usual MLP; recompute defaults to `none`.
"""

from __future__ import annotations

import itertools
import re
from dataclasses import dataclass

USUAL_MLP = {
    "tp_sp": "tp_sp",
    "ulysses": "gathered",
    "ring": "gathered",
    "usp": "gathered",
    "upipe": "gathered",
    "upipe2": "gathered",
    "metp": "streamed",
}
"""Every attention strategy of the grammar, with the MLP strategy that a bare name implies."""

NAMES = {
    "attention": tuple(USUAL_MLP),
    "mlp": ("tp_sp", "gathered", "streamed"),
    "recompute": ("none", "selective", "full"),
}
"""Every name of the grammar, by part."""

IMPLEMENTED = {
    "attention": ("tp_sp", "ulysses", "ring", "usp", "upipe", "upipe2", "metp"),
    "mlp": ("tp_sp", "gathered", "streamed"),
    "recompute": ("none", "selective", "full"),
}
"""Those that this version can run. Adding a strategy to the library adds its name here, and nowhere else."""

_FORM = re.compile(r"(?P<attention>[^/+\s]+)(/(?P<mlp>[^/+\s]+))?(\+(?P<recompute>[^/+\s]+))?")


@dataclass(frozen=True, order=True)
class Option:
    """How one layer runs.

    Attributes:
        attention: name of the attention strategy.
        mlp: name of the MLP strategy.
        recompute: what backward computes again: nothing, the attention core, or the layer.
    """

    attention: str
    mlp: str
    recompute: str = "none"

    def __post_init__(self) -> None:
        for part in NAMES:
            _check_name(part, getattr(self, part), f"An option of {self.attention}, {self.mlp}, {self.recompute}")

    @classmethod
    def parse(cls, text: str) -> Option:
        """Read `attention[/mlp][+recompute]`.

        Raises:
            ValueError: malformed, an unknown name, or a name of the grammar that this version cannot run yet.
        """
        match = _FORM.fullmatch(text.strip())
        if match is None:
            raise ValueError(f"{text!r} is no option; write attention[/mlp][+recompute], such as ring/gathered+full.")
        attention, mlp, recompute = match["attention"], match["mlp"], match["recompute"]
        _check_name("attention", attention, repr(text))
        option = cls(attention, mlp or USUAL_MLP[attention], recompute or "none")
        option.require_implemented()
        return option

    def require_implemented(self) -> None:
        """Raise ValueError, naming the part, when this version cannot run the option."""
        for part, names in IMPLEMENTED.items():
            name = getattr(self, part)
            if name not in names:
                raise ValueError(
                    f"Option {str(self)!r} asks for the {part} {name!r}, which this version cannot run yet; "
                    f"it can run {_listed(names)}."
                )

    def __str__(self) -> str:
        mlp = "" if self.mlp == USUAL_MLP[self.attention] else f"/{self.mlp}"
        recompute = "" if self.recompute == "none" else f"+{self.recompute}"
        return self.attention + mlp + recompute


def all_options() -> tuple[Option, ...]:
    """Every option that this version can run, attention by attention."""
    return tuple(Option(*names) for names in itertools.product(*IMPLEMENTED.values()))


def _check_name(part: str, name: str, context: str) -> None:
    if name not in NAMES[part]:
        known = _listed(NAMES[part])
        raise ValueError(f"{context} names the {part} {name!r}, which does not exist; known are {known}.")


def _listed(names: tuple[str, ...]) -> str:
    return ", ".join(names)
