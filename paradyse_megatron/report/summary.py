"""The table at the end of a run: did it learn, how fast, and which plan did which length get."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

from rich.console import Console
from rich.table import Table

from paradyse_megatron.runtime.trace import TraceLine


def print_summary(lines: list[TraceLine], path: Path) -> None:
    """Print the summary of a trace."""
    console = Console()
    if not lines:
        console.print(f"paradyse: the trace {path} has no micro-batch.", soft_wrap=True)
        return
    console.print(_plans_table(lines))
    for sentence in _sentences(lines):
        console.print(sentence, highlight=False, soft_wrap=True)
    console.print(f"trace: {path}", highlight=False, soft_wrap=True)


def mean_loss(lines: list[TraceLine]) -> float | None:
    """Mean of the known losses, each micro-batch counting once."""
    losses = [line.loss for line in lines if line.loss is not None]
    return sum(losses) / len(losses) if losses else None


def tokens_per_second(lines: list[TraceLine]) -> float | None:
    """Real tokens of timed micro-batches over the time of their forward and backward, in all replicas together."""
    timed = [line for line in lines if line.measured_ms]
    milliseconds_of: Counter[int] = Counter()
    for line in timed:
        milliseconds_of[line.rank] += line.measured_ms or 0.0  # type: ignore[assignment]
    longest = max(milliseconds_of.values(), default=0)
    return 1e3 * sum(line.seq_length for line in timed) / longest if longest else None


def buckets(lines: list[TraceLine]) -> dict[tuple[int, int], list[TraceLine]]:
    """Micro-batches by padded length, in octaves: bucket (129, 256) holds lengths 129 to 256."""
    found: dict[tuple[int, int], list[TraceLine]] = {}
    for line in sorted(lines, key=lambda line: line.padded_length):
        upper = 1 << (line.padded_length - 1).bit_length()
        found.setdefault((upper // 2 + 1, upper), []).append(line)
    return found


def _plans_table(lines: list[TraceLine]) -> Table:
    table = Table(title="Plans by length (tokens after padding)")
    for column, justify in (
        ("length", "right"),
        ("micro-batches", "right"),
        ("median ms", "right"),
        ("predicted ms", "right"),
        ("plans", "left"),
    ):
        table.add_column(column, justify=justify)  # type: ignore[arg-type]
    for (lower, upper), members in buckets(lines).items():
        plans = Counter(line.plan for line in members).most_common()
        table.add_row(
            f"{lower} - {upper}",
            str(len(members)),
            _median([line.measured_ms for line in members]),
            _median([line.predicted_ms for line in members]),
            "\n".join(f"{plan}  x{count}" for plan, count in plans),
        )
    return table


def _sentences(lines: list[TraceLine]) -> list[str]:
    share = max(1, len(lines) // 5)
    first, last = mean_loss(lines[:share]), mean_loss(lines[-share:])
    rate, real = tokens_per_second(lines), sum(line.seq_length for line in lines)
    padded = sum(line.padded_length for line in lines)
    told = "unknown" if first is None or last is None else f"{first:.3f} -> {last:.3f}"
    return [
        f"loss, mean of the first and the last fifth of micro-batches: {told}",
        f"{real:,} real tokens in {len(lines)} micro-batches, "
        + ("not timed" if rate is None else f"{rate:,.0f} tokens/s in forward and backward")
        + f", {100 * (padded - real) / padded:.1f} % padding",
        f"{len({line.padded_length for line in lines})} different lengths, {len({line.plan for line in lines})} plans, "
        f"decision {_median([line.decision_us for line in lines])} us (median){_share_of_time(lines)}",
    ]


def _share_of_time(lines: list[TraceLine]) -> str:
    """Of forward and backward, what finding plans took."""
    timed = [line for line in lines if line.measured_ms]
    if not timed:
        return ""
    share = sum(line.decision_us for line in timed) / sum(1e3 * (line.measured_ms or 0.0) for line in timed)
    return f", {100 * share:.3f} % of the time in forward and backward"


def _median(values: list[float | None]) -> str:
    known = sorted(value for value in values if value is not None)
    return f"{known[len(known) // 2]:.1f}" if known else "-"
