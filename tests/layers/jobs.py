"""What runs in the shared launches of this folder's tests."""

from __future__ import annotations

from typing import Any

from tests.layers.plans import NUM_GROUPS, covering_plans
from tests.ranks import Call

ALONE: dict[str, Call] = {
    "references": ("tests.layers.equality:references", ()),
    "half precision": ("tests.layers.half_precision:exact_and_plain", ()),
}
HALF_PRECISION_PLANS = {
    2: ["tp_sp", "ulysses", "ring+full", "usp/streamed", "upipe+selective", "metp", "tp_sp*4,ring*4,metp*4,ulysses*4"],
    8: ["tp_sp", "ulysses", "ring+full", "metp", "tp_sp*4,ring*4,metp*4,ulysses*4"],
}
FAMILIES_ON = {2: tuple(NUM_GROUPS), 3: ("gpt", "llama", "blend"), 4: tuple(NUM_GROUPS)}
"""On three ranks one or two key/value heads cannot be shared evenly."""


EXCHANGING_PLANS = {
    f"{family} three float64": ["ulysses,upipe,ring", "usp,upipe+full,ulysses/tp_sp+selective"]
    for family in ("llama", "grouped", "mqa")
}

FP64_KEYS, FP32_KEYS = ("one float64", "three float64"), ("one float32", "three float32")
"""`blend` not in fp32: the bias of its key norm moves a row's scores almost alike, so the gradient nearly cancels."""


def on(num_ranks: int, alone: dict[str, Any]) -> dict[str, Call]:
    """The jobs of a launch by name."""
    found: dict[str, Call] = {"equality": ("tests.layers.equality:errors", (alone["references"], plans_of(num_ranks)))}
    if num_ranks in HALF_PRECISION_PLANS:
        exact = alone["half precision"][0]
        plans = HALF_PRECISION_PLANS[num_ranks]
        found["half precision"] = ("tests.layers.half_precision:distances", (exact, plans))
    if num_ranks == 4:
        found["executors"] = ("tests.layers.equality:errors_by_executor", (alone["references"], EXCHANGING_PLANS))
        found["rotary fusion"] = ("tests.layers.rotary_fusion:found", ())
    if num_ranks == 2:
        found["windows"] = ("tests.layers.equality:window_errors", ())
        found["dropout"] = ("tests.layers.dropout:found", ())
        found["many lengths"] = ("tests.layers.many_lengths:left_behind", ())
    return found


def plans_of(num_ranks: int) -> dict[str, list[str]]:
    """By reference (family, case, precision). Each family follows each of its options; case and precision alternate."""
    if num_ranks == 8:
        return {
            "gpt three float64": covering_plans("gpt", 8, seed=8)[::2],
            "grouped one float64": covering_plans("grouped", 8, seed=8)[::4],  # four ranks share a key/value head
        }
    chosen: dict[str, list[str]] = {}
    for family in FAMILIES_ON[num_ranks]:
        plans = covering_plans(family, num_ranks, seed=num_ranks)
        keys = FP64_KEYS if family == "blend" else FP64_KEYS + FP32_KEYS
        for offset, key in enumerate(keys):
            chosen[f"{family} {key}"] = plans[offset :: len(keys)]
        for offset, case in enumerate(("tiny", "masked", "nothing")):
            chosen[f"{family} {case} float64"] = [plans[offset], "tp_sp,ulysses,ring"]
    return chosen
