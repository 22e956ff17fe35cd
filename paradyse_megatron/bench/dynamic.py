"""What deciding by length brings: the dynamic plan beside stock Megatron and every static configuration.

Same documents, weights and ranks, over loopback or an emulated interconnect. First the model is profiled there, as a
user would; then all contenders race, document by document, in turn; then each is given only so much memory and longer
and longer documents, until an allocation really fails. Forward and backward are timed; the optimizer's step is the
same for all and left out.
"""

from __future__ import annotations

import statistics
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from paradyse_megatron.bench import contenders
from paradyse_megatron.bench.budget import TimeBudget
from paradyse_megatron.bench.contenders import DYNAMIC, DYNAMIC_LIMITED, Plans
from paradyse_megatron.bench.costs import measured_alone, measured_over
from paradyse_megatron.bench.documents import SPREADS
from paradyse_megatron.bench.levels import NODE, Level, levels
from paradyse_megatron.bench.links import Links
from paradyse_megatron.bench.overhead import tp_sp_over_stock
from paradyse_megatron.bench.race import RACE
from paradyse_megatron.bench.ranks import run_on_ranks
from paradyse_megatron.bench.reach import find_reach
from paradyse_megatron.bench.verdict import Verdict
from paradyse_megatron.costmodel.model import CostModel
from paradyse_megatron.costmodel.shape import ModelShape
from paradyse_megatron.layouts.padding import pad_to_multiple
from paradyse_megatron.planner.memory import peak_bytes
from paradyse_megatron.planner.planner import Planner

SHAPE = ModelShape(
    hidden_size=256,
    num_layers=4,
    num_attention_heads=8,
    ffn_hidden_size=1024,
    vocab_size=257,
    add_bias=False,
    rms_norm=True,
    rotary=True,
    dtype="fp32",
)
"""Llama-like, small enough for a CPU, and as lopsided between attention and the rest at 4,096 tokens as 7B at 64K."""

OPTIONS = tuple(
    "tp_sp tp_sp+selective tp_sp+full ulysses ulysses/tp_sp ulysses+full ulysses/tp_sp+full ring ring+full "
    "upipe upipe+full metp metp+full".split()
)
"""Static choices of the race, and what the dynamic plan may use. (On so few ranks `usp` is `ulysses`.)"""

RUN_SECONDS = 900
RACE_SHARE = 0.55
"""Of the time that is left after profiling, what the race may take."""

RESERVE = 0.1
"""Of the memory limit, what the planner leaves alone: allocations come in pages and pools, and messages take some."""


@dataclass(frozen=True)
class Size:
    """How much is run.

    Attributes:
        num_documents, longest: of the race.
        profile_seconds: given to the profile of each interconnect.
        reach: lengths tried under the memory limit.
        overhead_rounds: micro-batches of `tp_sp` beside stock layers.
        total_seconds: of everything; with less time than wanted fewer documents are raced, and fewer static choices
            tried under the limit. None for as long as it takes.
    """

    num_documents: int
    longest: int
    profile_seconds: float
    reach: tuple[int, ...]
    overhead_rounds: int
    total_seconds: float | None


REACH = (256, 512, 1024, 1536, 2048, 3072, 4096, 6144, 8192, 12288, 16384, 24576, 32768)
PROFILE_SHARE = 0.19
QUICK = Size(16, 4096, 220, REACH[:10], 150, 1140)
FULL = Size(40, 8192, 300, REACH, 200, None)
QUICK_LONGEST_BETWEEN_NODES = 2048
"""Over links ten times slower all contenders together take minutes for the longest document of `QUICK`."""


def size_of(
    is_quick: bool, interconnects: Sequence[str], longest: int | None = None, budget_seconds: float | None = None
) -> Size:
    """What is run: documents as long as asked, or as there is time for; profiles get `PROFILE_SHARE` of a budget."""
    size = QUICK if is_quick else FULL
    if longest is None and is_quick and "between-nodes" in interconnects:
        longest = QUICK_LONGEST_BETWEEN_NODES
    if longest is not None:
        size = replace(size, longest=longest)
    if budget_seconds is None:
        return size
    profile_seconds = PROFILE_SHARE * budget_seconds / len(interconnects)
    return replace(size, total_seconds=budget_seconds, profile_seconds=profile_seconds)


def bench(size: Size, num_ranks: int, spread: str, interconnects: Sequence[str], seed: int = 0) -> dict[str, Any]:
    """Everything, as JSON.

    Args:
        spread: how the documents' lengths spread, of `documents.SPREADS`.
        interconnects: of `levels.INTERCONNECTS`. Ratios at the top are those like a node's links where they are there.
    """
    budget = TimeBudget(size.total_seconds)
    documents = _longest_first(SPREADS[spread](size.num_documents, size.longest, seed))
    found: dict[str, Any] = {"num_ranks": num_ranks, "spread": spread}
    found["lengths"] = [len(each) - 1 for each in documents]
    found["tp_sp_over_stock"] = tp_sp_over_stock(SHAPE, num_ranks, size.overhead_rounds)
    found["levels"] = {
        level.name: _at_level(level, size, num_ranks, documents, budget) for level in levels(num_ranks, interconnects)
    }
    main = found["levels"].get(NODE) or next(iter(found["levels"].values()))
    return found | {key: main[key] for key in Verdict.KEYS}


def _longest_first(documents: Sequence[Sequence[int]]) -> list[Sequence[int]]:
    """The longest, which decides who completes the data, then the others as they are: any first few are a sample."""
    longest = max(range(len(documents)), key=lambda document: len(documents[document]))
    return [documents[longest], *documents[:longest], *documents[longest + 1 :]]


def _at_level(
    level: Level, size: Size, num_ranks: int, documents: Sequence[Sequence[int]], budget: TimeBudget
) -> dict[str, Any]:
    with tempfile.TemporaryDirectory(prefix="paradyse-bench-") as folder, level.links(num_ranks) as links:
        _tell(f"{level.name}: profiling for {size.profile_seconds:.0f} s")
        place = SHAPE, num_ranks, links, size.profile_seconds, size.longest, Path(folder)
        costs = measured_alone(*measured_over(*place, OPTIONS))
        lengths = [len(document) - 1 for document in documents]
        limit = memory_limit(costs, max(lengths))
        plans = all_plans(costs, lengths, limit)
        _tell(f"{level.name}: racing {len(plans)} contenders over {len(documents)} documents")
        times = _race(documents, plans, num_ranks, links, budget)
        raced = lengths[: len(next(iter(times.values())))]
        tried = _reach_plans(costs, size.reach, limit)
        reach = find_reach(SHAPE, size.reach, tried, limit, num_ranks, budget, Path(folder) / "notes")
        predicted = predictions(costs, {name: of[: len(raced)] for name, of in plans.items()}, raced)
        verdict = Verdict(raced, times, reach.longest, predicted, reach.untried)
        facts = {"rate_mbit": level.rate_mbit, "memory_limit_bytes": limit, "plans": plans}
        return facts | verdict.as_dict() | {"out_of_memory": reach.out_of_memory, "lengths_raced": raced}


def _race(
    documents: Sequence[Sequence[int]], plans: Plans, num_ranks: int, links: Links | None, budget: TimeBudget
) -> dict[str, list[float]]:
    """Milliseconds of each contender on each document, medians; as many documents as there is time for."""
    arguments: dict[str, Any] = {"shape": SHAPE.as_dict(), "documents": documents, "plans": plans}
    arguments["budget_seconds"] = budget.left(RACE_SHARE)
    seconds = budget.at_most(4 * RUN_SECONDS)
    outcome = run_on_ranks(RACE, num_ranks, arguments, links=links, timeout_seconds=seconds)
    if outcome.failure:
        raise RuntimeError(f"the race did not end: {outcome.failure}")
    samples: dict[str, list[list[float]]] = outcome.results[0]
    return {name: [statistics.median(of) for of in documents] for name, documents in samples.items()}


def memory_limit(costs: CostModel, longest: int) -> int:
    """Bytes of activations with which the longest document needs recompute, whatever the strategy.

    Half-way between what the most frugal option needs for it without recompute and with. So stock tensor and sequence
    parallelism, which keeps more, cannot train it without recompute, and a static choice has to recompute all layers of
    all documents.
    """
    needed = {option: _peak(costs, option, longest) for option in costs.options}
    without = min(peak for option, peak in needed.items() if "+" not in option)
    return (without + min(peak for option, peak in needed.items() if option.endswith("+full"))) // 2


def _peak(costs: CostModel, option: str, length: int) -> int:
    padded = pad_to_multiple(length, costs.group_size)
    layers = [costs.predict(option, padded)] * SHAPE.num_layers
    head = costs.predict_head(padded)
    return peak_bytes(layers, head.saved_bytes, head_buffer_bytes=head.buffer_bytes)


def all_plans(costs: CostModel, lengths: Sequence[int], limit_bytes: int) -> Plans:
    """The contenders of the race; one static configuration runs twice, which tells the noise."""
    count, options = len(lengths), costs.options
    statics = contenders.static_plans(options, count)
    return (
        contenders.stock_plans(count)
        | statics
        | {f"ulysses{contenders.AGAIN}": statics["ulysses"]}
        | contenders.random_plans(options, SHAPE.num_layers, count)
        | contenders.planned(DYNAMIC, _planner(costs, 2**60), lengths)
        | contenders.planned(DYNAMIC_LIMITED, _planner(costs, limit_bytes), lengths)
    )


def _planner(costs: CostModel, limit_bytes: int) -> Planner:
    return Planner(costs, SHAPE.num_layers, max(1, int((1 - RESERVE) * limit_bytes)))


def _reach_plans(costs: CostModel, lengths: Sequence[int], limit_bytes: int) -> Plans:
    """Whom to try within the limit, those that ratios need first."""
    planner, count = _planner(costs, limit_bytes), len(lengths)
    statics = contenders.static_plans(costs.options, count)
    first = {name: statics[name] for name in ("tp_sp", "tp_sp+full") if name in statics}
    return contenders.planned(DYNAMIC_LIMITED, planner, lengths) | first | contenders.stock_plans(count) | statics


def predictions(
    costs: CostModel, plans: Mapping[str, Sequence[str | None]], lengths: Sequence[int]
) -> dict[str, float]:
    """Predicted milliseconds of all documents under each contender's plans; stock as `tp_sp`."""
    return {
        name: sum(_milliseconds(costs, plan or "tp_sp", length) for plan, length in zip(texts, lengths, strict=True))
        for name, texts in plans.items()
    }


def _milliseconds(costs: CostModel, text: str, length: int) -> float:
    from paradyse_megatron.planner.plan import Plan

    padded = pad_to_multiple(length, costs.group_size)
    plan = Plan.parse(text, SHAPE.num_layers)
    layers = sum(costs.predict(option, padded).milliseconds for option in plan.options)
    return layers + costs.predict_head(padded, plan.head).milliseconds


def _tell(text: str) -> None:
    sys.stderr.write(f"{text}\n")
    sys.stderr.flush()
