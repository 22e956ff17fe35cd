"""Stand-ins for libraries that need a GPU to build or to run: what they show is how we and Megatron use them.

`transformer_engine` has the constructors, attributes and semantics that Megatron and we rely on, in plain torch,
written against the documentation and source of version 2.18; `fused_weight_gradient_mlp_cuda` has the two functions of
Apex's extension. Neither says anything about the real libraries' numbers or speed.
"""

from __future__ import annotations

import sys
from pathlib import Path


def install() -> None:
    """Make them importable in this process. To be called before Megatron is imported."""
    assert not any(name.startswith("megatron.core") for name in sys.modules), "Megatron has looked for them already"
    sys.path.insert(0, str(Path(__file__).parent))
