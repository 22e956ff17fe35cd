"""The report of a trace: its numbers counted by hand, and a page that needs nothing but itself."""

from __future__ import annotations

import json
import re
import sys
from dataclasses import asdict, replace
from html.parser import HTMLParser

import pytest

from paradyse_megatron.cli.main import main
from paradyse_megatron.planner.option import all_options
from paradyse_megatron.report.looks import look
from paradyse_megatron.report.numbers import MAX_STEPS, numbers
from paradyse_megatron.report.page import write_page
from tests.runtime.test_trace import LINE


def line(iteration, length, plan, **changes):
    return replace(LINE, iteration=iteration, seq_length=length - 1, padded_length=length, plan=plan, **changes)


LINES = [
    line(1, 100, "tp_sp*4", loss=4.0),
    line(1, 200, "tp_sp*4", loss=None),
    line(2, 300, "tp_sp*1,ring+full*3", measured_ms=None, predicted_bytes=None),
    line(2, 3000, "<b>&", predicted_ms=None, measured_bytes=None),
    line(3, 300, "tp_sp*1,ring+full*3", loss=1.0, decision_us=9.0),
    line(3, 300, "tp_sp*4", loss=1.0),
]


@pytest.fixture
def trace(tmp_path):
    path = tmp_path / "trace.jsonl"
    path.write_text("".join(json.dumps(asdict(each)) + "\n" for each in LINES))
    return path


def test_neighbouring_lengths_with_one_plan_are_one_segment():
    found = numbers(LINES).segments
    assert [(each.shortest, each.longest, each.plan, each.microbatches) for each in found] == [
        (100, 200, "tp_sp*4", 2), (300, 300, "tp_sp*1,ring+full*3", 3), (3000, 3000, "<b>&", 1)]  # fmt: skip


def test_shares_add_up_in_every_step():
    found = numbers(LINES).steps
    assert [(each.first, each.last, each.loss) for each in found] == [(1, 1, 4.0), (2, 2, 2.0), (3, 3, 1.0)]
    assert found[2].shares == pytest.approx({"tp_sp": 5 / 8, "ring+full": 3 / 8})
    for count in (MAX_STEPS, MAX_STEPS + 1, 5 * MAX_STEPS + 3):
        many = numbers([line(7 + n, 64, "ring") for n in range(count)]).steps
        assert len(many) <= MAX_STEPS and all(sum(step.shares.values()) == pytest.approx(1) for step in many)
        assert (many[0].first, many[-1].last) == (7, 6 + count)


def test_headline_and_buckets():
    found = numbers(LINES)
    assert found.headline["microbatches"] == sum(bucket.microbatches for bucket in found.buckets) == 6
    assert found.headline["real_tokens"] == sum(bucket.tokens for bucket in found.buckets) == 4200 - 6
    assert found.headline["plan_changes"] == 4
    assert found.headline["decision_us_longest"] == 9.0
    assert found.num_layers == 4


class Reader(HTMLParser):
    """Collects what a page refers to, and whether its elements close."""

    def __init__(self):
        super().__init__()
        self.open, self.references, self.ids, self.tags = [], [], [], []

    def handle_starttag(self, tag, attributes):
        self.tags.append(tag)
        if tag not in ("meta", "br"):
            self.open.append(tag)
        for name, value in attributes:
            if name.rpartition(":")[2] in ("href", "src"):
                self.references.append(value)
            if name == "id":
                self.ids.append(value)

    def handle_startendtag(self, tag, attributes):
        self.handle_starttag(tag, attributes)
        if tag not in ("meta", "br"):
            self.open.pop()

    def handle_endtag(self, tag):
        assert self.open.pop() == tag


def read(page):
    reader = Reader()
    reader.feed(page.read_text("utf-8"))
    assert not reader.open
    return reader


def test_the_page_needs_nothing_but_itself(trace, tmp_path, capsys):
    pytest.importorskip("matplotlib")
    assert main(["report", str(trace), "--out", str(tmp_path / "out")]) == 0
    assert "report.html" in capsys.readouterr().out.replace("\n", "")
    page, pictures = tmp_path / "out" / "report.html", list((tmp_path / "out").glob("*.png"))
    reader = read(page)
    assert len(pictures) == 7 == reader.tags.count("svg")
    assert all(picture.read_bytes().startswith(b"\x89PNG") for picture in pictures)
    assert not {"script", "link", "iframe", "b"} & set(reader.tags)  # the plan <b>& is shown, not obeyed
    assert all(each.startswith(("#", "data:")) for each in reader.references)
    text = page.read_text("utf-8")
    assert "&lt;b&gt;&amp;" in text and not re.search(r"(?:src|href|url)\W{0,3}https?:|@import", text)
    assert len(reader.ids) == len(set(reader.ids))
    targets = {each[1:] for each in reader.references if each.startswith("#")} | set(
        re.findall(r"url\(#([^)]+)\)", text)
    )
    assert targets and targets <= set(reader.ids)
    assert 'name="viewport"' in text


@pytest.mark.parametrize("blank", [{"predicted_ms": None, "predicted_bytes": None}, {"measured_ms": None,
                         "measured_bytes": None, "loss": None}])  # fmt: skip
def test_what_a_trace_does_not_know_leaves_a_gap(tmp_path, blank):
    pytest.importorskip("matplotlib")
    page, _ = write_page(numbers([replace(LINE, **blank)]), tmp_path / "t", tmp_path)
    read(page)
    text = page.read_text("utf-8")
    assert "unknown" in text
    assert ("not in this trace" in text) == ("loss" in blank)


def test_json_holds_the_numbers_and_writes_nothing(trace, capsys):
    assert main(["report", str(trace), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["headline"]["iterations"] == 3 and len(found["lines"]) == len(LINES)
    assert [entry.name for entry in trace.parent.iterdir()] == [trace.name]


@pytest.mark.parametrize(
    ("content", "part"),
    [
        (b"", "empty"),
        (b"\n\n", "empty"),
        (b'{"iteration": 1}\n', "Line 1"),
        (b"[1, 2]\n", "Line 1"),
        (b"some words\n", "Line 1"),
        (b'{"schema": 1}', "Line 1"),
        (b"\x89PNG\r\n\x1a\n\xff\xfe\x00", "binary"),
        (json.dumps(asdict(LINE)).encode() + b"\n" + b'{"iteration": 2, "mic', "Line 2"),
        (json.dumps(asdict(LINE)).encode() + b"\n" + b'{"iteration": 2, "mic\n', "Line 2"),
        (json.dumps(asdict(LINE) | {"seq_length": "long"}).encode() + b"\n", "seq_length"),
        (None, "cannot be read"),
    ],
)
def test_a_broken_trace_is_one_sentence_and_exit_2(tmp_path, capsys, content, part):
    path = tmp_path / "trace.jsonl"
    if content is not None:
        path.write_bytes(content)
    assert main(["report", str(path), "--json"]) == 2
    printed = capsys.readouterr()
    assert part in printed.err and printed.err.count("\n") == 1 and not printed.out


def test_lines_before_a_cut_are_reported_on_request(tmp_path, capsys):
    path = tmp_path / "trace.jsonl"
    path.write_text(json.dumps(asdict(LINE)) + "\n" + '{"iter')
    assert main(["report", str(path), "--json", "--partial"]) == 0
    assert json.loads(capsys.readouterr().out)["headline"]["microbatches"] == 1


def test_a_folder_that_cannot_be_made_and_a_missing_library(trace, capsys, monkeypatch):
    assert main(["report", str(trace), "--out", "/proc/nothing"]) == 2
    assert "--out" in capsys.readouterr().err
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    assert main(["report", str(trace)]) == 2
    assert "paradyse-megatron[report]" in capsys.readouterr().err


def test_every_option_looks_different_in_black_and_white():
    names = [look(str(option)).name for option in all_options()]
    hatches = [look(str(option)).hatch for option in all_options() if option.mlp in ("tp_sp", "gathered")]
    assert len(set(names)) == len(names) == len(all_options()) and "?" not in "".join(names)
    assert len(hatches) > 12
    assert look("tp_sp").hatch != look("tp_sp+full").hatch != look("ring+full").hatch
    assert look("of another version").name == "?"
