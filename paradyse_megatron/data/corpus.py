"""A folder of text files as a Megatron dataset (`PREFIX.bin`, `PREFIX.idx`): one document a file, byte-level tokens.

    python -m paradyse_megatron.data.corpus --out data/stdlib

Tokens 0..255 are the bytes of the file, token 256 ends the document: a vocabulary of 257. Documents are in the order
of the files' relative paths. Building again is free while the files are the same, and safe from several processes.
"""

from __future__ import annotations

import argparse
import hashlib
import logging
import sys
import sysconfig
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from paradyse_megatron.data.corpus_files import CorpusInfo, building, exclusive, load_complete, part, publish

EOD_ID = 256
VOCAB_SIZE = 257
EXCLUDED_FOLDERS = ("site-packages", "dist-packages", "__pycache__")
MAX_FILE_BYTES = 2**31 - 2  # Megatron's index keeps the number of tokens of a document in 32 bits

logger = logging.getLogger(__name__)


def default_folder() -> Path:
    """The standard library of the running Python: real text of very different lengths, on every machine."""
    return Path(sysconfig.get_paths()["stdlib"])


def build_corpus(folder: str | Path | None, out_prefix: str | Path, pattern: str = "**/*.py") -> CorpusInfo:
    """Write the files below `folder` (default: `default_folder()`) that match `pattern` to `out_prefix`.bin and .idx.

    Folders named in `EXCLUDED_FOLDERS` are left out, empty and unreadable files too (they are counted). A complete
    corpus of the same files is reused. Raises ValueError when there is nothing to write or something to overwrite,
    OSError when the disk refuses.
    """
    folder = default_folder() if folder is None else Path(folder)
    prefix = Path(out_prefix)
    files = select_files(folder, pattern, prefix)
    fingerprint = _fingerprint(folder, files)
    existing = load_complete(prefix)  # before the lock: a complete corpus may lie where we cannot write
    if existing is None or existing.fingerprint != fingerprint:
        with exclusive(prefix):
            existing = load_complete(prefix)  # another process may have built it meanwhile
            if existing is None or existing.fingerprint != fingerprint:
                if existing is not None:
                    logger.warning("%s is built again: the files below %s are not those it was made of", prefix, folder)
                existing = _build(folder, pattern, files, fingerprint, prefix)
    return existing


def select_files(folder: Path, pattern: str, prefix: Path) -> list[Path]:
    """The files to write, in order of their paths; never the corpus at `prefix` itself.

    Raises ValueError when the folder or the pattern is no good, or nothing matches.
    """
    if not folder.is_dir():
        raise ValueError(f"{folder} is not a folder; --folder takes one that holds text files")
    try:
        matches = list(folder.glob(pattern))
    except (ValueError, NotImplementedError) as error:
        raise ValueError(f"the pattern {pattern!r} cannot be used ({error}); --pattern takes e.g. '**/*.txt'") from None
    own = {part(prefix, suffix).resolve() for suffix in ("bin", "idx", "json", "lock")}
    files = [path for path in matches if not path.is_dir() and _is_wanted(path, folder) and path.resolve() not in own]
    if not files:
        raise ValueError(f"no file below {folder} matches {pattern!r}; change --folder or --pattern")
    return sorted(files, key=lambda path: path.relative_to(folder).parts)


def _is_wanted(path: Path, folder: Path) -> bool:
    return not set(EXCLUDED_FOLDERS).intersection(path.relative_to(folder).parts[:-1])


def _fingerprint(folder: Path, files: Sequence[Path]) -> str:
    """Changes when a file is added, removed, renamed, edited or made (un)readable."""
    digest = hashlib.sha256()
    for path in files:
        try:
            status = path.stat()
            state = f"{status.st_size} {status.st_mtime_ns} {status.st_mode}"
        except OSError:
            state = "unreadable"
        digest.update(f"{path.relative_to(folder).as_posix()}\0{state}\n".encode("utf-8", "surrogateescape"))
    return digest.hexdigest()


def _build(folder: Path, pattern: str, files: Sequence[Path], fingerprint: str, prefix: Path) -> CorpusInfo:
    with building(prefix) as built_prefix:
        counts = _write_documents(files, built_prefix)
        if not counts.documents:
            raise ValueError(
                f"none of the {len(files)} files below {folder} that match {pattern!r} can be used: "
                f"{counts.empty_files} are empty, {counts.unreadable_files} unreadable; change --folder or --pattern"
            )
        info = CorpusInfo(
            num_documents=counts.documents,
            num_tokens=counts.tokens,
            num_empty_files=counts.empty_files,
            num_unreadable_files=counts.unreadable_files,
            folder=str(folder),
            pattern=pattern,
            fingerprint=fingerprint,
            num_bin_bytes=part(built_prefix, "bin").stat().st_size,
            num_idx_bytes=part(built_prefix, "idx").stat().st_size,
            vocab_size=VOCAB_SIZE,
            eod_id=EOD_ID,
        )
        publish(built_prefix, prefix, info)
    return info


@dataclass
class _Counts:
    documents: int = 0
    tokens: int = 0
    empty_files: int = 0
    unreadable_files: int = 0


def _write_documents(files: Sequence[Path], built_prefix: Path) -> _Counts:
    from megatron.core.datasets.indexed_dataset import IndexedDatasetBuilder

    counts = _Counts()
    builder = IndexedDatasetBuilder(str(part(built_prefix, "bin")), dtype=np.uint16)
    for path in files:
        content = _read(path)
        if content is None:
            counts.unreadable_files += 1
        elif not content:
            counts.empty_files += 1
        else:
            tokens = encode(content)
            builder.add_document(tokens, [len(tokens)])
            counts.documents += 1
            counts.tokens += len(tokens)
    builder.finalize(str(part(built_prefix, "idx")))
    return counts


def _read(path: Path) -> bytes | None:
    """The bytes of a regular file, None when it cannot be read. (A named pipe would never end.)"""
    try:
        if not path.is_file():
            return None
        num_bytes = path.stat().st_size
        if num_bytes > MAX_FILE_BYTES:
            raise ValueError(
                f"{path} has {num_bytes:,} bytes; a document may have at most {MAX_FILE_BYTES:,}: "
                "split the file, or leave it out with --pattern"
            )
        return path.read_bytes()
    except OSError:
        return None


def encode(content: bytes) -> np.ndarray:
    """Tokens of one document, uint16 [number of bytes + 1], ending with `EOD_ID`."""
    return np.append(np.frombuffer(content, dtype=np.uint8).astype(np.uint16), np.uint16(EOD_ID))


def main(arguments: Sequence[str] | None = None) -> int:
    """The command line; returns its exit status: 0 done, 2 bad input."""
    parser = argparse.ArgumentParser(
        prog="python -m paradyse_megatron.data.corpus",
        description="Turn a folder of text files into a Megatron dataset: one document a file, byte-level tokens.",
        epilog="example: python -m paradyse_megatron.data.corpus --out data/notes --folder notes --pattern '**/*.md'",
    )
    parser.add_argument("--out", required=True, metavar="PREFIX", help="write PREFIX.bin, PREFIX.idx and PREFIX.json")
    parser.add_argument("--folder", metavar="DIR", help="default: the standard library of this Python")
    parser.add_argument("--pattern", default="**/*.py", metavar="GLOB", help="which files of it; default: %(default)s")
    options = parser.parse_args(arguments)
    try:
        info = build_corpus(options.folder, options.out, options.pattern)
    except ValueError as error:
        sys.stderr.write(f"error: {error}\n")
        return 2
    except OSError as error:
        sys.stderr.write(f"error: the corpus cannot be written to --out {options.out}: {error}\n")
        return 2
    sys.stdout.write(
        f"{options.out}: {info.num_documents:,} documents, {info.num_tokens:,} tokens "
        f"(left out: {info.num_empty_files} empty and {info.num_unreadable_files} unreadable files)\n"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
