"""What the launch script would run, by which plans, and whether the longest sequence fits. Starts nothing.

Megatron's own parser and checks read the arguments, as in training, and the costs are those that training would plan
by: a file, shipped ones, or worked out from the description of a machine, the one at hand or PARADYSE_CLUSTER.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import logging
import os
import shlex
import sys
import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path

from rich import box
from rich.console import Console
from rich.table import Table

from paradyse_megatron.costmodel.cluster import Cluster
from paradyse_megatron.costmodel.configs import shipped
from paradyse_megatron.integration.machine import is_of_cpus
from paradyse_megatron.integration.nodes import Nodes
from paradyse_megatron.runtime.decision import Decider, PlannedByLength

SHORTEST = 1024
"""Tokens at which the table of plans ends."""

_FUSED = (
    "gradient_accumulation_fusion apply_rope_fusion masked_softmax_fusion bias_gelu_fusion bias_swiglu_fusion "
    "bias_dropout_fusion"
).split()


def described_devices() -> tuple[bool, int]:
    """Whether the machine that is planned for has GPUs, and how many ranks a node of it has. Raises ValueError."""
    name = os.environ.get("PARADYSE_CLUSTER")
    if name is None:
        import torch

        return (True, torch.cuda.device_count()) if torch.cuda.is_available() else (False, 2)
    return not is_of_cpus(name), Cluster.from_yaml(shipped("clusters", name)).ranks_per_node


def dry_run(command: Sequence[str], num_ranks: int, nodes: Nodes) -> int:
    """Print the command, the plans by length and the verdict.

    Args:
        command: what follows `python`: `-m MODULE`, or that and a script, and Megatron's arguments.
        num_ranks: on each node.
        nodes: of the run.

    Returns:
        0, or 1 where a sequence of --seq-length tokens does not fit.

    Raises:
        ValueError: training would refuse the arguments.
    """
    console = Console(markup=False, highlight=False)
    console.print(f"paradyse: on each of {nodes.num_nodes} nodes of {num_ranks} ranks this would run:", soft_wrap=True)
    console.print(shlex.join(_torchrun(command, num_ranks, nodes)), soft_wrap=True)
    start = next(place for place, word in enumerate(command) if word.startswith("--"))
    args, decider = _settle(command[start:], num_ranks, nodes.num_nodes)
    fits = True
    if isinstance(decider, PlannedByLength):
        console.print(_plans(args, decider))
        fits = decider.planner.largest_length(args.seq_length) >= args.seq_length
        console.print(_verdict(args, decider), soft_wrap=True)
    else:
        console.print(f"The plan is {args.paradyse_plan} at every length; `paradyse explain` tells what it needs.")
    for sentence in _not_here(args):
        console.print(sentence, soft_wrap=True)
    return 0 if fits else 1


def _torchrun(command: Sequence[str], num_ranks: int, nodes: Nodes) -> list[str]:
    place = ["--nproc-per-node", str(num_ranks)]
    if nodes.num_nodes > 1:
        place += ["--nnodes", str(nodes.num_nodes), "--node-rank", str(nodes.node_rank)]
        place += ["--master-addr", nodes.address, "--master-port", str(nodes.port)]
    return ["torchrun", *place, *command]


def _settle(arguments: Sequence[str], num_ranks: int, num_nodes: int) -> tuple[argparse.Namespace, Decider]:
    """Megatron's arguments as rank 0 would have them, and what decides. Raises ValueError."""
    _be_rank_0(num_ranks, num_ranks * num_nodes)
    sys.argv = ["pretrain", *arguments]
    from paradyse_megatron import compat
    from paradyse_megatron.integration import hybrid
    from paradyse_megatron.integration.arguments import add_arguments
    from paradyse_megatron.integration.setup import make_decider

    with contextlib.redirect_stdout(io.StringIO()):  # Megatron's list of all arguments
        args = compat.parse_and_validate(add_arguments, _prepare, {"tokenizer_type": "NullTokenizer"})
    multiple = args.make_vocab_size_divisible_by * args.tensor_model_parallel_size
    args.padded_vocab_size = args.padded_vocab_size or -(-args.vocab_size // multiple) * multiple
    return args, make_decider(args, hybrid.model_config(args).transformer)


def _be_rank_0(num_ranks: int, world_size: int) -> None:
    """The variables by which Megatron's checks know the run; and no GPU, where one of another kind is planned for."""
    places = {"RANK": 0, "LOCAL_RANK": 0, "WORLD_SIZE": world_size, "LOCAL_WORLD_SIZE": num_ranks}
    os.environ.update({name: str(value) for name, value in places.items()})
    if "PARADYSE_CLUSTER" in os.environ:
        os.environ["CUDA_VISIBLE_DEVICES"] = ""
    logging.basicConfig(level=logging.WARNING, format="%(message)s", force=True)
    import torch

    if not torch.cuda.is_available():
        logging.getLogger("paradyse_megatron.cpu").setLevel(logging.ERROR)
        from paradyse_megatron import cpu

        cpu.enable()
    warnings.simplefilter("ignore")  # Megatron's, of every library that is not installed


def _prepare(args: argparse.Namespace) -> None:
    """As in training, whatever libraries are here: what they fuse changes no plan."""
    from paradyse_megatron.integration.arguments import imply

    if args.vocab_size is None:
        raise ValueError("A dry run opens no tokenizer: give --vocab-size, or leave --dry-run out.")
    imply(args)
    for name in _FUSED:
        setattr(args, name, False)
    if args.paradyse_memory_budget == "auto" and "PARADYSE_CLUSTER" in os.environ:
        from paradyse_megatron.integration.cost_models import this_cluster
        from paradyse_megatron.integration.setup import USABLE_SHARE

        args.paradyse_memory_budget = str(int(USABLE_SHARE * this_cluster().memory_bytes))


def _plans(args: argparse.Namespace, decider: PlannedByLength) -> Table:
    planner, stages = decider.planner, args.pipeline_model_parallel_size
    of_stage = "" if stages == 1 else f" in {stages} pipeline stages"
    table = Table(
        title=f"Predicted for {planner.num_layers} layers{of_stage} on {args.tensor_model_parallel_size} ranks",
        box=box.SIMPLE_HEAD,
        pad_edge=False,
    )
    for column in ("tokens", "plan", "ms", "memory", "fits"):
        table.add_column(column, overflow="fold", justify="left" if column == "plan" else "right")
    length = args.seq_length
    while length >= min(SHORTEST, args.seq_length):
        plan = planner.plan(length)
        table.add_row(
            f"{length:,}",
            str(plan),
            f"{plan.predicted_ms:,.1f}",
            _size(plan.predicted_bytes or 0),
            "yes" if plan.fits else "no",
        )
        length //= 2
    return table


def _verdict(args: argparse.Namespace, decider: PlannedByLength) -> str:
    planner = decider.planner
    rank = (
        f"of {_size(planner.memory_budget_bytes)} a rank, {_size(decider.static_bytes)} being weights, gradients and "
        "optimizer"
    )
    peak, longest = planner.plan(args.seq_length).predicted_bytes or 0, planner.largest_length(args.seq_length)
    if longest >= args.seq_length:
        return f"Memory: {args.seq_length:,} tokens fit, with a predicted peak of {_size(peak)} {rank}."
    return (
        f"Memory: {args.seq_length:,} tokens do not fit; they need {_size(peak)} {rank}. The longest sequence that "
        f"fits has {longest:,} tokens: lower --seq-length, or raise --tensor-model-parallel-size, "
        "--pipeline-model-parallel-size or --paradyse-memory-budget."
    )


def _size(num_bytes: int) -> str:
    return f"{num_bytes / 2**30:,.1f} GiB" if num_bytes >= 2**30 else f"{num_bytes / 2**20:,.0f} MiB"


def _not_here(args: argparse.Namespace) -> Iterator[str]:
    """What the run needs and this machine lacks."""
    from paradyse_megatron import compat
    from paradyse_megatron.integration.cost_models import cluster_name

    yield f"Nothing was measured: times are of the description {cluster_name()} unless the cost model says otherwise."
    if args.transformer_impl == "transformer_engine" and not compat.has_transformer_engine():
        yield "Not here, but needed to train: Transformer Engine (or --transformer-impl local)."
    for word in args.data_path or []:
        if not word.replace(".", "").isdigit() and not Path(f"{word}.idx").exists():
            yield f"Not here, but needed to train: the data {word}.idx and {word}.bin."
