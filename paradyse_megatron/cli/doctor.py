"""Show what this machine has of all that training can use, and how to get the rest."""

from __future__ import annotations

import argparse

from paradyse_megatron.cli.answer import Answer
from paradyse_megatron.integration.doctor.examine import examine

EXAMPLE = "paradyse doctor"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """There are none."""


def run(asked: argparse.Namespace) -> Answer:
    """The answer is no when training is impossible."""
    found = examine()
    rows = [
        (name, "ok" if one.is_good else "MISSING" if one.is_needed else "-", one.found)
        for name, one in found.findings.items()
    ]
    notes = [f"{name}: {one.remedy}" for name, one in found.findings.items() if one.remedy]
    verdict = (
        f"Training is impossible without: {', '.join(found.missing)}." if found.missing else "Training is possible."
    )
    return Answer(found.content, "paradyse doctor", ("", "", "found"), rows, [verdict, *notes], not found.missing)
