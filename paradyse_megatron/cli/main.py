"""`paradyse VERB ...`: one thin file a verb, each with `add_arguments(parser)` and `run(arguments) -> Answer`."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence

from paradyse_megatron.cli import bench, doctor, explain, patch, plan, profile, report, simulate, strategies
from paradyse_megatron.cli.answer import Answer
from paradyse_megatron.cli.verbs import add_verb

BAD_INPUT = 2
VERBS = {
    "bench": bench,
    "doctor": doctor,
    "explain": explain,
    "patch": patch,
    "plan": plan,
    "profile": profile,
    "report": report,
    "simulate": simulate,
    "strategies": strategies,
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Exit status: 0 done, 1 the answer is no, 2 bad input. With --json the result alone goes to standard output."""
    parser = argparse.ArgumentParser(prog="paradyse", description="Strategies that follow the sequence length.")
    verbs = parser.add_subparsers(dest="verb", required=True, metavar="VERB")
    for name, module in VERBS.items():
        verb = add_verb(verbs, name, module)
        verb.add_argument("--json", action="store_true", help="print the result as JSON")
        module.add_arguments(verb)
    asked = parser.parse_args(arguments)
    try:
        answer: Answer = VERBS[asked.verb].run(asked)
    except ValueError as error:
        sys.stderr.write(f"paradyse {asked.verb}: {error}\n")
        return BAD_INPUT
    if asked.json:
        sys.stdout.write(json.dumps(answer.content, indent=1) + "\n")
    else:
        answer.show()
    return 0 if answer.yes else 1
