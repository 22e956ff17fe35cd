"""Applying the patches to a checkout, and taking them out again."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from paradyse_megatron.integration.patches.state import Inspection, State, inspect_checkout


def apply_patches(checkout: Path) -> Inspection:
    """Apply all patches that are not applied yet; with a conflict, none. Returns what the checkout is like afterwards.

    Raises ValueError when it has changes of its own, which could not be told from ours any more.
    """
    found = inspect_checkout(checkout)
    _refuse_changes(checkout, found)
    if all(patch.state is not State.CONFLICT for patch in found.patches):
        _write(checkout, found.with_all)
        return inspect_checkout(checkout)
    return found


def revert_patches(checkout: Path) -> Inspection:
    """Take all applied patches out, which leaves the files byte for byte as they were. See `apply_patches`."""
    found = inspect_checkout(checkout)
    _refuse_changes(checkout, found)
    _write(checkout, found.without)
    return inspect_checkout(checkout)


def _refuse_changes(checkout: Path, found: Inspection) -> None:
    if found.changed is None:
        raise ValueError(
            f"{checkout} is in no git repository, so our changes could not be told from others. Clone Megatron-LM with "
            f"git, or make it one first: cd {checkout} && git init && git add --all && git commit -m stock."
        )
    if found.changed:
        shown = ", ".join(found.changed[:5]) + (", ..." if len(found.changed) > 5 else "")
        raise ValueError(
            f"{checkout} has changes that are not committed: {shown}. Commit them, or put them aside with git stash, "
            "and try again."
        )


def _write(checkout: Path, contents: dict[str, bytes]) -> None:
    for name, content in contents.items():
        file = checkout / name
        if file.read_bytes() == content:
            continue
        new = file.with_name(f"{file.name}.paradyse-{os.getpid()}")
        new.write_bytes(content)
        shutil.copymode(file, new)
        os.replace(new, file)
