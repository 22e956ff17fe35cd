"""The corpus builder: what it writes, what it leaves out, and that nothing is ever half there."""

from __future__ import annotations

import json
import multiprocessing
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from megatron.core.datasets.indexed_dataset import IndexedDataset

from paradyse_megatron.data import corpus, corpus_files
from paradyse_megatron.data.corpus import build_corpus, main

fork = multiprocessing.get_context("fork")  # children start with Megatron already imported


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return write_files(tmp_path / "texts", {"b.py": b"second", "a.py": b"first\n", "sub/c.py": "thïrd".encode()})


def write_files(folder: Path, contents: dict[str, bytes]) -> Path:
    for name, content in contents.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(content)
    return folder


def texts(prefix: Path) -> list[bytes]:
    """The documents as stock Megatron reads them; checks that each ends with the end-of-document token."""
    indexed = IndexedDataset(str(prefix))
    documents = [indexed[i].copy() for i in range(len(indexed))]
    assert list(indexed.document_indices) == list(range(len(documents) + 1))
    assert all(tokens[-1] == 256 and tokens[:-1].max() < 256 for tokens in documents)
    return [tokens[:-1].astype(np.uint8).tobytes() for tokens in documents]


def test_stock_megatron_reads_one_document_a_file_in_order_of_paths(folder: Path, tmp_path: Path) -> None:
    info = build_corpus(folder, tmp_path / "out" / "corpus")
    assert texts(tmp_path / "out" / "corpus") == [b"first\n", b"second", "thïrd".encode()]
    assert (info.num_documents, info.num_tokens) == (3, 7 + 7 + 7)
    assert json.loads((tmp_path / "out" / "corpus.json").read_text())["num_tokens"] == 21


def test_empty_unreadable_and_excluded_files_are_left_out_and_counted(folder: Path, tmp_path: Path) -> None:
    write_files(folder, {"empty.py": b"", "site-packages/x.py": b"x", "sub/__pycache__/y.py": b"y", "note.txt": b"no"})
    (folder / "broken.py").symlink_to("nowhere.py")
    os.mkfifo(folder / "pipe.py")
    (folder / "directory.py").mkdir()
    info = build_corpus(folder, tmp_path / "corpus")
    assert (info.num_documents, info.num_empty_files, info.num_unreadable_files) == (3, 1, 2)
    assert len(texts(tmp_path / "corpus")) == 3


def test_bytes_that_are_no_text_survive(tmp_path: Path) -> None:
    folder = write_files(tmp_path / "texts", {"all.py": bytes(range(256))})
    build_corpus(folder, tmp_path / "corpus")
    assert texts(tmp_path / "corpus") == [bytes(range(256))]


def test_the_corpus_never_swallows_itself(folder: Path) -> None:
    for _ in range(2):
        assert build_corpus(folder, folder / "corpus", "**/*").num_documents == 3


def test_a_prefix_with_dots_keeps_its_name(folder: Path, tmp_path: Path) -> None:
    build_corpus(folder, tmp_path / "v1.2")
    assert {path.name for path in tmp_path.glob("v1*")} == {"v1.2.bin", "v1.2.idx", "v1.2.json", "v1.2.lock"}


def test_the_same_files_are_not_written_again(folder: Path, tmp_path: Path) -> None:
    first = build_corpus(folder, tmp_path / "corpus")
    before = [os.stat(tmp_path / f"corpus.{suffix}").st_ino for suffix in ("bin", "idx", "json")]
    assert build_corpus(folder, tmp_path / "corpus") == first
    assert [os.stat(tmp_path / f"corpus.{suffix}").st_ino for suffix in ("bin", "idx", "json")] == before


def test_a_complete_corpus_is_reused_where_nothing_can_be_written(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = build_corpus(folder, tmp_path / "corpus")
    monkeypatch.setattr(corpus, "exclusive", None)
    assert build_corpus(folder, tmp_path / "corpus") == first


@pytest.mark.parametrize("change", ["edit", "add", "remove", "rename"])
def test_changed_files_are_written_again(folder: Path, tmp_path: Path, change: str) -> None:
    build_corpus(folder, tmp_path / "corpus")
    if change == "edit":
        (folder / "b.py").write_bytes(b"sEcond")
        os.utime(folder / "b.py", ns=(1, 1))
    elif change == "add":
        (folder / "d.py").write_bytes(b"fourth")
    elif change == "remove":
        (folder / "a.py").unlink()
    else:
        (folder / "a.py").rename(folder / "z.py")
    build_corpus(folder, tmp_path / "corpus")
    expected = [path.read_bytes() for path in corpus.select_files(folder, "**/*.py", tmp_path / "corpus")]
    assert texts(tmp_path / "corpus") == expected


@pytest.mark.parametrize("suffix", ["bin", "idx"])
def test_a_damaged_corpus_is_written_again(folder: Path, tmp_path: Path, suffix: str) -> None:
    build_corpus(folder, tmp_path / "corpus")
    os.truncate(tmp_path / f"corpus.{suffix}", 20)
    build_corpus(folder, tmp_path / "corpus")
    assert len(texts(tmp_path / "corpus")) == 3


@pytest.mark.parametrize("name", ["corpus.bin", "corpus.idx", "corpus.json"])
@pytest.mark.parametrize("content", ["precious", '{"kind": "other"}'])
def test_files_of_others_are_never_replaced(folder: Path, tmp_path: Path, name: str, content: str) -> None:
    (tmp_path / name).write_text(content)
    with pytest.raises(ValueError, match=rf"{name} exists .*choose another --out or remove it"):
        build_corpus(folder, tmp_path / "corpus")
    assert (tmp_path / name).read_text() == content


def test_a_description_of_another_schema_is_refused(folder: Path, tmp_path: Path) -> None:
    build_corpus(folder, tmp_path / "corpus")
    path = tmp_path / "corpus.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"schema": 2}))
    with pytest.raises(ValueError, match=r"schema 2 .*reads schema 1"):
        build_corpus(folder, tmp_path / "corpus")


def test_a_file_too_long_for_the_index_is_named(folder: Path, tmp_path: Path) -> None:
    with open(folder / "huge.py", "wb") as file:
        file.truncate(2**31)  # sparse: takes no space
    with pytest.raises(ValueError, match=r"huge\.py has 2,147,483,648 bytes; .*--pattern"):
        build_corpus(folder, tmp_path / "corpus")
    assert {path.name for path in tmp_path.iterdir()} == {"texts", "corpus.lock"}


def test_the_command_line(folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--out", str(tmp_path / "corpus"), "--folder", str(folder)]) == 0
    assert "3 documents, 21 tokens" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("folder_name", "pattern", "sentence"),
    [
        ("nowhere", "**/*.py", "nowhere is not a folder; --folder takes"),
        ("texts", "*.rs", "matches '*.rs'; change --folder or --pattern"),
        ("texts", "/etc/*", "the pattern '/etc/*' cannot be used"),
        ("texts", "", "the pattern '' cannot be used"),
        ("texts", "hollow/*", "none of the 1 files"),
    ],
)
def test_bad_input_is_one_sentence_and_status_2(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], folder_name: str, pattern: str, sentence: str
) -> None:
    write_files(folder, {"hollow/empty.py": b""})
    out = tmp_path / "corpus"
    assert main(["--out", str(out), "--folder", str(tmp_path / folder_name), "--pattern", pattern]) == 2
    captured = capsys.readouterr()
    assert sentence in captured.err and captured.err.count("\n") == 1 and not captured.out
    assert not list(tmp_path.glob("corpus.[bij]*"))


def test_a_place_that_cannot_be_written_is_one_sentence_and_status_2(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["--out", str(folder / "a.py" / "corpus"), "--folder", str(folder)]) == 2
    assert "cannot be written to --out" in capsys.readouterr().err


def test_the_default_folder_is_the_standard_library() -> None:
    files = corpus.select_files(corpus.default_folder(), "**/*.py", Path("corpus"))
    assert len(files) > 400  # some distributions leave its tests out
    assert any(path.name == "argparse.py" for path in files)
    assert not [path for path in files if "site-packages" in path.parts or "dist-packages" in path.parts]


def test_importing_the_module_imports_neither_torch_nor_megatron() -> None:
    modules = ("corpus", "corpus_files", "documents", "order", "splits")
    imports = "; ".join(f"import paradyse_megatron.data.{name}" for name in modules)
    check = "import sys; sys.exit(int('torch' in sys.modules or 'megatron' in sys.modules))"
    assert subprocess.run([sys.executable, "-c", f"{imports}; {check}"], timeout=60).returncode == 0


def kill_me_at_call(target: object, name: str, number: int) -> None:
    """Replace `target.name` with one that kills this process, as `kill -9` does, at its `number`-th call."""
    original: Callable[..., object] = getattr(target, name)
    calls = iter(range(10**6))

    def counted(*args: object, **kwargs: object) -> object:
        if next(calls) == number:
            os.kill(os.getpid(), signal.SIGKILL)
        return original(*args, **kwargs)

    setattr(target, name, counted)


def build_and_die(folder: Path, prefix: Path, target: object, name: str, number: int) -> None:
    kill_me_at_call(target, name, number)
    build_corpus(folder, prefix)


PLACES = [
    (corpus, "encode", 0),  # (where, function, at its n-th call)
    (corpus, "encode", 2),
    (corpus, "publish", 0),
    (corpus_files.os, "replace", 0),
    (corpus_files.os, "replace", 1),
    (corpus_files.os, "replace", 2),
]


@pytest.mark.parametrize(("target", "name", "number"), PLACES)
@pytest.mark.parametrize("is_rebuild", [False, True])
def test_a_killed_builder_leaves_nothing_half(
    folder: Path, tmp_path: Path, target: object, name: str, number: int, is_rebuild: bool
) -> None:
    prefix = tmp_path / "corpus"
    old = [b"first\n", b"second", "thïrd".encode()]
    if is_rebuild:
        build_corpus(folder, prefix)
    write_files(folder, {"a.py": b"longer than before", "d.py": b"new"})
    new = [b"longer than before", b"second", b"new", "thïrd".encode()]

    child = fork.Process(target=build_and_die, args=(folder, prefix, target, name, number))
    child.start()
    child.join(60)
    assert child.exitcode == -signal.SIGKILL
    if IndexedDataset.exists(str(prefix)):
        assert is_rebuild and texts(prefix) == old

    assert build_corpus(folder, prefix).num_documents == 4
    assert texts(prefix) == new
    assert not (tmp_path / "corpus.building").exists()


def build_and_note(folder: Path, prefix: Path, start: object, notes: Path) -> None:
    """Build once all processes are ready; a line in `notes` for each real build."""
    original = corpus._build

    def noted(*args: object) -> object:
        with open(notes, "a") as file:
            file.write(f"{folder.name}\n")
        return original(*args)  # type: ignore[arg-type]

    corpus._build = noted  # type: ignore[assignment]
    start.wait()  # type: ignore[attr-defined]
    build_corpus(folder, prefix)


def build_at_once(folders: list[Path], prefix: Path, notes: Path) -> list[str]:
    start = fork.Barrier(len(folders))
    children = [fork.Process(target=build_and_note, args=(folder, prefix, start, notes)) for folder in folders]
    for child in children:
        child.start()
    for child in children:
        child.join(60)
    assert [child.exitcode for child in children] == [0] * len(children)
    return notes.read_text().split()


def build_many(folder: Path, prefixes: list[Path]) -> None:
    for prefix in prefixes:
        build_corpus(folder, prefix)


def test_a_corpus_that_is_being_published_is_never_taken_for_a_foreign_one(tmp_path: Path) -> None:
    folder = write_files(tmp_path / "texts", {"a.py": b"text"})
    prefixes = [tmp_path / f"corpus{i}" for i in range(100)]
    builder = fork.Process(target=build_many, args=(folder, prefixes))
    builder.start()
    end = time.monotonic() + 60
    for prefix in prefixes:
        while corpus_files.load_complete(prefix) is None:
            assert time.monotonic() < end
    builder.join(60)
    assert builder.exitcode == 0


def test_two_builders_at_once_build_once(tmp_path: Path) -> None:
    folder = write_files(tmp_path / "texts", {f"{i:03}.py": bytes([i]) * 5000 for i in range(100)})
    assert build_at_once([folder] * 3, tmp_path / "corpus", tmp_path / "notes") == ["texts"]
    assert len(texts(tmp_path / "corpus")) == 100


def test_two_builders_of_different_folders_leave_one_whole_corpus(tmp_path: Path) -> None:
    ones = write_files(tmp_path / "ones", {f"{i:03}.py": b"1" * 1000 for i in range(100)})
    twos = write_files(tmp_path / "twos", {f"{i:03}.py": b"22" * 900 for i in range(80)})
    assert sorted(build_at_once([ones, twos], tmp_path / "corpus", tmp_path / "notes")) == ["ones", "twos"]
    folder = Path(json.loads((tmp_path / "corpus.json").read_text())["folder"])
    assert texts(tmp_path / "corpus") == [path.read_bytes() for path in sorted(folder.iterdir())]
