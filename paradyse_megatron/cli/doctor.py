"""Show what this machine has of all that training can use, and how to get the rest."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from dataclasses import replace

from paradyse_megatron.cli.answer import Answer
from paradyse_megatron.integration.doctor.examine import examine
from paradyse_megatron.integration.doctor.kernels import kernels

EXAMPLE = "paradyse doctor"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """There are none."""


def run(asked: argparse.Namespace) -> Answer:
    """The answer is no when training is impossible."""
    found = replace(examine(), kernels=kernels())
    rows = [
        (name, "ok" if one.is_good else "MISSING" if one.is_needed else "-", one.found)
        for name, one in found.findings.items()
    ]
    rows += [
        (f"kernels for {name}", "ok" if one["compiled"] else "-", _told(one)) for name, one in found.kernels.items()
    ]
    notes = [f"{name}: {one.remedy}" for name, one in found.findings.items() if one.remedy]
    verdict = (
        f"Training is impossible without: {', '.join(found.missing)}." if found.missing else "Training is possible."
    )
    return Answer(found.content, "paradyse doctor", ("", "", "found"), rows, [verdict, *notes], not found.missing)


def _told(one: Mapping[str, object]) -> str:
    """About the kernels for one architecture."""
    if not one["compiled"]:
        return str(one["reason"])
    return f"compile; {one['registers']} registers a thread, {one['spill_bytes']} bytes spilled"
