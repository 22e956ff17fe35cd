"""The one command, behind `scripts/pretrain_gpt_paradyse.sh`: data, training on every device of each node, summary.

Settings come from the environment (PARADYSE_OUT, PARADYSE_NPROC, DATA_PATH, MEGATRON_PATH, and those of `nodes`);
arguments are Megatron's and ours, and win over the defaults here. `--dry-run` shows what would run, and starts nothing.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from pathlib import Path

from paradyse_megatron.data.corpus import build_corpus
from paradyse_megatron.integration.dry_run import described_devices, dry_run
from paradyse_megatron.integration.nodes import Nodes, find_nodes
from paradyse_megatron.integration.program import choose_program
from paradyse_megatron.integration.start import BAD_INPUT, is_rank, run_ranks
from paradyse_megatron.report.summary import print_summary
from paradyse_megatron.runtime.trace import read_trace

DRY_RUN = "--dry-run"

_DEMO = """
    --num-layers 4 --hidden-size 128 --num-attention-heads 4 --seq-length 4096 --max-position-embeddings 4096
    --micro-batch-size 1 --global-batch-size 4 --train-iters 60 --lr 2e-3 --min-lr 2e-4 --lr-decay-style cosine
    --weight-decay 0.1 --clip-grad 1.0 --attention-dropout 0 --hidden-dropout 0 --seed 1234
    --split 969,30,1 --tokenizer-type NullTokenizer --vocab-size 257
    --log-interval 5 --eval-interval 1000 --eval-iters 0
""".split()
"""A GPT that learns something on two CPU cores within minutes."""

_WITHOUT_FUSED_KERNELS = """
    --no-gradient-accumulation-fusion --no-masked-softmax-fusion --no-persist-layer-norm --no-bias-gelu-fusion
    --no-bias-dropout-fusion --no-rope-fusion --transformer-impl local
""".split()

_ON_CPU = ["--distributed-backend", "gloo", "--use-cpu-initialization"]


def main(arguments: Sequence[str]) -> int:
    """Exit status: 0 done, 2 bad input, 1 anything else; of a dry run 1 where --seq-length does not fit."""
    is_dry = DRY_RUN in arguments or os.environ.get("PARADYSE_DRY_RUN", "0") != "0"
    arguments = [argument for argument in arguments if argument != DRY_RUN]
    out = Path(os.environ.get("PARADYSE_OUT", "runs/demo"))
    try:
        nodes = Nodes() if is_rank() else find_nodes(os.environ)
        training = choose_program()
        on_gpu, num_devices = described_devices() if is_dry else _devices()
        num_ranks = _num_ranks(num_devices)
        data = os.environ.get("DATA_PATH") or (str(_demo_prefix(out)) if is_dry else _demo_corpus(out))
        defaults = training_defaults(num_ranks, data, out / "trace.jsonl", on_gpu, arguments)
        command = [*training, *without_overridden(defaults, arguments), *arguments]
        if is_dry:
            return dry_run(command, num_ranks, nodes)
    except ValueError as error:
        sys.stderr.write(f"paradyse: {error}\n")
        return BAD_INPUT
    status = run_ranks(command, num_ranks, nodes, on_gpu)
    if status == 0 and nodes.node_rank == 0:
        trace = Path(_last_value("--paradyse-trace", arguments) or out / "trace.jsonl")
        print_summary(read_trace(trace), trace)
    return status


def _devices() -> tuple[bool, int]:
    """Whether there are GPUs, and how many ranks they make."""
    import torch

    return (True, torch.cuda.device_count()) if torch.cuda.is_available() else (False, 2)


def _num_ranks(default: int) -> int:
    if is_rank():
        return int(os.environ["LOCAL_WORLD_SIZE"])
    text = os.environ.get("PARADYSE_NPROC", str(default))
    if not text.isdigit() or not int(text):
        raise ValueError(f"PARADYSE_NPROC is '{text}'; it is the number of ranks to start on a node, such as 2.")
    return int(text)


def training_defaults(num_ranks: int, data: str, trace: Path, on_gpu: bool, arguments: Sequence[str]) -> list[str]:
    """All that training gets unless `arguments` say otherwise."""
    own = ["--tensor-model-parallel-size", str(num_ranks), "--data-path", data, "--paradyse-trace", str(trace)]
    has_fused = on_gpu and _last_value("--transformer-impl", arguments) == "transformer_engine"
    kernels = [] if has_fused else _WITHOUT_FUSED_KERNELS
    return [*_DEMO, *own, "--dynamic-parallel", *kernels, *(["--bf16"] if on_gpu else _ON_CPU)]


def without_overridden(defaults: Sequence[str], arguments: Sequence[str]) -> list[str]:
    """Those of `defaults`, flags each with its values, whose flag is not in `arguments`."""
    given = {argument.partition("=")[0] for argument in arguments if argument.startswith("--")}
    kept, is_kept = [], True
    for word in defaults:
        if word.startswith("--"):
            is_kept = word not in given
        if is_kept:
            kept.append(word)
    return kept


def _demo_prefix(out: Path) -> Path:
    return out / "data" / "stdlib"


def _demo_corpus(out: Path) -> str:
    """The Python standard library's own sources, one document each; made once."""
    prefix = _demo_prefix(out)
    corpus = build_corpus(None, prefix)
    sys.stdout.write(f"paradyse: data {prefix}: {corpus.num_documents:,} documents, {corpus.num_tokens:,} tokens\n")
    sys.stdout.flush()
    return str(prefix)


def _last_value(flag: str, arguments: Sequence[str]) -> str | None:
    """What argparse would take: `--flag value` or `--flag=value`, the last one."""
    found = None
    for place, argument in enumerate(arguments):
        if argument == flag and place + 1 < len(arguments):
            found = arguments[place + 1]
        elif argument.startswith(f"{flag}="):
            found = argument.partition("=")[2]
    return found


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
