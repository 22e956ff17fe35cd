"""Why the planner chose what it chose for one length: every option's terms side by side, and sentences."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any

from paradyse_megatron.layouts.padding import pad_to_multiple
from paradyse_megatron.planner.cost import CostSource
from paradyse_megatron.planner.plan import Plan
from paradyse_megatron.planner.survey import MakePlanner

TIE = 0.001
"""Share of time by which two options may differ and still be called as fast as each other."""


@dataclass(frozen=True)
class Terms:
    """One option at one length.

    Attributes:
        option: its text.
        milliseconds, saved_bytes, workspace_bytes, buffer_bytes: of one layer (`planner.cost.Cost`).
        everywhere: the plan that has it in all layers, with its time, its peak of memory and whether that fits.
        num_layers: layers that have it in the plan that was chosen.
    """

    option: str
    milliseconds: float
    saved_bytes: int
    workspace_bytes: int
    buffer_bytes: int
    everywhere: Plan
    num_layers: int

    def is_no_better_than(self, other: Terms) -> bool:
        """Whether `other` takes no more time, saves no more and needs no more workspace and buffer."""
        return all(there <= here for here, there in zip(self._axes, other._axes, strict=True))

    @property
    def _axes(self) -> tuple[float, ...]:
        own_workspace_bytes = self.workspace_bytes - self.buffer_bytes
        return self.milliseconds, self.saved_bytes, own_workspace_bytes, self.buffer_bytes

    def as_dict(self) -> dict[str, Any]:
        """Numbers by name, units in the names."""
        return {
            "option": self.option,
            "layer_ms": self.milliseconds,
            "layer_saved_bytes": self.saved_bytes,
            "layer_workspace_bytes": self.workspace_bytes,
            "layer_buffer_bytes": self.buffer_bytes,
            "all_layers_ms": self.everywhere.predicted_ms,
            "all_layers_peak_bytes": self.everywhere.predicted_bytes,
            "all_layers_fit": self.everywhere.fits,
            "num_layers_chosen": self.num_layers,
        }


@dataclass(frozen=True)
class Explanation:
    """A decision with its reasons.

    Attributes:
        seq_length, padded_length: tokens asked for, and after padding.
        plan: what was chosen.
        budget_bytes: bound on a rank's memory; None for no limit.
        terms: of every option, fastest first.
        sentences: why, in the order of the decision.
    """

    seq_length: int
    padded_length: int
    plan: Plan
    budget_bytes: int | None
    terms: tuple[Terms, ...]
    sentences: tuple[str, ...]

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        found = {**asdict(self), "plan": str(self.plan), "sentences": list(self.sentences)}
        found["terms"] = [terms.as_dict() for terms in self.terms]
        notes = {name: getattr(self.plan, name) for name in ("predicted_ms", "predicted_bytes", "fits")}
        return found | notes


def explain(
    make: MakePlanner, cost_model: CostSource, seq_length: int, budget_bytes: int | None, limit: int
) -> Explanation:
    """Explain the plan of `seq_length` tokens.

    Args:
        make: makes the planner; see `survey.MakePlanner`.
        cost_model: the one that it plans by; with layers of several kinds that of the average layer, which says by
            `followed` what layers follow where not all can follow an option.
        budget_bytes: its bound, None where there is none worth the name.
        limit: tokens up to which a longest fitting length is looked for.

    Raises:
        ValueError: a length that is not a whole number of at least 1.
    """
    planner = make()
    plan = planner.plan(seq_length)
    padded = pad_to_multiple(seq_length, cost_model.group_size)
    counts = Counter(plan.options)
    terms = []
    followed = getattr(cost_model, "followed", lambda option: (option,))
    for option in map(str, planner.options):
        cost = cost_model.predict(option, padded)
        everywhere = make(options=list(followed(option))).plan(padded)
        layer = cost.milliseconds, cost.saved_bytes, cost.workspace_bytes, cost.buffer_bytes
        terms.append(Terms(option, *layer, everywhere, counts[option]))
    terms.sort(key=lambda each: each.milliseconds)
    reasons = _Reasons(make, plan, tuple(terms), budget_bytes, seq_length, padded, limit)
    return Explanation(seq_length, padded, plan, budget_bytes, tuple(terms), tuple(reasons.sentences()))


@dataclass(frozen=True)
class _Reasons:
    """Turns numbers into sentences; attributes as in `Explanation`."""

    make: MakePlanner
    plan: Plan
    terms: tuple[Terms, ...]
    budget_bytes: int | None
    seq_length: int
    padded_length: int
    limit: int

    def sentences(self) -> Iterator[str]:
        if self.padded_length != self.seq_length:
            yield f"{self.seq_length:,} tokens are padded to {self.padded_length:,}, which every strategy accepts."
        yield self._race()
        if not self.plan.fits:
            yield self._nothing_fits()
            return
        if self.budget_bytes is not None:
            yield self._memory_of_fastest()
        yield self._choice()
        yield from self._buffer()
        yield from self._head()
        yield from self._hysteresis()

    @property
    def _fastest(self) -> Terms:
        return self.terms[0]

    def _race(self) -> str:
        first = self._fastest
        others = [terms for terms in self.terms if terms.milliseconds > (1 + TIE) * first.milliseconds]
        said = f"Fastest for one layer is {first.option}: {first.milliseconds:,.2f} ms forward and backward"
        if others:
            slower = others[0].milliseconds / first.milliseconds - 1
            said += f"; next is {others[0].option} with {others[0].milliseconds:,.2f} ms ({_percent(slower)} more)"
        return said + "."

    def _memory_of_fastest(self) -> str:
        everywhere = self._fastest.everywhere
        assert self.budget_bytes is not None and everywhere.predicted_bytes is not None
        room = self.budget_bytes - everywhere.predicted_bytes
        verdict = f"{mebibytes(room)} are left" if room >= 0 else f"{mebibytes(-room)} too much"
        return (
            f"In all layers it needs {mebibytes(everywhere.predicted_bytes)} of the {mebibytes(self.budget_bytes)} "
            f"that a rank may use, weights and optimizer included: {verdict}."
        )

    def _choice(self) -> str:
        used = [terms for terms in self.terms if terms.num_layers]
        if len(used) == 1:
            (only,) = used
            if only is self._fastest:
                return f"So all {len(self.plan)} layers run {only.option}."
            return f"So all {len(self.plan)} layers run {only.option}, {self._price()}."
        shares = " and ".join(f"{_layers(terms.num_layers)} {terms.option}" for terms in used)
        return f"So the plan mixes: {shares}, {self._price()}."

    def _price(self) -> str:
        before, after = self._fastest.everywhere, self.plan
        more_ms = (after.predicted_ms or 0) - (before.predicted_ms or 0)
        less_bytes = (before.predicted_bytes or 0) - (after.predicted_bytes or 0)
        change = f"{abs(more_ms):,.2f} ms {'more' if more_ms >= 0 else 'less'}"
        memory = f"{mebibytes(abs(less_bytes))} {'less' if less_bytes >= 0 else 'more'}"
        share = _percent(more_ms / before.predicted_ms) if before.predicted_ms else "0 %"
        return f"which takes {change} ({share}) and {memory} at the peak than {self._fastest.option} everywhere"

    def _buffer(self) -> Iterator[str]:
        used = [terms for terms in self.terms if terms.num_layers]
        largest = max(used, key=lambda terms: terms.buffer_bytes)
        if largest.buffer_bytes > min(terms.buffer_bytes for terms in used):
            yield (
                f"{mebibytes(largest.buffer_bytes)} of that are the buffer of Megatron's that {largest.option} gathers "
                "into: once made, it stays beside all layers."
            )

    def _head(self) -> Iterator[str]:
        if self.plan.head != "chunked":
            return
        whole = self.make(chunked_head=False).plan(self.padded_length)
        if not whole.fits:
            yield "The loss head is computed in chunks of tokens: with all logits at once no plan fits."
        else:
            gain = (whole.predicted_ms or 0) - (self.plan.predicted_ms or 0)
            yield (
                "The loss head is computed in chunks of tokens: the memory that this frees lets the layers run faster, "
                f"{gain:,.2f} ms in all."
            )

    def _hysteresis(self) -> Iterator[str]:
        best = self.make(hysteresis=0.0).plan(self.padded_length)
        if best != self.plan and (best.predicted_ms or 0) < (self.plan.predicted_ms or 0):
            gain = (self.plan.predicted_ms or 0) / (best.predicted_ms or 1) - 1
            yield (
                f"{best} would be {_percent(gain)} faster, which is within the hysteresis: the plan of slightly longer "
                "sequences is kept, so that plans do not flicker."
            )

    def _nothing_fits(self) -> str:
        longest = self.make().largest_length(self.limit)
        assert self.plan.predicted_bytes is not None and self.budget_bytes is not None
        return (
            f"No plan fits: {self.plan} needs the least, {mebibytes(self.plan.predicted_bytes)}, which is "
            f"{mebibytes(self.plan.predicted_bytes - self.budget_bytes)} more than a rank may use. The longest "
            f"sequence that fits has {longest:,} tokens. A larger budget or more tensor-parallel ranks would help."
        )


def mebibytes(num_bytes: int) -> str:
    """1234567 as '1.18 MiB'."""
    value = num_bytes / 2**20
    return f"{value:,.0f} MiB" if value >= 100 else f"{value:,.2f} MiB"


def _layers(number: int) -> str:
    return "1 layer" if number == 1 else f"{number} layers"


def _percent(share: float) -> str:
    return f"{100 * share:.1f} %"
