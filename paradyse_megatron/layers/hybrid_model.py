"""megatron-core's HybridModel with the seam that `GPTModel` has: the loss head from outside."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from megatron.core.models.hybrid.hybrid_model import HybridModel
from torch import Tensor


class DynamicHybridModel(HybridModel):
    """Same parameters, names and attributes as `HybridModel`."""

    def forward(
        self,
        *args: Any,
        labels: Tensor | None = None,
        output_processor: Callable[..., Tensor] | None = None,
        output_processor_context: Any = None,
        **kwargs: Any,
    ) -> Tensor:
        """As `HybridModel`; with an `output_processor` that one makes losses of the last hidden states and `labels`."""
        if output_processor is None or not self.post_process:
            return super().forward(*args, labels=labels, **kwargs)
        tied = self.share_embeddings_and_output_weights
        return output_processor(
            hidden_states=self._hidden_states(*args, **kwargs),
            output_layer=self.output_layer,
            output_weight=self.shared_embedding_or_output_weight() if tied else None,
            labels=labels,
            runtime_gather_output=None,
            context=output_processor_context,
            compute_language_model_loss=self.compute_language_model_loss,
            scale_logits=self._scale_logits,
        )

    def _hidden_states(self, *args: Any, **kwargs: Any) -> Tensor:
        """[s/P, b, h] after the last norm, which is the decoder's: what a stage without a head returns."""
        self.post_process = False
        try:
            return super().forward(*args, **kwargs)
        finally:
            self.post_process = True
