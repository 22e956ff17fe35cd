"""Our flags in Megatron's parser, what they imply for Megatron's own, and which of those they exclude."""

from __future__ import annotations

import argparse
import logging
from collections.abc import Callable
from typing import Any

import torch

from paradyse_megatron import cpu
from paradyse_megatron.comm import executors
from paradyse_megatron.compat import has_transformer_engine
from paradyse_megatron.integration.hybrid import layer_pattern, refuse_pattern
from paradyse_megatron.integration.sizes import parse_size
from paradyse_megatron.planner.option import Option, all_options

logger = logging.getLogger(__name__)
SPECS = "paradyse_megatron.layers.spec"
HYBRID_SPECS = "paradyse_megatron.layers.hybrid"


def add_arguments(parser: argparse.ArgumentParser) -> argparse.ArgumentParser:
    """Megatron's `extra_args_provider`."""
    group = parser.add_argument_group("ParaDySe", "parallel strategies that follow the sequence length")
    _add_planning(group)
    _add_running(group)
    return parser


def _add_planning(group: Any) -> None:
    """What plans are made of."""
    group.add_argument(
        "--dynamic-parallel",
        action="store_true",
        help="decide for each sequence and layer how it is computed in parallel",
    )
    group.add_argument(
        "--paradyse-strategies",
        metavar="LIST",
        default=None,
        help="options that plans may use, comma-separated (default: all that the model supports)",
    )
    group.add_argument(
        "--paradyse-plan",
        metavar="auto|PLAN|FILE",
        default="auto",
        help="a fixed plan such as 'tp_sp*4,ring+full*2', a plan file, or auto; "
        "one option a layer, or a position of --hybrid-layer-pattern",
    )
    group.add_argument(
        "--paradyse-cost-model",
        metavar="FILE",
        default="auto",
        help="costs that auto plans by; auto: measured ones next to the run, shipped, or worked out now",
    )
    group.add_argument(
        "--paradyse-memory-budget",
        metavar="SIZE",
        default="auto",
        help="memory that a rank may use for weights, gradients, optimizer and activations, such as 16GiB",
    )
    group.add_argument(
        "--paradyse-hysteresis",
        metavar="X",
        type=float,
        default=0.05,
        help="keep the plan of the neighbouring lengths if it takes at most this share longer",
    )


def _add_running(group: Any) -> None:
    """What happens around planned micro-batches."""
    group.add_argument("--paradyse-trace", metavar="FILE", default=None, help="write one JSON line per micro-batch")
    group.add_argument(
        "--paradyse-a2a",
        choices=["torch", "host", "cuda", "symm", "auto"],
        default="auto",
        help="how layout conversions are executed: by torch; in one pass, on CPUs by the C++ extension (host), on GPUs "
        "by kernels compiled at start (cuda), or by stores straight into peers' memory (symm); auto: host or cuda "
        "where that can be, else torch",
    )
    group.add_argument(
        "--paradyse-on-misfit",
        choices=["error", "skip", "truncate"],
        default="error",
        help="what to do with documents that no plan fits: refuse to start, leave them out, or cut them",
    )
    group.add_argument(
        "--paradyse-feedback",
        action="store_true",
        help="correct predicted times and memory by what training measures, once a logging interval; a resumed run "
        "then repeats an uninterrupted one up to rounding only",
    )
    group.add_argument(
        "--paradyse-batch-order",
        choices=["window", "batch", "shuffled"],
        default="window",
        help="bring similar lengths together: within a window of at least 1,024 samples, where padding and waiting are "
        "least; within each global batch, which keeps the samples that chance gave it; or not at all",
    )


def prepare(args: argparse.Namespace) -> None:
    """Check combinations and set what our flags imply, before Megatron validates. Raises ValueError.

    Without --dynamic-parallel only the data are ours: stock layers train on the same documents, to compare with.
    """
    _check_layers(args)
    imply(args)
    if args.dynamic_parallel:
        executors.choose(args.paradyse_a2a, on_cpu=cpu.is_enabled() or not torch.cuda.is_available())


def imply(args: argparse.Namespace) -> None:
    """All of `prepare` that does not depend on what is installed here."""
    implied: dict[str, Any] = {
        "calculate_per_token_loss": True,
        "dataloader_type": "external",
        "create_attention_mask_in_dataloader": False,
        "sequence_parallel": args.tensor_model_parallel_size > 1,
        "spec": args.spec or _stock_spec(args),
    }
    if args.pipeline_model_parallel_size > 1:
        # Without experts it routes nothing, but Megatron refuses variable lengths with the default one all the same.
        implied["moe_token_dispatcher_type"] = "alltoall"
    if args.dynamic_parallel:
        _refuse_combinations(args)
        _check_own_flags(args)
        implied["spec"] = _dynamic_spec(args)
    for name, value in implied.items():
        if getattr(args, name, None) != value:
            logger.info("%s is set to %s", name, value)
            setattr(args, name, value)


def _dynamic_spec(args: argparse.Namespace) -> list[str]:
    return [SPECS, "layer_spec"] if layer_pattern(args) is None else [HYBRID_SPECS, "hybrid_stack_spec"]


def _stock_spec(args: argparse.Namespace) -> list[str]:
    return [SPECS, "stock_layer_spec"] if layer_pattern(args) is None else [HYBRID_SPECS, "stock_hybrid_stack_spec"]


def _check_layers(args: argparse.Namespace) -> None:
    """Whose linear layers, norms and attention cores Megatron is to use."""
    if args.transformer_impl not in ("local", "transformer_engine"):
        raise ValueError(
            f"--transformer-impl {args.transformer_impl} is not for training: use local or transformer_engine."
        )
    if args.transformer_impl == "transformer_engine" and not has_transformer_engine():
        raise ValueError(
            "--transformer-impl transformer_engine, Megatron's default, needs Transformer Engine, which is not "
            "installed or cannot be loaded: pip install transformer-engine[pytorch], or give --transformer-impl local."
        )


Found = Callable[[argparse.Namespace], Any]
_ONE_DOCUMENT = "each document is a sample of its own, under the causal mask; leave it out"
_OTHER_ATTENTION = "the layers have Megatron's self-attention; leave it out"
_UNEVEN = "auto plans stages of equal layers; give a fixed --paradyse-plan"
_EXCLUDED: list[tuple[str, Found, str]] = [
    (
        "--context-parallel-size",
        lambda a: a.context_parallel_size > 1 and a.context_parallel_size,
        "the plan chooses context parallelism by itself, inside --tensor-model-parallel-size; set it to 1",
    ),
    ("--tp-comm-overlap", lambda a: getattr(a, "tp_comm_overlap", False), "leave it out"),
    ("--delay-wgrad-compute", lambda a: getattr(a, "delay_wgrad_compute", False), "leave it out"),
    (
        "--use-transformer-engine-op-fuser",
        lambda a: getattr(a, "use_transformer_engine_op_fuser", False),
        "leave it out",
    ),
    ("--cpu-offloading-num-layers", lambda a: getattr(a, "cpu_offloading_num_layers", 0), "leave it out"),
    (
        "--recompute-granularity",
        lambda a: a.recompute_granularity or getattr(a, "recompute_activations", False),
        "recompute is part of the plan; leave it out, or write --paradyse-plan tp_sp+full",
    ),
    (
        "--fp8-format",
        lambda a: a.transformer_impl == "local" and getattr(a, "fp8", None),
        "give --transformer-impl transformer_engine, where tp_sp computes in fp8, or train in bf16",
    ),
    ("--fp4-format", lambda a: getattr(a, "fp4", None), "train in bf16"),
    ("--te-precision-config-file", lambda a: getattr(a, "te_precision_config_file", None), "leave it out"),
    (
        "--tensor-parallel-num-weight-shards",
        lambda a: (getattr(a, "tensor_parallel_num_weight_shards", None) or 0) > a.tensor_model_parallel_size,
        "strategies gather weights by themselves; leave it out",
    ),
    (
        "--use-megatron-fsdp",
        lambda a: getattr(a, "use_megatron_fsdp", False),
        "use --use-distributed-optimizer instead",
    ),
    ("--use-torch-fsdp2", lambda a: getattr(a, "use_torch_fsdp2", False), "use --use-distributed-optimizer instead"),
    (
        "--enable-cuda-graph",
        lambda a: getattr(a, "enable_cuda_graph", False) or getattr(a, "cuda_graph_impl", "none") not in (None, "none"),
        "leave it out",
    ),
    ("--mtp-num-layers", lambda a: getattr(a, "mtp_num_layers", None), "leave it out"),
    ("--multi-latent-attention", lambda a: getattr(a, "multi_latent_attention", False), "leave it out"),
    (
        "--heterogeneous-layers-config-path",
        lambda a: getattr(a, "heterogeneous_layers_config_path", None),
        "leave it out",
    ),
    (
        "--spec",
        # A checkpoint of a GPT of ours names its layers, also where a hybrid model takes them up.
        lambda a: a.spec and a.spec not in ([SPECS, "layer_spec"], _dynamic_spec(a)),
        "the layers come from paradyse_megatron; leave it out",
    ),
    ("--mock-data", lambda a: getattr(a, "mock_data", False), "documents of real lengths are needed; give --data-path"),
    ("--sft", lambda a: getattr(a, "sft", False), "give --data-path with one document a sample"),
    ("--reset-attention-mask", lambda a: getattr(a, "reset_attention_mask", False), _ONE_DOCUMENT),
    ("--reset-position-ids", lambda a: getattr(a, "reset_position_ids", False), _ONE_DOCUMENT),
    (
        "--dataloader-inter-document-masking",
        lambda a: getattr(a, "dataloader_inter_document_masking", False),
        _ONE_DOCUMENT,
    ),
    (
        "--experimental-attention-variant",
        lambda a: getattr(a, "experimental_attention_variant", None),
        _OTHER_ATTENTION,
    ),
    ("--linear-attention-freq", lambda a: getattr(a, "linear_attention_freq", None), _OTHER_ATTENTION),
    *(
        (f"--{name.replace('_', '-')}", lambda a, n=name: a.paradyse_plan == "auto" and getattr(a, n, None), _UNEVEN)
        for name in (
            "decoder_first_pipeline_num_layers",
            "decoder_last_pipeline_num_layers",
            "pipeline_model_parallel_layout",
            "account_for_embedding_in_pipeline_split",
            "account_for_loss_in_pipeline_split",
        )
    ),
]


def _refuse_combinations(args: argparse.Namespace) -> None:
    for flag, found, remedy in _EXCLUDED:
        value = found(args)
        if value:
            shown = "" if value is True else f" {value}"
            raise ValueError(f"{flag}{shown} and --dynamic-parallel do not work together: {remedy}.")
    refuse_pattern(args)
    heads, ranks = args.num_attention_heads, args.tensor_model_parallel_size
    if heads and heads % ranks:
        raise ValueError(
            f"--num-attention-heads {heads} cannot be divided among --tensor-model-parallel-size {ranks} ranks. "
            "Change one of them."
        )


def _check_own_flags(args: argparse.Namespace) -> None:
    if args.paradyse_memory_budget != "auto":
        parse_size(args.paradyse_memory_budget, "--paradyse-memory-budget")
    if not 0 <= args.paradyse_hysteresis < float("inf"):
        raise ValueError(f"--paradyse-hysteresis is {args.paradyse_hysteresis}; it is a share of time such as 0.05.")
    if args.paradyse_on_misfit != "error" and args.paradyse_plan != "auto":
        raise ValueError(
            f"--paradyse-on-misfit {args.paradyse_on_misfit} needs --paradyse-plan auto: a fixed plan is followed at "
            "every length, without costs that tell which lengths fit. Leave one of them out."
        )
    if args.paradyse_feedback and args.paradyse_plan != "auto":
        raise ValueError(
            "--paradyse-feedback needs --paradyse-plan auto: a fixed plan has no predictions to correct. Leave one of "
            "them out."
        )
    chosen_options(args)


def chosen_options(args: argparse.Namespace) -> list[str] | None:
    """The options of --paradyse-strategies in canonical form; None for all. Raises ValueError on an unknown one."""
    if args.paradyse_strategies is None:
        return None
    texts = [text for text in args.paradyse_strategies.split(",") if text.strip()]
    if not texts:
        raise ValueError(f"--paradyse-strategies names no option; known are {', '.join(map(str, all_options()))}.")
    return [str(Option.parse(text)) for text in texts]
