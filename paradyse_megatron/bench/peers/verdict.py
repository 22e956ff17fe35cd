"""What the contest says: ours over each peer, and whether all agree. Arithmetic on its times and errors."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from paradyse_megatron.bench.peers.ours import AGAIN

TOLERANCE = 1e-5
"""Relative L2 distance of an output or gradient in fp32 from the true one; rounding alone gives about 5e-7."""

TIE = 0.02
"""Share of the time by which ours may be slower and still be called as fast; more where noise is more."""

Entries = Sequence[Mapping[str, Any]]


@dataclass(frozen=True)
class Verdict:
    """Of all cases.

    Attributes:
        cases: what the contest returned, see `contest.contest`.
    """

    cases: Sequence[Mapping[str, Any]]

    def as_dict(self) -> dict[str, Any]:
        """Everything, as JSON."""
        table = list(self.rows())
        return {
            "slowest_ratio_to_best_peer": max((row["ratio_to_best_peer"] for row in table), default=None),
            "ratio_by_peer": _worst_by_peer(table),
            "noise_floor": max((row["noise"] for row in table), default=None),
            "as_fast": bool(table) and all(row["ratio_to_best_peer"] <= 1 + max(TIE, row["noise"]) for row in table),
            "largest_error": max((error for entry in self.able() for error in entry["errors"].values()), default=None),
            "all_agree": not self.disagreeing(),
            "disagreeing": self.disagreeing(),
            "could_not_run": self.could_not_run(),
            "table": table,
            "cases": list(self.cases),
        }

    def rows(self) -> Iterator[dict[str, Any]]:
        """For each case and kind: ours over each peer, above 1 where ours is slower; where there is a peer."""
        for case in self.cases:
            able = [entry for entry in case["entries"] if entry["reason"] is None]
            for kind in dict.fromkeys(entry["kind"] for entry in able):
                mine, again = (_named(able, kind, name) for name in ("ours", f"ours{AGAIN}"))
                peers = [entry for entry in able if entry["kind"] == kind and not entry["is_ours"]]
                ratios = {peer["name"]: _ratio(mine, peer) for peer in peers}
                if ratios:
                    times = {entry["name"]: statistics.median(entry["milliseconds"]) for entry in (mine, *peers)}
                    yield {
                        "case": case["case"],
                        "kind": kind,
                        "ratio_to_best_peer": max(ratios.values()),
                        "best_peer": max(ratios, key=lambda name: ratios[name]),
                        "noise": abs(_ratio(mine, again) - 1),
                        "ratios": ratios,
                        "median_ms": times,
                    }

    def able(self) -> list[Mapping[str, Any]]:
        """All entries that ran."""
        return [entry for case in self.cases for entry in case["entries"] if entry["reason"] is None]

    def disagreeing(self) -> list[str]:
        """Implementations with a result further than `TOLERANCE` from the true one; a NaN is, too."""
        far = (entry for entry in self.able() if not all(error <= TOLERANCE for error in entry["errors"].values()))
        return sorted({f"{entry['name']} ({entry['kind']})" for entry in far})

    def could_not_run(self) -> dict[str, str]:
        """The reason of each implementation that no case, or not every case, could be run with."""
        return {
            entry["name"]: entry["reason"]
            for case in self.cases
            for entry in case["entries"]
            if entry["reason"] is not None
        }


def _named(entries: Entries, kind: str, name: str) -> Mapping[str, Any]:
    return next(entry for entry in entries if (entry["kind"], entry["name"]) == (kind, name))


def _ratio(mine: Mapping[str, Any], other: Mapping[str, Any]) -> float:
    """Time of `mine` over that of `other` in the same round, the median of rounds."""
    return statistics.median(a / b for a, b in zip(mine["milliseconds"], other["milliseconds"], strict=True))


def _worst_by_peer(table: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    worst: dict[str, float] = {}
    for row in table:
        for peer, ratio in row["ratios"].items():
            worst[peer] = max(ratio, worst.get(peer, 0.0))
    return worst
