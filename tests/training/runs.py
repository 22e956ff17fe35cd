"""Training runs as a user starts them: through the launcher, in processes of their own, with a time limit.

A run that is still going when its `with` block ends is killed, with every process that it started.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import sysconfig
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType

from paradyse_megatron.data.corpus import build_corpus
from paradyse_megatron.runtime.trace import TraceLine, read_trace

REPOSITORY = Path(__file__).resolve().parents[2]
LIMIT_SECONDS = 240
"""Of one run: minutes more than it takes, and less than pytest's own limit."""

SEQ_LENGTH = 384
DOCUMENT_BYTES = (1, 7, 30, 60, 100, 200, 300, 390, 600)
"""From a document of one token and its end to one that is cut at --seq-length."""

MODEL = (
    f"--num-layers 4 --hidden-size 64 --num-attention-heads 4 --seq-length {SEQ_LENGTH} "
    f"--max-position-embeddings {SEQ_LENGTH} --global-batch-size 4 --log-interval 1"
).split()


WITHOUT_LAUNCHER = (
    "--micro-batch-size 1 --attention-dropout 0 --hidden-dropout 0 --seed 1234 --split 969,30,1 "
    "--tokenizer-type NullTokenizer --vocab-size 257 --eval-interval 1000 --eval-iters 0 --use-cpu-initialization "
    "--no-bias-gelu-fusion --no-bias-dropout-fusion"
)
"""What the launcher adds, for workers that are started without it; `cpu.MEGATRON_FLAGS` has the rest."""


def make_corpus(folder: Path) -> str:
    """Sixty documents of very different lengths, cut from the standard library; the prefix of the data set."""
    sources = sorted(Path(sysconfig.get_paths()["stdlib"]).glob("*.py"), key=lambda path: path.name)
    texts = [text for text in (path.read_bytes() for path in sources) if len(text) >= max(DOCUMENT_BYTES)][:60]
    documents = folder / "documents"
    documents.mkdir()
    for number, text in enumerate(texts):
        (documents / f"{number:02}.txt").write_bytes(text[: DOCUMENT_BYTES[number % len(DOCUMENT_BYTES)]])
    prefix = folder / "corpus"
    build_corpus(documents, prefix, "*.txt")
    return str(prefix)


@dataclass(frozen=True)
class Result:
    """What a run left.

    Attributes:
        status: exit status of the launcher.
        output: standard output and error of all processes.
        trace: its trace, in the order of the samples.
    """

    status: int
    output: str
    trace: list[TraceLine]

    @property
    def losses(self) -> list[float | None]:
        """Of every micro-batch, in the order of the samples."""
        return [line.loss for line in self.trace]

    @property
    def lengths(self) -> list[int]:
        """Real tokens of every micro-batch, in the order of the samples."""
        return [line.seq_length for line in self.trace]

    @property
    def plans(self) -> set[str]:
        """All plans that were followed."""
        return {line.plan for line in self.trace}

    @property
    def grad_norms(self) -> dict[int, float]:
        """By iteration, as Megatron prints them: three decimals."""
        found = re.findall(r"iteration +(\d+)/.*?grad norm: ([\d.]+)", self.output)
        return {int(iteration): float(norm) for iteration, norm in found}

    def since(self, iteration: int) -> Result:
        """The same run without the iterations before."""
        return Result(self.status, self.output, [line for line in self.trace if line.iteration >= iteration])


class Training:
    """A run under way.

    Args:
        corpus: prefix of the data.
        out: folder of the trace and the log; a resumed run is given that of the one it continues.
        flags: Megatron's arguments and ours, besides `MODEL`.
        num_ranks: processes to train with.
        megatron: a Megatron-LM checkout to train with instead of the installed package.
        launcher: module to start.
    """

    def __init__(
        self,
        corpus: str,
        out: Path,
        flags: str,
        num_ranks: int = 2,
        megatron: Path | None = None,
        launcher: str = "paradyse_megatron.integration.launch",
    ):
        out.mkdir(parents=True, exist_ok=True)
        self._log, self._trace = out / "log", out / "trace.jsonl"
        environment = os.environ | {
            "PARADYSE_OUT": str(out),
            "PARADYSE_NPROC": str(num_ranks),
            "DATA_PATH": corpus,
            "CUDA_VISIBLE_DEVICES": "",
            "OMP_NUM_THREADS": "1",
            "PYTHONUNBUFFERED": "1",
            "PYTHONPATH": os.pathsep.join([str(REPOSITORY), *filter(None, [os.environ.get("PYTHONPATH")])]),
        }
        if megatron is not None:
            environment["MEGATRON_PATH"] = str(megatron)
        environment.setdefault("GLOO_SOCKET_IFNAME", "lo")  # the host name may not resolve in a container
        command = [sys.executable, "-m", launcher, *MODEL, *flags.split()]
        with open(self._log, "wb") as log:
            self.launcher = subprocess.Popen(
                command,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    def __enter__(self) -> Training:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        ranks = self.ranks()
        if self.launcher.poll() is None:
            os.killpg(self.launcher.pid, signal.SIGKILL)
        self.launcher.wait()
        for rank in ranks:
            kill(rank)

    def ranks(self) -> list[int]:
        """Process ids of the ranks, as long as the launcher lives."""
        return [
            int(folder.name)
            for folder in Path("/proc").iterdir()
            if folder.name.isdigit() and _parent(folder) == self.launcher.pid
        ]

    def trace(self) -> list[TraceLine]:
        """What has been written so far, in the order of the samples."""
        lines = read_trace(self._trace) if self._trace.exists() else []
        return sorted(lines, key=lambda line: (line.iteration, line.microbatch, line.rank))

    def wait_for_iteration(self, iteration: int) -> None:
        """Until a micro-batch of that iteration has been recorded; the run must still be going then."""
        self._wait(lambda: any(line.iteration >= iteration for line in self.trace()), f"iteration {iteration}")
        assert self.launcher.poll() is None, self._complaint("has ended already")

    def wait_for_output(self, text: str) -> None:
        """Until some process has written `text`."""
        self._wait(lambda: text in self._log.read_text(errors="replace"), f"'{text}'")

    def finish(self, limit_seconds: float = LIMIT_SECONDS) -> Result:
        """Wait for the end, whatever it is."""
        try:
            status = self.launcher.wait(limit_seconds)
        except subprocess.TimeoutExpired:
            raise AssertionError(self._complaint(f"has not ended after {limit_seconds} seconds")) from None
        return Result(status, self._log.read_text(errors="replace"), self.trace())

    def _wait(self, condition: Callable[[], bool], what: str) -> None:
        end = time.monotonic() + LIMIT_SECONDS
        while not condition():
            assert self.launcher.poll() is None and time.monotonic() < end, self._complaint(f"did not get to {what}")
            time.sleep(0.02)

    def _complaint(self, what: str) -> str:
        tail = "\n".join(self._log.read_text(errors="replace").splitlines()[-60:])
        return f"The run {what}; its last lines:\n{tail}"


def train(corpus: str, out: Path, flags: str, num_ranks: int = 2, megatron: Path | None = None) -> Result:
    """A run that has to end well."""
    with Training(corpus, out, flags, num_ranks, megatron) as run:
        result = run.finish()
        assert result.status == 0, run._complaint(f"ended with status {result.status}")
    assert result.trace, "the run left no trace"
    return result


def kill(process_id: int) -> None:
    """SIGKILL to one process; it may have ended before."""
    try:
        os.kill(process_id, signal.SIGKILL)
    except ProcessLookupError:
        pass


def is_running(process_id: int) -> bool:
    """Whether a process exists and is no zombie."""
    try:
        return _state(Path("/proc") / str(process_id))[0] != "Z"
    except OSError:
        return False


def _parent(folder: Path) -> int | None:
    try:
        return int(_state(folder)[1])
    except OSError:  # it has ended meanwhile
        return None


def _state(folder: Path) -> list[str]:
    """State and parent of a process; its name, in brackets before them, may hold anything."""
    return (folder / "stat").read_text().rpartition(")")[2].split()
