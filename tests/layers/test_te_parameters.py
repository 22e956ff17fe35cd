"""Reading Transformer Engine's parameters, and what is said without it or against what lives in its calls."""

from __future__ import annotations

import logging
from types import SimpleNamespace

import pytest
import torch

from paradyse_megatron.layers import transformer_engine
from paradyse_megatron.layers.transformer_engine import normalised, refuse_overlaps, uses_transformer_engine


def linear(normalization: str, dtype: torch.dtype, zero_centered: bool) -> SimpleNamespace:
    """The attributes of a LayerNormLinear that describe its norm; gamma is near 1 either way."""
    generator = torch.Generator().manual_seed(1)
    near_zero = 0.003 + 0.0005 * torch.randn(64, generator=generator, dtype=torch.float64)
    return SimpleNamespace(
        normalization=normalization,
        eps=1e-3,
        zero_centered_gamma=zero_centered,
        layer_norm_weight=(near_zero if zero_centered else 1 + near_zero).to(dtype),
        layer_norm_bias=near_zero.flip(0).to(dtype) if normalization == "LayerNorm" else None,
    )


@pytest.mark.parametrize("zero_centered", [False, True])
@pytest.mark.parametrize("normalization", ["LayerNorm", "RMSNorm"])
@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
def test_the_norm_in_front_of_a_projection(normalization, dtype, zero_centered):
    layer = linear(normalization, dtype, zero_centered)
    hidden = torch.randn(400, 2, 64, generator=torch.Generator().manual_seed(2), dtype=torch.float64).to(dtype) + 1
    x = hidden.double()
    if normalization == "LayerNorm":
        x = x - x.mean(-1, keepdim=True)
    expected = x / (x.square().mean(-1, keepdim=True) + layer.eps).sqrt()
    expected = expected * (layer.layer_norm_weight.double() + zero_centered)
    if layer.layer_norm_bias is not None:
        expected = expected + layer.layer_norm_bias.double()
    found = normalised(layer, hidden)
    assert found.dtype == dtype and found.shape == hidden.shape
    error = (found.double() - expected).norm() / expected.norm()
    factor = (found.double() * expected).sum() / expected.square().sum() - 1  # what gamma rounded to 1 would shift
    assert error < (1e-14 if dtype == torch.float64 else 4e-3)
    assert abs(factor) < (1e-14 if dtype == torch.float64 else 3e-4)


def test_a_linear_layer_without_a_norm_takes_its_input_as_it_is():
    hidden = torch.randn(3, 1, 4)
    assert normalised(SimpleNamespace(weight=torch.randn(2, 4)), hidden) is hidden


def test_without_it_layers_are_local_and_one_line_says_what_is_missing(caplog):
    transformer_engine._say_that_it_is_missing.cache_clear()
    with caplog.at_level(logging.WARNING):
        assert not uses_transformer_engine(SimpleNamespace(transformer_impl="local")) and not caplog.records
        for _ in range(3):
            assert not uses_transformer_engine(SimpleNamespace(transformer_impl="transformer_engine"))
    (line,) = caplog.messages
    assert "pip install transformer-engine" in line and "local" in line and "\n" not in line


@pytest.mark.parametrize(
    ("field", "flag"),
    [
        ("tp_comm_overlap", "--tp-comm-overlap"),
        ("delay_wgrad_compute", "--delay-wgrad-compute"),
        ("use_transformer_engine_op_fuser", "--use-transformer-engine-op-fuser"),
        ("use_kitchen", "--use-kitchen"),
        ("cpu_offloading", "--cpu-offloading-num-layers"),
    ],
)
def test_what_lives_inside_its_layers_is_refused_by_name(field, flag):
    refuse_overlaps(SimpleNamespace(**{field: False}))
    with pytest.raises(ValueError, match=f"{flag} and --dynamic-parallel"):
        refuse_overlaps(SimpleNamespace(**{field: True}))
