"""The patches that this package brings, as `patches/series.yaml` describes them."""

from __future__ import annotations

import functools
import re
from dataclasses import dataclass
from pathlib import Path

import yaml

from paradyse_megatron.compat.version import release

PATCHES = Path(__file__).resolve().parents[3] / "patches"
_FIELDS = {"id", "file", "oldest", "too_new", "bases", "reason", "drop_when"}


@dataclass(frozen=True)
class Base:
    """A state of Megatron-LM that a patch was made and tried on: tag or branch, and commit."""

    version: str
    commit: str


@dataclass(frozen=True)
class Patch:
    """One purpose, one file of Megatron-LM.

    Attributes:
        id: name of the patch.
        file: the patch, in git's format.
        oldest: first Megatron version that it is for, as (major, minor).
        too_new: first later version that it is not for.
        bases: what it was tried on.
        reason: why it is needed.
        drop_when: when it is needed no more.
    """

    id: str
    file: Path
    oldest: tuple[int, int]
    too_new: tuple[int, int]
    bases: tuple[Base, ...]
    reason: str
    drop_when: str

    @functools.cached_property
    def text(self) -> str:
        """The patch itself."""
        return self.file.read_text()

    @property
    def target(self) -> str:
        """The file that it changes, seen from the checkout's folder."""
        return re.findall(r"^\+\+\+ b/(.+)$", self.text, re.MULTILINE)[0]

    @property
    def hunks(self) -> list[str]:
        """Its hunks, each from its @@ line on."""
        return re.split(r"^(?=@@ )", self.text, flags=re.MULTILINE)[1:]

    def is_for(self, version: str) -> bool:
        """Whether it is meant for that version of Megatron."""
        return self.oldest <= release(version) < self.too_new

    def is_in(self, text: str) -> bool:
        """Whether the lines that it adds are all in the text of a file; a quick look that needs no git."""
        lines = text.splitlines()
        return all(line[1:] in lines for hunk in self.hunks for line in hunk.splitlines() if line.startswith("+"))


def load_series(folder: Path = PATCHES) -> list[Patch]:
    """All patches, in the order in which they are applied. Raises ValueError when the file is no good."""
    file = folder / "series.yaml"
    try:
        entries = yaml.safe_load(file.read_text())["patches"]
        return [_patch(entry, folder) for entry in entries]
    except (OSError, yaml.YAMLError, KeyError, TypeError) as error:
        raise ValueError(
            f"The list of patches {file} cannot be read ({error}). The patches come with this package's repository; "
            "install it from there with pip install --editable."
        ) from error


def _patch(entry: dict, folder: Path) -> Patch:
    if set(entry) != _FIELDS:
        raise ValueError(f"{folder / 'series.yaml'}: a patch has the keys {sorted(_FIELDS)}, not {sorted(entry)}.")
    return Patch(
        id=entry["id"],
        file=folder / entry["file"],
        oldest=release(entry["oldest"]),
        too_new=release(entry["too_new"]),
        bases=tuple(Base(**base) for base in entry["bases"]),
        reason=entry["reason"],
        drop_when=entry["drop_when"],
    )
