"""What a verb found: for people a table, for scripts JSON."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from rich import box
from rich.console import Console
from rich.table import Table

LONGEST_WHOLE = 12
"""Characters of a column's cells up to which a narrow screen does not break them."""


@dataclass(frozen=True)
class Answer:
    """The result of a verb.

    Attributes:
        content: what --json prints.
        title: above the table.
        columns: names of the table's columns.
        rows: its cells.
        notes: sentences below it.
        yes: whether the answer is yes; no makes the exit status 1.
    """

    content: object
    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[str]]
    notes: Sequence[str] = field(default_factory=tuple)
    yes: bool = True

    def show(self) -> None:
        """Print for people."""
        console = Console(markup=False)  # brackets are the user's, as in pip install 'x[y]'
        table = Table(title=self.title, box=box.SIMPLE_HEAD, pad_edge=False, collapse_padding=True)
        longest = [_longest(column, [row[number] for row in self.rows]) for number, column in enumerate(self.columns)]
        kept_whole = [width if width <= LONGEST_WHOLE else 0 for width in longest]
        if longest and longest[0] + sum(kept_whole[1:]) + 2 * len(longest) > console.width:
            kept_whole = [0] * len(longest)
        for number, column in enumerate(self.columns):
            numeric = self.rows and all(_is_number(row[number]) for row in self.rows)
            table.add_column(column, overflow="fold", no_wrap=number == 0, justify="right" if numeric else "left",
                             min_width=kept_whole[number] or None)  # fmt: skip
        for row in self.rows:
            table.add_row(*row)
        console.print(table)
        for note in self.notes:
            console.print(note, highlight=False)


def _longest(column: str, cells: Sequence[str]) -> int:
    """Characters of the longest cell, or of the longest word of the column's name."""
    return max(map(len, [*cells, *column.split()]), default=0)


def _is_number(cell: str) -> bool:
    """Whether a cell is one, or nothing, or a dash that stands for one."""
    bare = cell.strip("+-%x ").replace(",", "").replace(".", "", 1)
    return bare == "" or bare.isdecimal()
