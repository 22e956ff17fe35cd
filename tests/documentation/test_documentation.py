"""README and docs say what is so: flags, metrics, rooms, error texts, links, files, and every `paradyse` command."""

from __future__ import annotations

import ast
import itertools
import re
import shlex
import tomllib
from pathlib import Path

import pytest

from paradyse_megatron.cli import main as cli
from paradyse_megatron.cli.answer import Answer
from paradyse_megatron.runtime.metrics import KEYS
from tests.documentation.pages import FLAGS_PAGE, with_table
from tests.ranks import REPOSITORY

PAGES = [REPOSITORY / name for name in ("README.md", "CHANGELOG.md", "CONTRIBUTING.md")]
PAGES += sorted((REPOSITORY / "docs").glob("*.md"))
PACKAGE = REPOSITORY / "paradyse_megatron"


def test_the_table_of_flags_is_that_of_the_parser():
    page = FLAGS_PAGE.read_text("utf-8")
    assert "--dynamic-parallel" in page and page == with_table(page), "python -m tests.documentation.pages"


def test_every_metric_is_explained():
    told = set(re.findall(r"^\| `([^`]+)` \|", (REPOSITORY / "docs" / "metrics.md").read_text("utf-8"), re.M))
    assert told == {*KEYS, "share/OPTION"}


def test_every_room_is_on_the_page_and_in_the_picture():
    folders = [path for path in PACKAGE.iterdir() if path.is_dir() and path.name != "__pycache__"]
    rooms = {path.name for path in folders if any(path.rglob("*.[ch]*"))} | {
        path.name for path in PACKAGE.iterdir() if (path / "__init__.py").exists()
    }
    assert len(rooms) >= 16
    page = (REPOSITORY / "docs" / "architecture.md").read_text("utf-8")
    assert set(re.findall(r"^\| `(\w+)` \|", page, re.M)) == rooms
    picture = (REPOSITORY / "docs" / "pictures" / "house.svg").read_text("utf-8")
    assert set(re.findall(r'class="name"[^>]*>(\w+)<', picture)) == rooms


def test_the_picture_has_the_storeys_of_the_import_contract():
    contracts = tomllib.loads((REPOSITORY / "pyproject.toml").read_text("utf-8"))["tool"]["importlinter"]["contracts"]
    storeys = [re.split(r"\s*:\s*", storey) for storey in contracts[0]["layers"]]
    picture = (REPOSITORY / "docs" / "pictures" / "house.svg").read_text("utf-8")
    height = {name: int(y) for y, name in re.findall(r'y="(\d+)" class="name"[^>]*>(\w+)<', picture)}
    drawn = [{height[name] for name in storey} for storey in storeys]
    assert all(len(heights) == 1 for heights in drawn)
    assert [max(heights) for heights in drawn] == sorted(max(heights) for heights in drawn)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_and_files_exist(page):
    text = page.read_text("utf-8")
    links = [link for link in re.findall(r"\]\(([^)#\s]+)", text) if not link.startswith("http")]
    named = re.findall(r"`((?:configs|scripts|tests|docs|paradyse_megatron)/[\w./-]+)`", text)
    for place in [*(page.parent / link for link in links), *(REPOSITORY / name for name in named)]:
        assert place.exists(), f"{page.name}: {place}"


def _commands() -> list[str]:
    """Lines of code blocks that begin with `paradyse`."""
    found = []
    for page in PAGES:
        for line in page.read_text("utf-8").replace("\\\n", " ").splitlines():
            match = re.match(r"    +(?:\.venv/bin/)?(paradyse \w.*)", line)
            if match:
                found.append(match[1])
    return sorted(set(found))


def test_there_are_commands():
    verbs = {command.split()[1] for command in _commands()}
    assert verbs == set(cli.VERBS), verbs ^ set(cli.VERBS)


MADE_BY_TRAINING = "runs/demo/"


@pytest.mark.parametrize("command", _commands())
def test_every_command_is_one_that_the_command_line_takes(command, monkeypatch):
    """Cheap ones run; of the others the arguments are read. Files that a run leaves are not looked for."""
    words = shlex.split(command, comments=True)[1:]
    named = [word for word in words if word.startswith("configs/") and "--out" not in words[words.index(word) - 1]]
    assert all((REPOSITORY / word).exists() for word in named)
    monkeypatch.chdir(REPOSITORY)
    if words[0] not in ("plan", "explain", "strategies") or MADE_BY_TRAINING in command:
        monkeypatch.setattr(cli.VERBS[words[0]], "run", lambda asked: Answer({}, "", (), ()))
    assert cli.main(words) == 0


def _sentences(source: str) -> list[str]:
    """Texts of a module, with … for what is filled in."""
    found = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.JoinedStr):
            found.append("".join(part.value if isinstance(part, ast.Constant) else "…" for part in node.values))
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            found.append(node.value)
    return found


def _troubles() -> list[tuple[str, str]]:
    page = (REPOSITORY / "docs" / "troubleshooting.md").read_text("utf-8")
    rows = re.findall(r"^\| `([^`]+)` \| .* \| (tests/[\w/.]+) \|$", page, re.M)
    assert len(rows) >= 20
    return rows


SENTENCES = [sentence for path in PACKAGE.rglob("*.py") for sentence in _sentences(path.read_text("utf-8"))]


@pytest.mark.parametrize(("told", "test"), _troubles())
def test_every_error_text_is_one_of_the_code_and_of_a_test(told, test):
    pattern = re.compile(re.sub("…", ".*", re.escape(told).replace(re.escape("…"), "…")), re.S)
    assert any(pattern.fullmatch(sentence) for sentence in SENTENCES), told
    fragments = [part for part in _sentences(Path(REPOSITORY / test).read_text("utf-8")) if len(part) >= 4]
    assert any(word in part for part in fragments for word in _pieces(told)), (told, test)


def _pieces(told: str) -> set[str]:
    """Words of a sentence by which a test may know it."""
    words = re.findall(r"[\w*-]+", told)
    long = {word for word in words if len(word) > 7 or re.search(r"\d\w{3}", word)}
    return long | {f"{one} {two}" for one, two in itertools.pairwise(words)}
