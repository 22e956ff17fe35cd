"""Worker: our training where stand-ins for Transformer Engine and Apex's extension can be imported."""

from __future__ import annotations

import sys

from tests import stand_ins

stand_ins.install()

from paradyse_megatron import cpu  # noqa: E402

cpu.enable()

from paradyse_megatron.integration import pretrain  # noqa: E402


def train(flags: str, fused: bool) -> None:
    """A run to its end; `fused`: layers add gradients of their weights to `main_grad` themselves."""
    unfused = {"--no-gradient-accumulation-fusion"}
    basic = [flag for flag in cpu.MEGATRON_FLAGS if not (fused and flag in unfused)]
    sys.argv = ["pretrain", *basic, *flags.split()]
    assert pretrain.main() == 0
