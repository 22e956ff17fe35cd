"""Which program a rank runs: our own entry, or the patched pretrain_gpt.py of the checkout in MEGATRON_PATH."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from paradyse_megatron.compat.version import refuse_unsupported, version_of_checkout
from paradyse_megatron.integration.patches.series import load_series

SCRIPT = "pretrain_gpt.py"
_MODULES = "paradyse_megatron.integration"


def choose_program() -> list[str]:
    """What follows `python`, before Megatron's arguments. Raises ValueError when MEGATRON_PATH is no good.

    A checkout that is not patched serves as well: our own entry trains with its `megatron` package.
    """
    text = os.environ.get("MEGATRON_PATH")
    if not text:
        return ["-m", f"{_MODULES}.pretrain"]
    checkout = Path(text).resolve()
    version = version_of_checkout(checkout)
    refuse_unsupported(version, f"is in MEGATRON_PATH {text}")
    _put_first_on_path(checkout)
    if is_patched(checkout, version):
        _say(f"training with {checkout / SCRIPT} (Megatron {version}), which is patched.")
        return ["-m", f"{_MODULES}.script", str(checkout / SCRIPT)]
    _say(
        f"training with the megatron package of {checkout} ({version}) and this package's own entry; "
        f"`paradyse patch apply --megatron {checkout}` makes its {SCRIPT} take --dynamic-parallel itself."
    )
    return ["-m", f"{_MODULES}.pretrain"]


def is_patched(checkout: Path, version: str) -> bool:
    """Whether all that its pretrain_gpt.py needs is applied."""
    needed = [patch for patch in load_series() if patch.target == SCRIPT and patch.is_for(version)]
    script = checkout / SCRIPT
    return script.is_file() and all(patch.is_in(script.read_text(errors="replace")) for patch in needed)


def _put_first_on_path(checkout: Path) -> None:
    """For this process, which reads and writes data through it, and for the ranks."""
    sys.path.insert(0, str(checkout))
    others = [path for path in os.environ.get("PYTHONPATH", "").split(os.pathsep) if path]
    os.environ["PYTHONPATH"] = os.pathsep.join([str(checkout), *others])


def _say(sentence: str) -> None:
    sys.stdout.write(f"paradyse: {sentence}\n")
    sys.stdout.flush()
