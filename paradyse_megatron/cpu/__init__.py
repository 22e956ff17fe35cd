"""`torch.cuda` on the CPU, so that Megatron runs where there is no GPU: for development, tests and trying out.

`enable()` maps what Megatron asks of `torch.cuda` onto the CPU until `disable()`; what is "cuda" is then memory of this
process, streams run at once, random states are the CPU generator's, and memory statistics are the process's own.
With `MEGATRON_FLAGS` (and gloo) megatron-core and Megatron's own training loop run unchanged.

Linux only, for the memory statistics. Not mapped: CUDA graphs, memory pools and snapshots, fp8, asynchronous
checkpoints (`.cpu()` makes no copy here), `torch.load(map_location="cuda")`, `torch.Generator("cuda")`.
"""

from paradyse_megatron.cpu.megatron_patches import MEGATRON_FLAGS
from paradyse_megatron.cpu.out_of_memory import translate_out_of_memory
from paradyse_megatron.cpu.switch import disable, enable, is_enabled

__all__ = ["MEGATRON_FLAGS", "disable", "enable", "is_enabled", "translate_out_of_memory"]
