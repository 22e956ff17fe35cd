"""The files of a byte-level corpus: what describes it, and how it is put in place without ever being half there.

A corpus is `PREFIX.json` (its description), `PREFIX.bin` and `PREFIX.idx` (Megatron's). They are written into
`PREFIX.building/` and moved in place in that order, after an older `PREFIX.idx` was removed. So an index that exists
always belongs to the tokens beside it, whenever a builder dies. `PREFIX.lock` lets one builder at a time through;
the system releases it with the process that holds it.
"""

from __future__ import annotations

import dataclasses
import fcntl
import json
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

SCHEMA = 1
KIND = "paradyse-byte-corpus"


@dataclass(frozen=True)
class CorpusInfo:
    """What `PREFIX.json` says."""

    num_documents: int
    """Documents in the corpus."""
    num_tokens: int
    """Tokens of all documents, their end-of-document tokens included."""
    num_empty_files: int
    """Files left out because they hold no byte."""
    num_unreadable_files: int
    """Files left out because they could not be read."""
    folder: str
    """The folder that the files came from."""
    pattern: str
    """The glob pattern that chose them."""
    fingerprint: str
    """Hash of the names, sizes, modes and modification times of the files chosen."""
    num_bin_bytes: int
    """Size of `PREFIX.bin`."""
    num_idx_bytes: int
    """Size of `PREFIX.idx`."""
    tokenizer: str = "bytes"
    """Each byte is a token; the document ends with `eod_id`."""
    vocab_size: int = 257
    """Number of different tokens."""
    eod_id: int = 256
    """The end-of-document token."""
    schema: int = SCHEMA
    """Version of this description."""
    kind: str = KIND
    """Tells our description from any other JSON file."""


def part(prefix: Path, suffix: str) -> Path:
    """The file (or folder) `PREFIX.suffix`; the prefix may itself contain dots."""
    return prefix.with_name(f"{prefix.name}.{suffix}")


def load_complete(prefix: Path) -> CorpusInfo | None:
    """The description of the complete corpus at `prefix`, or None when there is none.

    Raises ValueError when files there were not written by this tool: they are never replaced.
    """
    tokens = [path for path in (part(prefix, "bin"), part(prefix, "idx")) if path.exists()]
    info = _load_info(part(prefix, "json"))  # after its tokens: it is published before them
    if info is None:
        if tokens:
            raise ValueError(
                f"{tokens[0]} exists and was not written by this tool ({part(prefix, 'json').name} is not beside it); "
                "choose another --out or remove it"
            )
        return None
    sizes = _num_bytes(part(prefix, "bin")), _num_bytes(part(prefix, "idx"))
    return info if sizes == (info.num_bin_bytes, info.num_idx_bytes) else None


def _load_info(path: Path) -> CorpusInfo | None:
    if not path.exists():
        return None
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except ValueError:
        content = None
    if not isinstance(content, dict) or content.get("kind") != KIND:
        raise ValueError(f"{path} exists and describes no corpus of this tool; choose another --out or remove it")
    keys = {field.name for field in dataclasses.fields(CorpusInfo)}
    if content.get("schema") != SCHEMA or content.keys() != keys:
        raise ValueError(
            f"{path} has schema {content.get('schema')} and keys {sorted(content)}; this version reads schema {SCHEMA} "
            f"and keys {sorted(keys)}; choose another --out or remove it"
        )
    return CorpusInfo(**content)


def _num_bytes(path: Path) -> int | None:
    return path.stat().st_size if path.exists() else None


@contextmanager
def building(prefix: Path) -> Iterator[Path]:
    """The prefix of an empty folder beside `prefix` to build in; it goes away at the end, leftovers of others too.

    Call it while holding `exclusive(prefix)`.
    """
    folder = part(prefix, "building")
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    try:
        yield folder / "corpus"
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def exclusive(prefix: Path) -> Iterator[None]:
    """Wait until no other process builds at `prefix`, and keep others waiting until the end of the block."""
    prefix.parent.mkdir(parents=True, exist_ok=True)
    with open(part(prefix, "lock"), "a", encoding="utf-8") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def publish(built_prefix: Path, prefix: Path, info: CorpusInfo) -> None:
    """Move the corpus built at `built_prefix` to `prefix`, the index last."""
    text = json.dumps(dataclasses.asdict(info), indent=2) + "\n"
    part(built_prefix, "json").write_text(text, encoding="utf-8")
    part(prefix, "idx").unlink(missing_ok=True)
    for suffix in ("json", "bin", "idx"):
        os.replace(part(built_prefix, suffix), part(prefix, suffix))
