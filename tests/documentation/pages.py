"""The table of flags in docs/flags.md, from the parser; `python -m tests.documentation.pages` writes it anew."""

from __future__ import annotations

import argparse

from tests.ranks import REPOSITORY

FLAGS_PAGE = REPOSITORY / "docs" / "flags.md"
BEGIN, END = "<!-- flags: begin -->\n", "<!-- flags: end -->\n"


def flags_table() -> str:
    """One row a flag of ours, in the order of the parser."""
    from paradyse_megatron.integration.arguments import add_arguments

    parser = add_arguments(argparse.ArgumentParser(add_help=False))
    rows = ["| flag | default | |", "|---|---|---|"]
    for action in parser._actions:
        value = action.metavar or ("|".join(action.choices) if action.choices else "")
        flag = f"{action.option_strings[0]} {value}".strip().replace("|", "\\|")
        default = "off" if action.default is False else "-" if action.default is None else action.default
        rows.append(f"| `{flag}` | {default} | {(action.help or '').replace('|', chr(92) + '|')} |")
    return "\n".join(rows) + "\n"


def with_table(page: str) -> str:
    """`page` with the table between its marks."""
    before, rest = page.split(BEGIN)
    return before + BEGIN + flags_table() + END + rest.split(END)[1]


if __name__ == "__main__":
    FLAGS_PAGE.write_text(with_table(FLAGS_PAGE.read_text("utf-8")), encoding="utf-8")
