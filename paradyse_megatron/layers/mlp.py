"""Megatron's MLP, computed as the layer's option says."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from megatron.core.transformer.mlp import MLP
from torch import Tensor

from paradyse_megatron.layers.active import current_call
from paradyse_megatron.layers.parameters import weight_and_bias
from paradyse_megatron.layers.transformer_engine import normalised
from paradyse_megatron.strategies.mlp.gathered import MlpShards, gathered_mlp
from paradyse_megatron.strategies.mlp.streamed import streamed_mlp

MLPS: dict[str, Callable[..., Tensor]] = {"gathered": gathered_mlp, "streamed": streamed_mlp}


class DynamicMLP(MLP):
    """Same parameters, names and attributes as `MLP`; `tp_sp` is its own forward, untouched."""

    def forward(
        self, hidden_states: Tensor, per_token_scale: Tensor | None = None, **kwargs: Any
    ) -> tuple[Tensor, Tensor | None]:
        """Hidden states [s/P, b, h] to [s/P, b, h] and the output bias, which the layer adds."""
        call = current_call()
        strategy = MLPS.get(call.option.mlp)
        if strategy is None or per_token_scale is not None:
            return super().forward(hidden_states, per_token_scale, **kwargs)
        fc1_weight, fc1_bias = weight_and_bias(self.linear_fc1)
        fc2_weight, fc2_bias = weight_and_bias(self.linear_fc2)
        shards = MlpShards(fc1_weight, fc1_bias, fc2_weight, call.weights.mlp)
        hidden_states = normalised(self.linear_fc1, hidden_states)
        return strategy(hidden_states, shards, self.tp_group, self._activation), fc2_bias

    def _activation(self, intermediate: Tensor) -> Tensor:
        """[..., f/P], or [..., 2 f/P] as [gate, linear], to [..., f/P]; the bias is already in it."""
        config = self.config
        if not config.gated_linear_unit:
            return self.activation_func(intermediate)
        gate, linear = torch.chunk(intermediate, 2, dim=-1)
        limit = getattr(config, "activation_func_clamp_value", None)
        if limit is not None:
            gate, linear = gate.clamp(max=limit), linear.clamp(min=-limit, max=limit)
        return config.activation_func(gate) * (linear + getattr(config, "glu_linear_offset", 0.0))
