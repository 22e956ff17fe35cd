"""Costs without a file are those of the layers that run: their implementation is Megatron's argument."""

from types import SimpleNamespace

from paradyse_megatron.costmodel.shape import ModelShape
from paradyse_megatron.integration.setup import find_cost_model

SHAPE = ModelShape(
    hidden_size=256, num_layers=4, num_attention_heads=8, ffn_hidden_size=1024, vocab_size=512, dtype="fp32"
)


def saved_bytes(transformer_impl: str, option: str, seq_length: int) -> float:
    args = SimpleNamespace(
        paradyse_cost_model="auto", transformer_impl=transformer_impl, tensor_model_parallel_size=2, micro_batch_size=1
    )
    return find_cost_model(args, SHAPE).predict(option, seq_length).saved_bytes


def test_only_local_layers_store_scores():
    growth = {
        implementation: saved_bytes(implementation, "tp_sp", 8192) / saved_bytes(implementation, "tp_sp", 4096)
        for implementation in ("local", "transformer_engine")
    }
    assert growth["local"] > 3.5 and growth["transformer_engine"] < 2.1
    assert saved_bytes("local", "ring", 8192) == saved_bytes("transformer_engine", "ring", 8192)
