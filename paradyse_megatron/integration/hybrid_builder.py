"""Megatron's builder of hybrid models, made to build ours: a configuration names its builder."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from megatron.core.models.hybrid.hybrid_model import HybridModel
from megatron.training.models.hybrid import HybridModelBuilder, HybridModelConfig

from paradyse_megatron.layers.hybrid_model import DynamicHybridModel


@dataclass(kw_only=True)
class DynamicHybridConfig(HybridModelConfig):
    """`HybridModelConfig` with another builder."""

    builder: ClassVar[str] = f"{__name__}.DynamicHybridBuilder"


class DynamicHybridBuilder(HybridModelBuilder):
    """Builds `DynamicHybridModel`."""

    def build_model(self, *args: Any, **kwargs: Any) -> HybridModel:
        """As `HybridModelBuilder.build_model`, which names its class; ours adds no state, so the model becomes one."""
        model = super().build_model(*args, **kwargs)
        model.__class__ = DynamicHybridModel
        return model
