"""Texts and a Hugging Face tokenizer to a Megatron dataset; training on one is in training/test_own_data.py."""

from __future__ import annotations

import json

import pytest

from paradyse_megatron.data.tokenized import main, write_dataset
from tests.data.tokenizers import make_tokenizer

TEXTS = ["def first():\n    return 1\n", "", "ünïcode: 語\n" * 40, "x"]


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory):
    return make_tokenizer(tmp_path_factory.mktemp("tokenizer"), TEXTS)


@pytest.fixture
def jsonl(tmp_path):
    path = tmp_path / "texts.jsonl"
    path.write_text("".join(json.dumps({"body": text, "other": 1}) + "\n" for text in TEXTS), "utf-8")
    return path


def test_each_text_is_a_document_that_ends_with_the_end_token(tmp_path, tokenizer, jsonl, capsys):
    from megatron.core.datasets.indexed_dataset import IndexedDataset
    from transformers import AutoTokenizer

    plain = tmp_path / "plain.txt"
    plain.write_text("one whole file\nof two lines\n", "utf-8")
    files = [str(jsonl), str(plain)]
    assert main(["--tokenizer", tokenizer, "--out", str(tmp_path / "a.b" / "x"), "--json-key", "body", *files]) == 0
    assert "4 documents" in capsys.readouterr().out
    known, found = AutoTokenizer.from_pretrained(tokenizer), IndexedDataset(str(tmp_path / "a.b" / "x"))
    documents = [found[place].tolist() for place in range(len(found))]
    assert all(ids[-1] == known.eos_token_id for ids in documents)
    assert [known.decode(ids[:-1]) for ids in documents] == [t for t in TEXTS if t] + [plain.read_text("utf-8")]


@pytest.mark.parametrize(
    ("change", "part"),
    [
        ({"json_key": "text"}, "line 1, has no text under the key 'text'; name it by --json-key"),
        ({"tokenizer_path": "/nowhere/tokenizer"}, "--tokenizer /nowhere/tokenizer cannot be loaded"),
        ({"line": "{"}, "line 5, is not JSON"),
        ({"file": "absent.txt"}, "absent.txt cannot be read"),
    ],
)
def test_bad_input_is_named_and_leaves_nothing(tmp_path, tokenizer, jsonl, change, part):
    with open(jsonl, "a", encoding="utf-8") as lines:
        lines.write(change.get("line", ""))
    files = [jsonl, *([tmp_path / change["file"]] if "file" in change else [])]
    with pytest.raises(ValueError, match=part):
        write_dataset(change.get("tokenizer_path", tokenizer), files, tmp_path / "x", change.get("json_key", "body"))
    assert not list(tmp_path.glob("x.*"))


def test_an_existing_dataset_is_left_alone(tmp_path, tokenizer, jsonl):
    (tmp_path / "x.bin").write_text("precious")
    with pytest.raises(ValueError, match="exists; choose another --out"):
        write_dataset(tokenizer, [jsonl], tmp_path / "x", "body")
    assert (tmp_path / "x.bin").read_text() == "precious"
