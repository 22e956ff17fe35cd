"""A model's shape from what describes it: a YAML file of ours, a Hugging Face config.json, a Megatron command line."""

from __future__ import annotations

import argparse
import json
import os
import shlex
from pathlib import Path
from typing import Any, NoReturn

from paradyse_megatron.costmodel.configs import shipped
from paradyse_megatron.costmodel.described import from_mapping
from paradyse_megatron.costmodel.shape import ModelShape


def read_shape(path: str | os.PathLike[str]) -> ModelShape:
    """The shape that a file describes; by its ending YAML, JSON (Hugging Face), or else a text with Megatron's flags.

    Raises:
        ValueError: one sentence that names the file and what is missing in it, or wrong.
    """
    found = shipped("models", os.fspath(path))
    if found.suffix in (".yaml", ".yml"):
        return ModelShape.from_yaml(found)
    try:
        text = found.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ValueError(f"The model description {found} cannot be read: {error}.") from error
    return _from_hugging_face(text, found) if found.suffix == ".json" else _from_command_line(text, found)


_GPT2 = {
    "hidden_size": "n_embd",
    "num_layers": "n_layer",
    "num_attention_heads": "n_head",
    "ffn_hidden_size": "n_inner",
}
_LLAMA = {
    "hidden_size": "hidden_size",
    "num_layers": "num_hidden_layers",
    "num_attention_heads": "num_attention_heads",
    "num_query_groups": "num_key_value_heads",
    "head_dim": "head_dim",
    "ffn_hidden_size": "intermediate_size",
}
_EXPERTS = {"num_experts": "num_local_experts", "experts_per_token": "num_experts_per_tok"}
_PLAIN: dict[str, Any] = {"gated_mlp": False, "add_bias": True, "rms_norm": False, "rotary": False}
_GATED: dict[str, Any] = {"gated_mlp": True, "add_bias": False, "rms_norm": True, "rotary": True}
_FAMILIES: dict[str, tuple[dict[str, str], dict[str, Any], bool]] = {
    "gpt2": (_GPT2, _PLAIN, True),
    "llama": (_LLAMA, _GATED, False),
    "mistral": (_LLAMA, _GATED, False),
    "qwen3": (_LLAMA, _GATED, False),
    "mixtral": (_LLAMA | _EXPERTS, _GATED, False),
}
"""By `model_type`: where its sizes stand, what all its models share, and whether embeddings are tied by default."""
_DTYPES = {"float32": "fp32", "bfloat16": "bf16", "float16": "fp16", "float64": "fp64"}


def _from_hugging_face(text: str, path: Path) -> ModelShape:
    where = f"The Hugging Face configuration {path}"
    try:
        found = json.loads(text)
    except ValueError as error:
        raise ValueError(f"{where} is not a whole JSON file: {error}.") from error
    family = found.get("model_type") if isinstance(found, dict) else None
    if family not in _FAMILIES:
        raise ValueError(f"{where} is of the model_type {family!r}; known are {', '.join(_FAMILIES)}.")
    keys, shared, is_tied = _FAMILIES[family]
    sizes = {name: found[key] for name, key in keys.items() if found.get(key) is not None}
    for name in ("hidden_size", "num_layers", "num_attention_heads"):
        if name not in sizes:
            raise ValueError(f"{where} has no key {keys[name]!r}.")
    sizes.setdefault("ffn_hidden_size", 4 * sizes["hidden_size"])
    if "vocab_size" not in found:
        raise ValueError(f"{where} has no key 'vocab_size'.")
    dtype = str(found.get("dtype") or found.get("torch_dtype") or "bfloat16")
    if dtype not in _DTYPES:
        raise ValueError(f"{where} has the dtype {dtype!r}; known are {', '.join(_DTYPES)}.")
    rest = {
        "vocab_size": found["vocab_size"],
        "tied_embeddings": found.get("tie_word_embeddings", is_tied),
        "dtype": _DTYPES[dtype],
    }
    return from_mapping(ModelShape, sizes | shared | rest, where)


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise ValueError(message)


def _from_command_line(text: str, path: Path) -> ModelShape:
    where = f"The command line in {path}"
    parser = _Parser(prog="pretrain_gpt.py", add_help=False, allow_abbrev=False)
    for flag in ("num-layers", "hidden-size", "num-attention-heads"):
        parser.add_argument(f"--{flag}", type=int, required=True)
    for flag in (
        "ffn-hidden-size",
        "kv-channels",
        "num-query-groups",
        "vocab-size",
        "padded-vocab-size",
        "num-experts",
    ):
        parser.add_argument(f"--{flag}", type=int)
    parser.add_argument("--moe-ffn-hidden-size", type=int)
    parser.add_argument("--moe-router-topk", type=int, default=2)
    parser.add_argument("--moe-layer-freq", default="1")
    parser.add_argument("--normalization", default="LayerNorm")
    parser.add_argument("--position-embedding-type", default="learned_absolute")
    switches = (
        "bf16 fp16 swiglu group-query-attention untie-embeddings-and-output-weights use-rotary-position-embeddings"
    )
    for flag in switches.split():
        parser.add_argument(f"--{flag}", action="store_true")
    parser.add_argument("--disable-bias-linear", action="store_false", dest="add_bias_linear")
    try:
        args, _ = parser.parse_known_args(shlex.split(text.replace("\\\n", " "), comments=True))
        if args.use_rotary_position_embeddings:
            args.position_embedding_type = "rope"
        if not (args.padded_vocab_size or args.vocab_size):
            raise ValueError("the following arguments are required: --vocab-size (a tokenizer's size is not looked up)")
        return shape_of_arguments(args)
    except ValueError as error:
        raise ValueError(f"{where} does not describe a model: {error}.".replace("..", ".")) from error


def shape_of_arguments(args: argparse.Namespace) -> ModelShape:
    """The shape of the model that Megatron's arguments describe. Raises ValueError for one that has no shape here."""
    num_experts = getattr(args, "num_experts", None) or 0
    return ModelShape(
        hidden_size=args.hidden_size,
        num_layers=args.num_layers,
        num_attention_heads=args.num_attention_heads,
        ffn_hidden_size=args.ffn_hidden_size or _ffn_hidden_size(args),
        vocab_size=args.padded_vocab_size or args.vocab_size,
        num_query_groups=args.num_query_groups if args.group_query_attention else 0,
        head_dim=args.kv_channels or 0,
        gated_mlp=args.swiglu,
        add_bias=args.add_bias_linear,
        tied_embeddings=not args.untie_embeddings_and_output_weights,
        dtype="bf16" if args.bf16 else "fp16" if args.fp16 else "fp32",
        rms_norm=args.normalization == "RMSNorm",
        rotary=args.position_embedding_type == "rope",
        num_experts=num_experts,
        experts_per_token=args.moe_router_topk if num_experts else 0,
        expert_ffn_hidden_size=(args.moe_ffn_hidden_size or 0) if num_experts else 0,
        expert_layer_interval=_interval(args.moe_layer_freq) if num_experts else 1,
    )


def _ffn_hidden_size(args: argparse.Namespace) -> int:
    """Megatron's default: two thirds of 4 h with a gate, in multiples of 64, else 4 h."""
    return int(4 * args.hidden_size * 2 / 3) // 64 * 64 if args.swiglu else 4 * args.hidden_size


def _interval(frequency: Any) -> int:
    """Of --moe-layer-freq: a number as it is; a list where it repeats one layer with experts and some without."""
    if isinstance(frequency, str) and frequency.isdigit():
        return int(frequency)
    if isinstance(frequency, int):
        return frequency
    if isinstance(frequency, list) and frequency[0] == 1:
        interval = next((number for number, has in enumerate(frequency) if has and number), len(frequency))
        if frequency == [int(layer % interval == 0) for layer in range(len(frequency))]:
            return interval
    raise ValueError(
        f"--moe-layer-freq {frequency} puts experts into layers without a fixed interval, of which there are no costs; "
        "give a number"
    )
