"""The attention core computed again in backward, instead of keeping what its gradients need.

The core is all that lies between the projection of q, k, v and the output's way back: q/k norms, rotary embedding,
and attention over all tokens. What it starts from is kept, q, k and v of [n, b, (a + 2g) d] together, and no other
intermediate of it (the idea of selective recomputation, arXiv 2205.05198, section 5, applied to cores that never
store scores). It draws no random numbers, so there is no random state to replay, and everything else that it reads is
bound in a closure: what another micro-batch does before this one's backward cannot change it.

`ring` has no such mode. Its core keeps q, k, v, the log-sum-exp, and an output that the projection behind it keeps
anyway; keeping the input of the core instead of q, k, v would save next to nothing for a whole round of the ring.
"""

from __future__ import annotations

from collections.abc import Callable

from torch import Tensor
from torch.utils.checkpoint import checkpoint


def run_core(core: Callable[..., Tensor], heads: tuple[Tensor, ...], recompute: bool) -> Tensor:
    """`core(*heads)`; with `recompute` its backward runs it again first, collectives and all, in the same order.

    Parameters that `core` closes over get their gradients.
    """
    if not recompute:
        return core(*heads)
    return checkpoint(core, *heads, use_reentrant=False, preserve_rng_state=False)
