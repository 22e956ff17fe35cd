"""Shapes from YAML, Hugging Face and Megatron command lines, and sentences for what describes none."""

import json

import pytest

from paradyse_megatron.costmodel.model_sources import read_shape

LLAMA = {
    "model_type": "llama",
    "hidden_size": 4096,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "intermediate_size": 14336,
    "vocab_size": 128256,
    "tie_word_embeddings": False,
    "torch_dtype": "bfloat16",
}
COMMAND = """#!/bin/bash
torchrun --nproc-per-node 8 pretrain_gpt.py --tensor-model-parallel-size 8 --bf16 \\
    --num-layers 32 --hidden-size=4096 --num-attention-heads 32 --group-query-attention --num-query-groups 8 \\
    --ffn-hidden-size 14336 --swiglu --disable-bias-linear --normalization RMSNorm  # as in the paper
    --position-embedding-type rope --untie-embeddings-and-output-weights --vocab-size 128256
"""


def write(folder, name, text):
    (folder / name).write_text(text)
    return folder / name


def test_three_descriptions_of_one_model_agree(tmp_path):
    from_config = read_shape(write(tmp_path, "config.json", json.dumps(LLAMA)))
    from_command = read_shape(write(tmp_path, "run.sh", COMMAND))
    assert from_config == from_command == read_shape("llama-3-8b")


def test_experts_and_older_families(tmp_path):
    mixtral = LLAMA | {"model_type": "mixtral", "num_local_experts": 8, "num_experts_per_tok": 2, "vocab_size": 32000}
    assert read_shape(write(tmp_path, "config.json", json.dumps(mixtral))) == read_shape("mixtral-8x7b")
    command = COMMAND.replace("128256", "32000") + " --num-experts 8 --moe-layer-freq 1"
    assert read_shape(write(tmp_path, "run.txt", command)) == read_shape("mixtral-8x7b")
    gpt2 = {"model_type": "gpt2", "n_embd": 2048, "n_layer": 24, "n_head": 16, "vocab_size": 50257}
    assert read_shape(write(tmp_path, "gpt2.json", json.dumps(gpt2))) == read_shape("gpt-1.3b")


@pytest.mark.parametrize(
    ("name", "text", "named"),
    [
        ("config.json", "{", "is not a whole JSON file"),
        ("config.json", "[]", "model_type None; known are gpt2, llama"),
        ("config.json", json.dumps(LLAMA | {"model_type": "mamba"}), "model_type 'mamba'"),
        ("config.json", json.dumps({k: v for k, v in LLAMA.items() if k != "hidden_size"}), "no key 'hidden_size'"),
        ("config.json", json.dumps(LLAMA | {"torch_dtype": "int8"}), "dtype 'int8'"),
        ("config.json", json.dumps(LLAMA | {"num_key_value_heads": 5}), "num_query_groups must divide"),
        ("run.sh", "--num-layers 3", "--hidden-size"),
        ("run.sh", COMMAND.replace("--num-layers 32", "--num-layers $LAYERS"), "invalid int value: '\\$LAYERS'"),
        ("run.sh", COMMAND.replace("--vocab-size 128256", ""), "--vocab-size"),
        ("run.sh", COMMAND + " --num-experts 8 --moe-layer-freq [0,1]", "without a fixed interval"),
        ("run.sh", COMMAND + "'", "No closing quotation"),
    ],
)
def test_what_describes_no_model_is_one_sentence_with_the_file(tmp_path, name, text, named):
    path = write(tmp_path, name, text)
    with pytest.raises(ValueError, match=named) as error:
        read_shape(path)
    assert str(path) in str(error.value) and "\n" not in str(error.value)


def test_names_that_are_not_shipped_are_listed():
    with pytest.raises(ValueError, match=r"gpt-1\.3b, .*mixtral-8x7b"):
        read_shape("llama-9")
