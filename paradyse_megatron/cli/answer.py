"""What a verb found: for people a table, for scripts JSON."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from rich import box
from rich.console import Console
from rich.table import Table


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
        for number, column in enumerate(self.columns):
            table.add_column(column, overflow="fold", no_wrap=number == 0)
        for row in self.rows:
            table.add_row(*row)
        console.print(table)
        for note in self.notes:
            console.print(note, highlight=False)
