"""Megatron's self-attention, computed as the layer's option says."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import torch
from megatron.core.models.common.embeddings.rope_utils import apply_rotary_pos_emb
from megatron.core.transformer.attention import SelfAttention
from megatron.core.transformer.enums import AttnMaskType
from torch import Tensor

from paradyse_megatron.comm.collectives import Group
from paradyse_megatron.comm.rotary import Rotation
from paradyse_megatron.layers.active import current_call
from paradyse_megatron.layers.parameters import weight_and_bias
from paradyse_megatron.layers.support import attention_reason
from paradyse_megatron.layers.topology import ranks_per_node
from paradyse_megatron.layers.transformer_engine import normalised
from paradyse_megatron.layouts.heads import CHUNKS_WANTED
from paradyse_megatron.planner.option import Option
from paradyse_megatron.strategies.attention.geometry import AttentionShards, Geometry, HeadPreparation
from paradyse_megatron.strategies.attention.metp import metp_attention
from paradyse_megatron.strategies.attention.ring import ring_attention
from paradyse_megatron.strategies.attention.ulysses import ulysses_attention
from paradyse_megatron.strategies.attention.upipe import upipe_attention
from paradyse_megatron.strategies.attention.usp import usp_attention


def _usp_within_nodes(
    hidden: Tensor,
    shards: AttentionShards,
    geometry: Geometry,
    group: Group,
    prepare: HeadPreparation,
    recompute_core: bool = False,
) -> Tensor:
    nodes = ranks_per_node(torch.distributed.get_world_size())
    return usp_attention(hidden, shards, geometry, group, prepare, nodes, recompute_core)


ATTENTION: dict[str, Callable[..., Tensor]] = {
    "ulysses": ulysses_attention,
    "ring": ring_attention,
    "usp": _usp_within_nodes,
    **{name: partial(upipe_attention, num_chunks=wanted) for name, wanted in CHUNKS_WANTED.items()},
    "metp": metp_attention,
}


class DynamicSelfAttention(SelfAttention):
    """Same parameters, names and attributes as `SelfAttention`; `tp_sp` is its own forward, untouched.

    With `selective` recompute, `tp_sp` uses Megatron's own, which replays the random state of attention dropout.
    """

    checkpoint_core_attention: bool

    def forward(
        self,
        hidden_states: Tensor,
        attention_mask: Tensor | None,
        *args: Any,
        rotary_pos_emb: Any = None,
        **kwargs: Any,
    ) -> tuple[Tensor, Tensor | None]:
        """Hidden states [s/P, b, h] to [s/P, b, h] and the output bias, which the layer adds."""
        call = current_call()
        strategy = ATTENTION.get(call.option.attention)
        if strategy is None:
            with self._recomputing_core(call.option):
                return super().forward(hidden_states, attention_mask, *args, rotary_pos_emb=rotary_pos_emb, **kwargs)
        self._refuse(attention_mask, args, kwargs)
        qkv_weight, qkv_bias = weight_and_bias(self.linear_qkv)
        proj_weight, proj_bias = weight_and_bias(self.linear_proj)
        shards = AttentionShards(qkv_weight, qkv_bias, proj_weight, call.weights.attention)
        prepare = self._prepare_heads(rotary_pos_emb)
        keywords = {"recompute_core": True} if call.option.recompute == "selective" and self.training else {}
        hidden_states = normalised(self.linear_qkv, hidden_states)
        return strategy(hidden_states, shards, self._geometry(), self.tp_group, prepare, **keywords), proj_bias

    @contextmanager
    def _recomputing_core(self, option: Option) -> Iterator[None]:
        """Megatron's own switch, thrown for one forward call only; its recomputation does not look at it again."""
        before = self.checkpoint_core_attention
        self.checkpoint_core_attention = before or option.recompute == "selective"
        try:
            yield
        finally:
            self.checkpoint_core_attention = before

    def _geometry(self) -> Geometry:
        head_dim = self.hidden_size_per_attention_head
        scale = self.config.softmax_scale
        return Geometry(
            self.config.num_attention_heads,
            self.config.num_query_groups,
            head_dim,
            head_dim**-0.5 if scale is None else scale,
        )

    def _prepare_heads(self, rotary_pos_emb: Any) -> HeadPreparation:
        """q/k norms, then rotary embedding by the tokens' own positions; the table covers the whole sequence."""
        if self.config.no_rope_freq and self.config.no_rope_freq[self.layer_number - 1]:
            rotary_pos_emb = None
        tables = rotary_pos_emb if isinstance(rotary_pos_emb, tuple) else (rotary_pos_emb, rotary_pos_emb)

        def rotate(heads: Tensor, table: Tensor | None, positions: slice | Tensor) -> Tensor:
            if table is None:
                return heads
            return apply_rotary_pos_emb(
                heads,
                table[positions],
                config=self.config,
                mscale=self._yarn_concentration_factor,
                cp_group=self.pg_collection.cp,
            )

        def prepare(query: Tensor, key: Tensor, positions: slice | Tensor) -> tuple[Tensor, Tensor]:
            query = query if self.q_layernorm is None else self.q_layernorm(query)
            key = key if self.k_layernorm is None else self.k_layernorm(key)
            return rotate(query, tables[0], positions), rotate(key, tables[1], positions)

        norms = [norm for norm in (self.q_layernorm, self.k_layernorm) if norm is not None]
        parameters = tuple(parameter for norm in norms for parameter in norm.parameters())
        return HeadPreparation(prepare, parameters, None if norms else self._fused_rotation(*tables))

    def _fused_rotation(self, angles: Tensor | None, angles_of_keys: Tensor | None) -> Rotation | None:
        """What a conversion may do instead where Megatron fuses RoPE (without --no-rope-fusion), if it is the same for
        queries and keys, for all sequences of the batch, and without a factor."""
        if not self.config.apply_rope_fusion or angles is None or angles is not angles_of_keys:
            return None
        if self._yarn_concentration_factor != 1 or angles.shape[1:3] != (1, 1):
            return None
        return Rotation(angles[:, 0, 0], slice(None), self.config.rotary_interleaved)

    def _refuse(self, attention_mask: Tensor | None, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """Anything but plain causal training attention belongs to `tp_sp`; never compute something else silently."""
        option = current_call().option
        name, reason = option.attention, attention_reason(option, self.config)
        if reason:
            raise ValueError(
                f"The strategy '{option}' does not work with this layer: {reason}. Use another one for it."
            )
        if args or any(value is not None for value in kwargs.values()):
            given = [key for key, value in kwargs.items() if value is not None] or ["positional arguments"]
            raise ValueError(
                f"The strategy '{name}' computes plain causal training attention, but was given "
                f"{', '.join(given)}. Use tp_sp for this layer."
            )
        if self.attn_mask_type != AttnMaskType.causal or not _is_causal(attention_mask):
            raise ValueError(
                f"The strategy '{name}' knows the causal mask only, but this layer has mask type "
                f"'{self.attn_mask_type.name}' or an attention mask of its own. Use tp_sp for this layer, "
                "or do not create masks (--no-create-attention-mask-in-dataloader)."
            )


def _is_causal(attention_mask: Tensor | None) -> bool:
    """Whether a mask [b or 1, 1, s, s], True where hidden, is absent or exactly the causal one."""
    if attention_mask is None:
        return True
    length = attention_mask.shape[-1]
    causal = torch.ones(length, length, dtype=torch.bool, device=attention_mask.device).triu(1)
    return bool((attention_mask == causal).all())
