"""Our layers around a stand-in for Transformer Engine, `tests.stand_ins`, on any rank count.

Real are Megatron's classes around Transformer Engine's, its specs, models and gradient finalisation, and all of our
code. Nothing here says that it runs with Transformer Engine itself.
"""

from __future__ import annotations

import itertools
from typing import Any

from tests import stand_ins

stand_ins.install()  # before anything imports Megatron

import numpy as np  # noqa: E402
import torch  # noqa: E402
from torch import Tensor  # noqa: E402

from tests.layers import equality  # noqa: E402  (it maps torch.cuda onto the CPU, then imports Megatron)

# isort: split
from megatron.core import parallel_state  # noqa: E402
from megatron.core.distributed import DistributedDataParallel, DistributedDataParallelConfig  # noqa: E402
from megatron.core.models.hybrid.hybrid_layer_specs import hybrid_stack_spec as megatron_stack_spec  # noqa: E402
from megatron.core.models.hybrid.hybrid_model import HybridModel  # noqa: E402

from paradyse_megatron import Plan  # noqa: E402
from paradyse_megatron.layers.hybrid import hybrid_stack_spec  # noqa: E402
from tests.layers.models import (  # noqa: E402
    FAMILIES,
    MAX_LENGTH,
    NUM_LAYERS,
    VOCAB,
    make_config,
    set_weights,
    start_model_parallel,
)

References = dict[str, dict[str, np.ndarray]]
"""Loss and gradients by model; arrays, as Megatron makes unpickling a tensor import Megatron, too early for us."""

TE = {"transformer_impl": "transformer_engine"}
MODELS: dict[str, tuple[str, dict[str, Any]]] = {
    "layer norm and biases": ("gpt", TE),
    "rms norm and gate": ("llama", TE),
    "q/k norms": ("qwen", TE),
    "layer norm around 1": ("gpt", TE | {"layernorm_zero_centered_gamma": True}),
    "rms norm around 1": ("llama", TE | {"layernorm_zero_centered_gamma": True}),
}
"""A family and what is asked for besides."""
PATTERN = "*-*-*-"
MODELS_AND_HYBRID = [*MODELS, "hybrid"]
"""The last is a `HybridModel` of that pattern."""
WINDOW = ["one", "three", "tiny", "one"]
_NAMES = {
    "self_attention.linear_qkv.layer_norm_": "input_layernorm.",
    "mlp.linear_fc1.layer_norm_": "pre_mlp_layernorm.",
}
"""Where Megatron's local layers have the norms."""


def on_one_rank(plans: list[str]) -> dict[str, Any]:
    """What the other functions compare with, and what one rank has to say by itself."""
    start_model_parallel(1)
    expected = {
        name: equality.loss_and_gradients(_model(name, "float64", 1, stock=True), [None], ["three"])
        for name in MODELS_AND_HYBRID
    }
    references = {name: {key: tensor.numpy() for key, tensor in of.items()} for name, of in expected.items()}
    return {
        "references": references,
        "of the stand-in": {name: _distance_to_local(name, expected[name]) for name in list(MODELS)[:3]},
        "of plans": errors(references, plans),
        "keys": same_keys(),
    }


def on_several_ranks(references: References, plans: list[str]) -> dict[str, Any]:
    """The same on P ranks."""
    start_model_parallel(torch.distributed.get_world_size())
    return {"of plans": errors(references, plans), "of windows": window_errors(plans[1:]), "keys": same_keys()}


def errors(references: References, plans: list[str]) -> dict[str, float]:
    """The worst relative error over loss and gradients, for each model and plan."""
    found = {}
    for name in MODELS_AND_HYBRID:
        model = _model(name, "float64", parallel_state.get_tensor_model_parallel_world_size())
        expected = {key: torch.from_numpy(array) for key, array in references[name].items()}
        for text in plans:
            gradients = equality.loss_and_gradients(model, [_plan(text, model)], ["three"])
            found[f"{name} {text}"] = equality.worst_error(gradients, expected)
    return found


def window_errors(plans: list[str]) -> dict[str, float]:
    """Windows of which each micro-batch follows another plan, weight gradients added to `main_grad` by the layers.

    Only `tp_sp` has the layers do so; `plans` are taken two by two, between micro-batches under it. Compared with
    windows under `tp_sp` in which autograd returns all gradients. Transformer Engine's layers and Megatron's own.
    """
    num_ranks = parallel_state.get_tensor_model_parallel_world_size()
    found = {}
    for name, (family, extra) in {**MODELS, "local, gpt": ("gpt", {}), "local, llama": ("llama", {})}.items():
        plain, fused = (
            equality.wrapped(family, "float32", num_ranks, gradient_accumulation_fusion=is_fused, **extra)
            for is_fused in (False, True)
        )
        expected = equality.loss_and_gradients(plain, [None] * len(WINDOW), WINDOW)
        for pair in itertools.batched(plans, 2):
            texts = ["tp_sp", *pair, "tp_sp"]
            chosen = [Plan.parse(text, NUM_LAYERS) for text in texts]
            gradients = equality.loss_and_gradients(fused, chosen, WINDOW)
            found[f"{name} {texts}"] = equality.worst_error(gradients, expected)
    return found


def same_keys() -> dict[str, bool]:
    """Whether our model's checkpoints have the stock model's keys, whole shapes and offsets, and some extra state."""
    num_ranks = parallel_state.get_tensor_model_parallel_world_size()
    return {
        name: _layout(_model(name, "float64", num_ranks)) == _layout(_model(name, "float64", num_ranks, stock=True))
        for name in MODELS_AND_HYBRID
    }


def _layout(model: DistributedDataParallel) -> tuple[list[str], dict[str, Any]]:
    keys = list(model.module.state_dict())
    assert any(key.endswith("linear_qkv._extra_state") for key in keys)
    metadata = {"dp_cp_group": parallel_state.get_data_parallel_group(with_context_parallel=True)}
    entries = model.module.sharded_state_dict(metadata=metadata)
    fields = ("key", "global_shape", "global_offset", "replica_id")  # a gated fc1's entry has the first and last only
    return keys, {
        key: (type(entry), *(getattr(entry, field, None) for field in fields)) for key, entry in entries.items()
    }


def _distance_to_local(name: str, of_te: dict[str, Tensor]) -> float:
    """How far a stock model of the stand-in's layers is from one of Megatron's local layers with the same weights."""
    family, extra = MODELS[name]
    te, local = (
        equality.wrapped(family, "float64", 1, stock=True, **(extra | {"transformer_impl": implementation}))
        for implementation in ("transformer_engine", "local")
    )
    weights = {_local_name(key): parameter for key, parameter in te.module.named_parameters()}
    for key, parameter in local.module.named_parameters():
        parameter.data.copy_(weights[key])
    renamed = {_local_name(key): value for key, value in of_te.items()}
    return equality.worst_error(equality.loss_and_gradients(local, [None], ["three"]), renamed)


def _local_name(name: str) -> str:
    for of_te, of_local in _NAMES.items():
        name = name.replace(of_te, of_local)
    return name


def _plan(text: str, model: DistributedDataParallel) -> Plan:
    """A plan for the layers of a GPT; a hybrid has twice as many positions, and follows it twice."""
    num_layers = model.module.config.num_layers
    return Plan.parse(f"{text},{text}" if "," in text and num_layers > NUM_LAYERS else text, num_layers)


def _model(name: str, dtype: str, num_ranks: int, stock: bool = False) -> DistributedDataParallel:
    if name == "hybrid":
        return _hybrid(getattr(torch, dtype), num_ranks, stock)
    family, extra = MODELS[name]
    return equality.wrapped(family, dtype, num_ranks, stock=stock, **extra)


def _hybrid(dtype: torch.dtype, num_ranks: int, stock: bool) -> DistributedDataParallel:
    config = make_config("llama", dtype, num_ranks, num_layers=len(PATTERN), calculate_per_token_loss=True, **TE)
    spec = megatron_stack_spec if stock else hybrid_stack_spec(config)
    model = HybridModel(config, spec, VOCAB, MAX_LENGTH, hybrid_layer_pattern=PATTERN, **FAMILIES["llama"].model)
    model = set_weights(model.to(dtype), num_ranks, stock)
    return DistributedDataParallel(config, DistributedDataParallelConfig(), model)
