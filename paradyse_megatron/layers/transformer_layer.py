"""Megatron's Transformer layer, following the plan that is current when its forward begins."""

from __future__ import annotations

from typing import Any

from megatron.core import tensor_parallel
from megatron.core.transformer.transformer_config import TransformerConfig
from megatron.core.transformer.transformer_layer import TransformerLayer
from torch import Tensor

from paradyse_megatron.layers.active import LayerCall, layer_scope, planned_option
from paradyse_megatron.layers.prefetch import Prefetch
from paradyse_megatron.layers.support import quantised_reason
from paradyse_megatron.planner.option import Option


class DynamicTransformerLayer(TransformerLayer):
    """Same parameters, names and attributes as `TransformerLayer`."""

    def __init__(self, config: TransformerConfig, *args: Any, **kwargs: Any):
        _refuse_megatron_recompute(config)
        super().__init__(config, *args, **kwargs)
        self.prefetch = Prefetch()

    def forward(self, hidden_states: Tensor, *args: Any, **kwargs: Any) -> tuple[Tensor, Tensor | None]:
        """Hidden states [s/P, b, h] to [s/P, b, h] and the (absent) context, as `TransformerLayer`."""
        option = planned_option(self.layer_number)
        self._refuse_quantised(option)
        weights = self.prefetch.arrive(self, option)
        if option.recompute == "full" and self.training:
            return tensor_parallel.checkpoint(
                lambda hidden: self._follow(LayerCall(option), hidden, *args, **kwargs)[0], False, hidden_states
            ), None
        return self._follow(LayerCall(option, weights), hidden_states, *args, **kwargs)

    def _refuse_quantised(self, option: Option) -> None:
        reason = quantised_reason(option, self.config)
        if reason:
            raise ValueError(f"The strategy '{option}' cannot be followed by layer {self.layer_number}: {reason}.")

    def _follow(
        self, call: LayerCall, hidden_states: Tensor, *args: Any, **kwargs: Any
    ) -> tuple[Tensor, Tensor | None]:
        with layer_scope(call):
            return super().forward(hidden_states, *args, **kwargs)


def _refuse_megatron_recompute(config: TransformerConfig) -> None:
    """Megatron would call the layer again in backward, when another micro-batch's plan may be current."""
    modules = set(config.recompute_modules or ()) if config.recompute_granularity == "selective" else set()
    if config.recompute_granularity == "full" or "mlp" in modules:
        raise ValueError(
            "--recompute-granularity cannot be combined with --dynamic-parallel, which chooses recompute "
            "for each layer: give --paradyse-plan e.g. 'tp_sp+full' or leave it at auto."
        )
