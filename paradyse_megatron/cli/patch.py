"""List, check, apply or revert the patches that let a Megatron-LM checkout's own scripts take --dynamic-parallel."""

from __future__ import annotations

import argparse
from pathlib import Path

from paradyse_megatron.cli.answer import Answer
from paradyse_megatron.integration.patches.change import apply_patches, revert_patches
from paradyse_megatron.integration.patches.series import load_series
from paradyse_megatron.integration.patches.state import Inspection, State, inspect_checkout

EXAMPLE = "paradyse patch check --megatron ~/Megatron-LM"
_ACTIONS = {"check": inspect_checkout, "apply": apply_patches, "revert": revert_patches}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Flags of this verb."""
    parser.add_argument("action", choices=["list", *_ACTIONS], help="what to do; list and check change nothing")
    parser.add_argument("--megatron", metavar="PATH", type=Path, help="a Megatron-LM checkout (list works without)")


def run(asked: argparse.Namespace) -> Answer:
    """The answer is no when a patch conflicts, and for check also when changes of the user's would be in the way."""
    if asked.megatron is None:
        if asked.action == "list":
            return _list()
        raise ValueError(f"paradyse patch {asked.action} needs --megatron PATH, a Megatron-LM checkout.")
    if asked.action == "list":
        return _answer("check", asked.megatron, inspect_checkout(asked.megatron))
    return _answer(asked.action, asked.megatron, _ACTIONS[asked.action](asked.megatron))


def _list() -> Answer:
    series = load_series()
    content = [
        {"id": patch.id, "file": patch.file.name, "changes": patch.target, "reason": patch.reason,
         "drop_when": patch.drop_when, "bases": [vars(base) for base in patch.bases]} for patch in series
    ]  # fmt: skip
    rows = [
        (patch.id, patch.target, ", ".join(base.version for base in patch.bases), patch.reason, patch.drop_when)
        for patch in series
    ]
    return Answer(content, "Patches", ("patch", "changes", "made for", "reason", "drop when"), rows)


def _answer(action: str, checkout: Path, found: Inspection) -> Answer:
    states = [patch.state for patch in found.patches]
    content = {
        "megatron": str(checkout),
        "version": found.version,
        "changed": found.changed,
        "patches": [
            {"id": one.patch.id, "changes": one.patch.target, "state": one.state.value, "detail": one.detail}
            for one in found.patches
        ],
    }
    rows = [(one.patch.id, one.patch.target, one.state.value, one.detail) for one in found.patches]
    notes = []
    if State.CONFLICT in states and action == "apply":
        notes.append("Nothing was changed.")
    if found.changed is None:
        notes.append("This is in no git repository: apply and revert refuse it.")
    elif found.changed:
        notes.append(f"Not committed: {', '.join(found.changed)}; apply and revert refuse until it is.")
    title = f"Patches of {checkout} (Megatron {found.version})"
    yes = State.CONFLICT not in states and (action != "check" or found.changed == [])
    return Answer(content, title, ("patch", "changes", "state", "detail"), rows, notes, yes)
