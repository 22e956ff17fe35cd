"""Several Megatron versions, one after the other: check, train unpatched, apply, train patched, revert.

    bash scripts/megatron_versions.sh CHECKOUT... [--out FILE]

The checkouts are git clones of Megatron-LM without changes; they are left as they were. Losses are compared with those
of the installed megatron-core, micro-batch by micro-batch.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
import tempfile
from dataclasses import asdict, dataclass
from pathlib import Path

from rich.console import Console
from rich.table import Table

from paradyse_megatron.bench.conditions import conditions
from paradyse_megatron.integration.patches.change import apply_patches, revert_patches
from paradyse_megatron.integration.patches.state import State, inspect_checkout
from tests.training.runs import Result, make_corpus, train

FLAGS = "--train-iters 3 --paradyse-plan tp_sp,ulysses,ring,tp_sp+full"
"""Three iterations of four micro-batches, with weights gathered, rings and recompute in one plan."""


@dataclass(frozen=True)
class Outcome:
    """What one checkout did.

    Attributes:
        version: of Megatron, as the checkout says.
        commit: that it stands at.
        patches: names of those applied.
        losses: of every micro-batch with the patched pretrain_gpt.py.
        difference: the largest one of a loss from the installed package's, with pretrain_gpt.py.
        own_difference: the same with our own entry and the checkout's unpatched package.
        is_clean: whether the checkout is as it was, to git and to the last byte of each file.
    """

    version: str
    commit: str
    patches: list[str]
    losses: list[float]
    difference: float
    own_difference: float
    is_clean: bool


def try_checkout(checkout: Path, corpus: str, out: Path, expected: list[float]) -> Outcome:
    """Take one checkout through everything; AssertionError where it fails."""
    before = _contents(checkout)
    found = inspect_checkout(checkout)
    assert {one.state for one in found.patches} == {State.APPLICABLE}, found.patches
    own = train(corpus, out / "own", FLAGS, megatron=checkout)
    assert "own entry" in own.output and _uses(own, checkout)
    applied = apply_patches(checkout)
    try:
        assert {one.state for one in applied.patches} == {State.APPLIED}, applied.patches
        assert apply_patches(checkout).patches == applied.patches, "applying twice is not applying once"
        patched = train(corpus, out / "patched", FLAGS, megatron=checkout)
        assert f"{checkout.resolve()}/pretrain_gpt.py" in patched.output and _uses(patched, checkout)
    finally:
        revert_patches(checkout)
    return Outcome(
        found.version,
        _git(checkout, "rev-parse", "HEAD").strip(),
        [one.patch.id for one in applied.patches],
        losses_of(patched),
        _difference(losses_of(patched), expected),
        _difference(losses_of(own), expected),
        not _git(checkout, "status", "--porcelain") and _contents(checkout) == before,
    )


def losses_of(result: Result) -> list[float]:
    """Of every micro-batch; all are known."""
    losses = [loss for loss in result.losses if loss is not None]
    assert len(losses) == len(result.losses) == 12
    return losses


def _uses(result: Result, checkout: Path) -> bool:
    """Whether a run's ranks imported the megatron of that checkout."""
    line = rf"^ paradyse: megatron-core \S+ in {re.escape(str(checkout.resolve()))}$"
    return re.search(line, result.output, re.MULTILINE) is not None


def _difference(found: list[float], expected: list[float]) -> float:
    return max(abs(one - other) for one, other in zip(found, expected, strict=True))


def _contents(checkout: Path) -> dict[str, bytes]:
    return {file.name: file.read_bytes() for file in checkout.glob("*.py")}


def _git(checkout: Path, *arguments: str) -> str:
    return subprocess.run(["git", *arguments], cwd=checkout, check=True, capture_output=True, text=True).stdout


def main(arguments: list[str]) -> int:
    """Exit status 1 when a checkout fails, or trains differently."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("checkouts", nargs="+", type=Path, metavar="CHECKOUT")
    parser.add_argument("--out", type=Path, metavar="FILE", help="write the result there, as JSON")
    asked = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory() as folder:
        corpus = make_corpus(Path(folder))
        expected = losses_of(train(corpus, Path(folder) / "installed", FLAGS))
        outcomes: list[Outcome] = []
        for number, checkout in enumerate(asked.checkouts):
            outcomes.append(try_checkout(checkout, corpus, Path(folder) / str(number), expected))
            if asked.out:  # each time, as what follows may fail
                asked.out.write_text(json.dumps(_report(outcomes, expected, asked.checkouts), indent=1) + "\n")
    _show(outcomes)
    return 0 if all(one.is_clean and not one.difference and not one.own_difference for one in outcomes) else 1


def _show(outcomes: list[Outcome]) -> None:
    table = Table("Megatron", "patches", "last loss", "from the wheel's", "unpatched", "clean after revert")
    for one in outcomes:
        table.add_row(one.version, ", ".join(one.patches), f"{one.losses[-1]:.6f}", f"{one.difference:.1e}",
                      f"{one.own_difference:.1e}", "yes" if one.is_clean else "no")  # fmt: skip
    Console().print(table)


def _report(outcomes: list[Outcome], expected: list[float], checkouts: list[Path]) -> dict[str, object]:
    return conditions() | {
        "what": "losses of 3 iterations at TP=2 on CPU, with each Megatron-LM checkout and the installed megatron-core",
        "command": " ".join(["bash scripts/megatron_versions.sh", *(checkout.name for checkout in checkouts)]),
        "flags": FLAGS,
        "installed_losses": expected,
        "checkouts": [asdict(one) for one in outcomes],
    }


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
