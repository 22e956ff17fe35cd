"""Runs a patched script of a Megatron-LM checkout: `torchrun ... -m paradyse_megatron.integration.script FILE ...`.

Beside what torchrun does with FILE itself, this maps `torch.cuda` onto the CPU where there is no GPU.
"""

from __future__ import annotations

import runpy
import sys
from pathlib import Path

from paradyse_megatron.integration.pretrain import get_ready


def main() -> None:
    """Become the script: its folder first on the path, its name and arguments in sys.argv."""
    get_ready()
    script = sys.argv[1]
    sys.argv = sys.argv[1:]
    sys.path[0] = str(Path(script).resolve().parent)
    runpy.run_path(script, run_name="__main__")


if __name__ == "__main__":
    main()
