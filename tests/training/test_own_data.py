"""The recipe of docs/data.md, from texts and a Hugging Face tokenizer to training; on two nodes, each with one rank."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import sysconfig
from pathlib import Path

from paradyse_megatron.data.tokenized import write_dataset
from paradyse_megatron.runtime.trace import read_trace
from tests.data.tokenizers import make_tokenizer
from tests.ranks import REPOSITORY
from tests.training.runs import MODEL

FLAGS = "--tensor-model-parallel-size 2 --train-iters 2 --split 100,0,0 --tokenizer-type HuggingFaceTokenizer"


def _free_port() -> str:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return str(probe.getsockname()[1])


def test_texts_and_a_tokenizer_train_on_two_nodes(tmp_path):
    sources = sorted(Path(sysconfig.get_paths()["stdlib"]).glob("*.py"))[:12]
    texts = [path.read_text("utf-8")[: 30 + 45 * place] for place, path in enumerate(sources)]
    (tmp_path / "texts.jsonl").write_text("".join(json.dumps({"text": text}) + "\n" for text in texts), "utf-8")
    tokenizer = make_tokenizer(tmp_path / "tokenizer", texts)
    found = write_dataset(tokenizer, [tmp_path / "texts.jsonl"], tmp_path / "data")
    assert found.num_documents == 12

    command = [sys.executable, "-m", "paradyse_megatron.integration.launch", *MODEL, *FLAGS.split()]
    command += ["--tokenizer-model", tokenizer, "--vocab-size", str(found.vocab_size)]
    shared = {"NNODES": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": _free_port(), "PARADYSE_NPROC": "1",
              "PARADYSE_OUT": str(tmp_path), "DATA_PATH": str(tmp_path / "data"), "CUDA_VISIBLE_DEVICES": "",
              "OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo"}  # fmt: skip
    nodes = [
        subprocess.Popen(command, env=os.environ | shared | {"NODE_RANK": str(rank)}, cwd=REPOSITORY, text=True,
                         stdout=subprocess.PIPE, stderr=subprocess.STDOUT) for rank in range(2)
    ]  # fmt: skip
    try:
        output = [node.communicate(timeout=200)[0] for node in nodes]
    finally:
        for node in nodes:
            node.kill()
    assert [node.returncode for node in nodes] == [0, 0], output
    assert ["Plans by length" in text for text in output] == [True, False]
    lines = read_trace(tmp_path / "trace.jsonl")
    assert len(lines) == 8 and len({line.seq_length for line in lines}) > 4
