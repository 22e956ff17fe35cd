"""How a module becomes a verb: its docstring is the help, its `EXAMPLE` the last line of it."""

from __future__ import annotations

import argparse
from typing import Any


def add_verb(verbs: Any, name: str, module: Any) -> argparse.ArgumentParser:
    """The parser of a verb, or of a verb of a verb, still without arguments. `verbs` comes from `add_subparsers`."""
    parser: argparse.ArgumentParser = verbs.add_parser(
        name,
        help=(module.__doc__ or "").split("\n")[0],
        description=module.__doc__,
        epilog=f"example: {module.EXAMPLE}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    return parser
