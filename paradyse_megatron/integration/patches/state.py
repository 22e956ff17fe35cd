"""Which patches a checkout has, could take, or contradicts; found out on a copy of the files."""

from __future__ import annotations

import enum
import re
import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path

from paradyse_megatron.compat.version import refuse_unsupported, version_of_checkout
from paradyse_megatron.integration.patches.git import committed, git, modified_files
from paradyse_megatron.integration.patches.series import Patch, load_series


class State(enum.Enum):
    """Of a patch in a checkout."""

    APPLIED = "applied"
    APPLICABLE = "applicable"
    CONFLICT = "conflict"


@dataclass(frozen=True)
class PatchState:
    """A patch, how it stands, and for a conflict which hunk does not fit."""

    patch: Patch
    state: State
    detail: str = ""


@dataclass(frozen=True)
class Inspection:
    """What a checkout is like.

    Attributes:
        version: of Megatron.
        patches: those for this version, in their order.
        changed: files that differ from the last commit by more than our patches; None where there is no repository.
        without: contents of the patched files without any of our patches.
        with_all: their contents with all that can be applied.
    """

    version: str
    patches: list[PatchState]
    changed: list[str] | None
    without: dict[str, bytes]
    with_all: dict[str, bytes]


def inspect_checkout(checkout: Path, series: list[Patch] | None = None) -> Inspection:
    """Look at a checkout; nothing in it is touched. Raises ValueError where there is no supported one."""
    version = version_of_checkout(checkout)
    refuse_unsupported(version, f"is in {checkout}")
    patches = [patch for patch in (load_series() if series is None else series) if patch.is_for(version)]
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder)
        targets = sorted({patch.target for patch in patches})
        _copy_files(checkout, copy, targets)
        applied = [patch.id for patch in reversed(patches) if _apply(copy, patch, "--reverse") is None]
        without = _contents(copy, targets)
        problems = {patch.id: _apply(copy, patch) for patch in patches}
        with_all = _contents(copy, targets)
    states = [_state(patch, patch.id in applied, problems[patch.id]) for patch in patches]
    return Inspection(version, states, _changed_beyond(checkout, without), without, with_all)


def _state(patch: Patch, is_applied: bool, problem: str | None) -> PatchState:
    if problem is not None:
        return PatchState(patch, State.CONFLICT, problem)
    return PatchState(patch, State.APPLIED if is_applied else State.APPLICABLE)


def _copy_files(checkout: Path, copy: Path, names: list[str]) -> None:
    for name in names:
        if (checkout / name).is_file():
            (copy / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(checkout / name, copy / name)


def _contents(copy: Path, names: list[str]) -> dict[str, bytes]:
    return {name: (copy / name).read_bytes() for name in names if (copy / name).is_file()}


def _apply(copy: Path, patch: Patch, *how: str) -> str | None:
    """Apply, or leave everything as it is and say which hunk does not fit."""
    done = git(copy, "apply", *how, "-", given=patch.text, alone=True)
    return None if done.returncode == 0 else _complaint(patch, done.stderr.decode(errors="replace"))


def _complaint(patch: Patch, said: str) -> str:
    place = re.search(r"^error: patch failed: .*:(\d+)$", said, re.MULTILINE)
    if not place:
        return said.strip().splitlines()[-1].removeprefix("error: ") if said.strip() else "git apply failed"
    numbers = [n for n, hunk in enumerate(patch.hunks, 1) if re.match(rf"@@ -{place[1]}\b", hunk)]
    hunk = patch.hunks[numbers[0] - 1].splitlines()
    wanted = next(line[1:].strip() for line in hunk[1:] if line[0] in " -" and line[1:].strip())
    return f"hunk {numbers[0]} of {len(patch.hunks)} does not fit {patch.target}: it looks for '{wanted}'"


def _changed_beyond(checkout: Path, without: dict[str, bytes]) -> list[str] | None:
    modified = modified_files(checkout)
    if modified is None:
        return None
    return [name for name in modified if name not in without or committed(checkout, name) != without[name]]
