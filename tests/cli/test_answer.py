"""Tables on screens of several widths."""

from __future__ import annotations

import pytest

from paradyse_megatron.cli.answer import Answer

PLAN = "ulysses+full*11,ulysses/streamed+full*13,upipe/streamed+full*7,metp+selective*1;head=chunked"
ROWS = [("tp_sp", "1,234,567", "120,130", PLAN), ("ulysses/streamed+full", "89", "7", "ring")]


@pytest.fixture
def shown(monkeypatch, capsys):
    def at(columns: int) -> list[str]:
        monkeypatch.setenv("COLUMNS", str(columns))
        Answer({}, "", ("option", "layer ms", "peak MiB", "plan"), ROWS).show()
        return capsys.readouterr().out.splitlines()

    return at


def test_numbers_stay_whole_and_end_at_the_same_column(shown):
    lines = shown(80)
    first, last = (next(line for line in lines if number in line) for number in ("120,130", "89"))
    assert "1,234,567" in first
    assert first.index("1,234,567") + len("1,234,567") == last.index("89") + len("89")
    assert "".join(line[first.index("ulysses+full") :].strip() for line in lines[lines.index(first) :]).startswith(PLAN)


def test_many_narrow_columns_are_not_broken_where_they_fit(monkeypatch, capsys):
    """The columns of `explain`, which take 79 of 80 characters."""
    monkeypatch.setenv("COLUMNS", "80")
    columns = ("option", "layer ms", "saved MiB", "work MiB", "all ms", "peak MiB", "fits", "layers")
    row = ("upipe/streamed+selective", "200", "3,258", "2,141", "6,448", "120,130", "yes", "27")
    Answer({}, "", columns, [row]).show()
    assert any(all(cell in line for cell in row) for line in capsys.readouterr().out.splitlines())


def test_a_screen_that_is_too_narrow_breaks_cells_but_loses_nothing(shown):
    letters = "".join("".join(shown(44)).split())
    assert all(letters.count(digit) >= "".join(map("".join, ROWS)).count(digit) for digit in "0123456789")
