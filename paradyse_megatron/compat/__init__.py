"""Every difference between Megatron versions that we meet, each with the version and when to drop it.

One file a concern; nothing here imports Megatron before it is called.
"""

from paradyse_megatron.compat.arguments import parse_and_validate, parse_arguments, script_arguments
from paradyse_megatron.compat.models import has_output_processor, hybrid_config, model_config
from paradyse_megatron.compat.pipeline import separate_shape_exchanges
from paradyse_megatron.compat.training import call_pretrain, count_real_tokens, redirect_pretrain
from paradyse_megatron.compat.version import check_version, has_transformer_engine, megatron_in_use

__all__ = [
    "call_pretrain",
    "check_version",
    "count_real_tokens",
    "has_output_processor",
    "has_transformer_engine",
    "hybrid_config",
    "megatron_in_use",
    "model_config",
    "parse_and_validate",
    "parse_arguments",
    "redirect_pretrain",
    "script_arguments",
    "separate_shape_exchanges",
]
