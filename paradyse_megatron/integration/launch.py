"""The one command, behind `scripts/pretrain_gpt_paradyse.sh`: data, training on every device of this machine, summary.

Settings come from the environment (PARADYSE_OUT, PARADYSE_NPROC, DATA_PATH, MEGATRON_PATH); arguments are Megatron's
and ours, and win over the defaults here.
"""

from __future__ import annotations

import os
import sys
import uuid
from collections.abc import Sequence
from pathlib import Path

from paradyse_megatron.data.corpus import build_corpus
from paradyse_megatron.integration.orphans import announce_launcher
from paradyse_megatron.integration.program import choose_program
from paradyse_megatron.report.summary import print_summary
from paradyse_megatron.runtime.trace import read_trace

BAD_INPUT = 2

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
    """Exit status: 0 done, 2 bad input, 1 anything else."""
    out = Path(os.environ.get("PARADYSE_OUT", "runs/demo"))
    trace = out / "trace.jsonl"
    try:
        training = choose_program()
        import torch

        on_gpu = torch.cuda.is_available()
        num_ranks = _num_ranks(torch.cuda.device_count() if on_gpu else 2)
        data = os.environ.get("DATA_PATH") or _demo_corpus(out)
    except ValueError as error:
        sys.stderr.write(f"paradyse: {error}\n")
        return BAD_INPUT
    defaults = [
        *_DEMO,
        "--tensor-model-parallel-size",
        str(num_ranks),
        "--data-path",
        data,
        "--dynamic-parallel",
        "--paradyse-trace",
        str(trace),
        *_WITHOUT_FUSED_KERNELS,
        *(["--bf16"] if on_gpu else _ON_CPU),
    ]
    status = _torchrun([*training, *defaults, *arguments], num_ranks)
    if status == 0:
        trace = Path(_last_value("--paradyse-trace", arguments) or trace)
        print_summary(read_trace(trace), trace)
    return status


def _num_ranks(default: int) -> int:
    text = os.environ.get("PARADYSE_NPROC", str(default))
    if not text.isdigit() or not int(text):
        raise ValueError(f"PARADYSE_NPROC is '{text}'; it is the number of ranks to start, such as 2.")
    return int(text)


def _demo_corpus(out: Path) -> str:
    """The Python standard library's own sources, one document each; made once."""
    prefix = out / "data" / "stdlib"
    corpus = build_corpus(None, prefix)
    sys.stdout.write(f"paradyse: data {prefix}: {corpus.num_documents:,} documents, {corpus.num_tokens:,} tokens\n")
    sys.stdout.flush()
    return str(prefix)


def _torchrun(arguments: Sequence[str], num_ranks: int) -> int:
    """Run the training on this machine's ranks, as torchrun does, but keep the exit status of the first that failed."""
    from torch.distributed.elastic.multiprocessing.errors import ChildFailedError
    from torch.distributed.launcher.api import LaunchConfig, elastic_launch

    os.environ.setdefault("OMP_NUM_THREADS", str(max(1, (os.cpu_count() or 1) // num_ranks)))
    os.environ.setdefault("CUDA_DEVICE_MAX_CONNECTIONS", "1")  # Megatron's overlap needs it
    os.environ.setdefault("PYTHONWARNINGS", "ignore")  # Megatron warns of every library that is not installed
    # Megatron compiles a helper with whatever python3 comes first.
    os.environ["PATH"] = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath)])
    announce_launcher()
    config = LaunchConfig(
        min_nodes=1,
        max_nodes=1,
        nproc_per_node=num_ranks,
        run_id=uuid.uuid4().hex,
        rdzv_backend="c10d",
        rdzv_endpoint="localhost:0",
        max_restarts=0,
    )
    command = [sys.executable, *arguments]
    try:
        elastic_launch(config, command[0])(*command[1:])
    except ChildFailedError as error:
        status = error.get_first_failure()[1].exitcode
        if status != BAD_INPUT:
            sys.stderr.write(f"paradyse: training failed; the first rank to fail ended with code {status}.\n")
        return BAD_INPUT if status == BAD_INPUT else 1
    return 0


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
