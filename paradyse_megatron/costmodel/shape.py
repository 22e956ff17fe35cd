"""The shape of a model: all that costs depend on."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from paradyse_megatron.costmodel.described import from_yaml

LAYER_KINDS = ("dense", "moe")
"""A layer's MLP is one, or a mixture of experts."""
BYTES_PER_ELEMENT = {"fp64": 8, "fp32": 4, "bf16": 2, "fp16": 2}


@dataclass(frozen=True)
class ModelShape:
    """A Transformer of equal layers.

    Attributes:
        hidden_size: h.
        num_layers: L.
        num_attention_heads: query heads a.
        ffn_hidden_size: f, the width between the two MLP matrices.
        vocab_size: V, before Megatron pads it.
        num_query_groups: key/value heads g; 0 means as many as query heads.
        head_dim: d; 0 means h / a.
        gated_mlp: whether the MLP multiplies by a gate (SwiGLU): 2f rows in its first matrix.
        add_bias: whether the four linear layers have biases.
        rms_norm: whether norms are RMSNorm, else LayerNorm.
        rotary: whether attention rotates queries and keys (RoPE).
        tied_embeddings: whether output projection and word embeddings share one matrix.
        dtype: of weights and activations, one of fp64, fp32, bf16, fp16.
        num_experts: experts of a mixture; 0 for none.
        experts_per_token: experts that a token goes to.
        expert_ffn_hidden_size: width of an expert; 0 means f.
        expert_layer_interval: every so-many-th layer has experts, the first one included (Megatron's
            --moe-layer-freq): 1 for all, 2 for layers 1, 3, 5 and so on.
    """

    hidden_size: int
    num_layers: int
    num_attention_heads: int
    ffn_hidden_size: int
    vocab_size: int
    num_query_groups: int = 0
    head_dim: int = 0
    gated_mlp: bool = False
    add_bias: bool = True
    rms_norm: bool = False
    rotary: bool = False
    tied_embeddings: bool = True
    dtype: str = "bf16"
    num_experts: int = 0
    experts_per_token: int = 0
    expert_ffn_hidden_size: int = 0
    expert_layer_interval: int = 1

    def __post_init__(self) -> None:
        for name in ("hidden_size", "num_layers", "num_attention_heads", "ffn_hidden_size", "vocab_size"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 1, but it is {getattr(self, name)}.")
        if self.dtype not in BYTES_PER_ELEMENT:
            raise ValueError(f"dtype must be one of {', '.join(BYTES_PER_ELEMENT)}, but it is {self.dtype!r}.")
        self._fill_in_heads()
        self._fill_in_experts()

    def _fill_in_heads(self) -> None:
        heads = self.num_attention_heads
        if not self.num_query_groups:
            object.__setattr__(self, "num_query_groups", heads)
        if not self.head_dim:
            if self.hidden_size % heads:
                raise ValueError(f"hidden_size {self.hidden_size} is not a multiple of {heads} heads; give head_dim.")
            object.__setattr__(self, "head_dim", self.hidden_size // heads)
        if self.num_query_groups < 1 or heads % self.num_query_groups:
            raise ValueError(f"num_query_groups must divide the {heads} heads, but it is {self.num_query_groups}.")
        if self.head_dim < 1:
            raise ValueError(f"head_dim must be at least 1, but it is {self.head_dim}.")

    def _fill_in_experts(self) -> None:
        if not self.expert_ffn_hidden_size:
            object.__setattr__(self, "expert_ffn_hidden_size", self.ffn_hidden_size * (self.num_experts > 0))
        if min(self.num_experts, self.experts_per_token, self.expert_ffn_hidden_size) < 0:
            raise ValueError("num_experts, experts_per_token and expert_ffn_hidden_size must not be negative.")
        if self.num_experts and not 1 <= self.experts_per_token <= self.num_experts:
            raise ValueError(
                f"experts_per_token must be from 1 to the {self.num_experts} experts, but it is "
                f"{self.experts_per_token}."
            )
        if not self.num_experts and self.experts_per_token:
            raise ValueError(
                f"experts_per_token is {self.experts_per_token}, but there are no experts; give num_experts."
            )
        if self.expert_layer_interval < 1:
            raise ValueError(f"expert_layer_interval must be at least 1, but it is {self.expert_layer_interval}.")

    @property
    def layer_kinds(self) -> tuple[str, ...]:
        """The kind of each layer, one of `LAYER_KINDS`."""
        interval = self.expert_layer_interval
        is_moe = [self.num_experts > 0 and layer % interval == 0 for layer in range(self.num_layers)]
        return tuple("moe" if experts else "dense" for experts in is_moe)

    @property
    def kinds(self) -> tuple[str, ...]:
        """Kinds of layers that there are, that of the first layer first."""
        return tuple(dict.fromkeys(self.layer_kinds))

    @classmethod
    def from_yaml(cls, path: str | os.PathLike[str]) -> ModelShape:
        """Read a file such as those in `configs/models`; ValueError names file and key."""
        return from_yaml(cls, path)

    def as_dict(self) -> dict[str, Any]:
        """Every field by name."""
        return dataclasses.asdict(self)

    @property
    def bytes_per_element(self) -> int:
        """Bytes of a weight or of an activation's element."""
        return BYTES_PER_ELEMENT[self.dtype]

    @property
    def query_size(self) -> int:
        """Elements of one token's queries, a d."""
        return self.num_attention_heads * self.head_dim

    @property
    def key_value_size(self) -> int:
        """Elements of one token's keys and values, 2 g d."""
        return 2 * self.num_query_groups * self.head_dim

    @property
    def fc1_size(self) -> int:
        """Rows of the first MLP matrix: f, or 2f with a gate."""
        return self.ffn_hidden_size * (2 if self.gated_mlp else 1)

    @property
    def attention_weights(self) -> int:
        """Elements of a layer's attention weights that Megatron shards (the output bias is replicated)."""
        rows = self.query_size + self.key_value_size
        return rows * (self.hidden_size + self.add_bias) + self.hidden_size * self.query_size

    @property
    def mlp_weights(self) -> int:
        """Elements of a layer's MLP weights that Megatron shards."""
        return self.fc1_size * (self.hidden_size + self.add_bias) + self.hidden_size * self.ffn_hidden_size

    @property
    def expert_weights(self) -> int:
        """Elements of all experts of a layer, and of its router, which is replicated."""
        rows = self.expert_ffn_hidden_size * (2 if self.gated_mlp else 1)
        one = rows * (self.hidden_size + self.add_bias) + self.hidden_size * self.expert_ffn_hidden_size
        return self.num_experts * (one + self.hidden_size)

    def padded_vocab_size(self, group_size: int) -> int:
        """V as Megatron pads it by default, to a multiple of 128 P."""
        multiple = 128 * group_size
        return -(-self.vocab_size // multiple) * multiple

    def static_bytes(
        self, group_size: int, layer_kinds: Sequence[str] | None = None, *, embedding: bool = True, head: bool = True
    ) -> int:
        """Bytes on one of P ranks for weights, gradients and Adam, without a distributed optimizer.

        Per parameter 4 copies in fp64 and fp32; in half precision 18 bytes: the weight, an fp32 gradient, an fp32
        master copy and two fp32 moments (arXiv 1910.02054, section 3.1, with Megatron's fp32 gradients).

        Args:
            layer_kinds: of the layers that are there, a pipeline stage's; None for the whole model.
            embedding, head: whether the word embeddings and the output projection are; tied ones are two matrices
                where they are on different ranks.
        """
        per_parameter = 18 if self.bytes_per_element == 2 else 4 * self.bytes_per_element
        kinds = self.layer_kinds if layer_kinds is None else layer_kinds
        num_matrices = 1 if self.tied_embeddings and embedding and head else embedding + head
        matrices = self.padded_vocab_size(group_size) * self.hidden_size * num_matrices
        num_moe = list(kinds).count("moe")
        mlps = num_moe * self.expert_weights + (len(kinds) - num_moe) * self.mlp_weights
        sharded = len(kinds) * self.attention_weights + mlps + matrices
        norms_and_biases = self.hidden_size * (len(kinds) * (4 + 2 * self.add_bias) + 2 * head)
        return per_parameter * (-(-sharded // group_size) + norms_and_biases)
