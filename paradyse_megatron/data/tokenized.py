"""Texts as a Megatron dataset (`PREFIX.bin`, `PREFIX.idx`) by a Hugging Face tokenizer, a text a document.

    python -m paradyse_megatron.data.tokenized --tokenizer path/or/name --out data/code texts.jsonl more/*.txt

Of a .jsonl file each line is a document, its text under --json-key; any other file is a document as a whole. Each ends
with the tokenizer's end-of-text token, as `--tokenizer-type HuggingFaceTokenizer` expects it. A dataset of Megatron's
own tools/preprocess_data.py --append-eod serves as well.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np


class Written(NamedTuple):
    """What a dataset holds.

    Attributes:
        num_documents, num_tokens: with their end-of-text tokens.
        num_empty: texts left out because they had no token.
        vocab_size: --vocab-size of a model for it; the tokenizer's, added tokens included.
    """

    num_documents: int
    num_tokens: int
    num_empty: int
    vocab_size: int


def write_dataset(tokenizer_path: str, files: Sequence[Path], out_prefix: Path, json_key: str = "text") -> Written:
    """Write the texts of `files`, in their order. Raises ValueError where one is no good, and leaves nothing."""
    tokenizer = _tokenizer(tokenizer_path)
    targets = [out_prefix.with_name(f"{out_prefix.name}.{suffix}") for suffix in ("bin", "idx")]
    taken = next((path for path in targets if path.exists()), None)
    if taken is not None:
        raise ValueError(f"{taken} exists; choose another --out or remove it.")
    out_prefix.parent.mkdir(parents=True, exist_ok=True)
    try:
        return _write(tokenizer, files, targets, json_key)
    except BaseException:
        for path in targets:
            path.unlink(missing_ok=True)
        raise


def _write(tokenizer: Any, files: Sequence[Path], targets: Sequence[Path], json_key: str) -> Written:
    from megatron.core.datasets.indexed_dataset import DType, IndexedDatasetBuilder

    builder = IndexedDatasetBuilder(str(targets[0]), dtype=DType.optimal_dtype(len(tokenizer)))
    num_documents = num_tokens = num_empty = 0
    for text in _texts(files, json_key):
        ids = tokenizer.encode(text, add_special_tokens=False)
        if not ids:
            num_empty += 1
            continue
        builder.add_document(np.asarray([*ids, tokenizer.eos_token_id]), [len(ids) + 1])
        num_documents += 1
        num_tokens += len(ids) + 1
    if not num_documents:
        raise ValueError(f"the {len(files)} files hold no text; name others.")
    builder.finalize(str(targets[1]))
    return Written(num_documents, num_tokens, num_empty, len(tokenizer))


def _tokenizer(path: str) -> Any:
    from transformers import AutoTokenizer

    try:
        tokenizer = AutoTokenizer.from_pretrained(path)
    except (OSError, ValueError) as error:
        reason = str(error).strip().splitlines()[0]
        raise ValueError(f"--tokenizer {path} cannot be loaded: {reason}") from error
    if tokenizer.eos_token_id is None:
        raise ValueError(f"--tokenizer {path} has no end-of-text token (eos_token), which has to end each document.")
    return tokenizer


def _texts(files: Sequence[Path], json_key: str) -> Iterator[str]:
    for path in files:
        try:
            if path.suffix != ".jsonl":
                yield path.read_text("utf-8")
                continue
            with open(path, encoding="utf-8") as lines:
                for number, line in enumerate(lines, 1):
                    yield _text_of(line, json_key, f"{path}, line {number},")
        except (OSError, UnicodeDecodeError) as error:
            raise ValueError(f"{path} cannot be read: {error}.") from error


def _text_of(line: str, json_key: str, where: str) -> str:
    try:
        found = json.loads(line)
    except ValueError as error:
        raise ValueError(f"{where} is not JSON: {error}.") from error
    text = found.get(json_key) if isinstance(found, dict) else None
    if not isinstance(text, str):
        raise ValueError(f"{where} has no text under the key '{json_key}'; name it by --json-key.")
    return text


def main(arguments: Sequence[str] | None = None) -> int:
    """The command line; exit status 0 done, 2 bad input."""
    parser = argparse.ArgumentParser(
        prog="python -m paradyse_megatron.data.tokenized",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("files", nargs="+", type=Path, metavar="FILE", help=".jsonl, or text of one document")
    parser.add_argument("--tokenizer", required=True, metavar="PATH", help="folder or name of a Hugging Face tokenizer")
    parser.add_argument("--out", required=True, type=Path, metavar="PREFIX", help="write PREFIX.bin and PREFIX.idx")
    parser.add_argument("--json-key", default="text", metavar="KEY", help="of the text in a line (default: text)")
    asked = parser.parse_args(arguments)
    try:
        found = write_dataset(asked.tokenizer, asked.files, asked.out, asked.json_key)
    except ValueError as error:
        sys.stderr.write(f"error: {error}\n")
        return 2
    sys.stdout.write(
        f"{asked.out}: {found.num_documents:,} documents, {found.num_tokens:,} tokens ({found.num_empty} empty texts "
        f"left out); train with --tokenizer-type HuggingFaceTokenizer --tokenizer-model {asked.tokenizer} "
        f"--vocab-size {found.vocab_size}\n"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
