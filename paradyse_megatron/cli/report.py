"""Turn the trace of a run into one self-contained HTML page, and a PNG for each of its figures."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from paradyse_megatron.cli.answer import Answer
from paradyse_megatron.report.numbers import numbers
from paradyse_megatron.report.page import write_page
from paradyse_megatron.runtime.trace import require_complete

EXAMPLE = "paradyse report runs/demo/trace.jsonl --out runs/demo/report"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Flags of this verb."""
    parser.add_argument("trace", metavar="TRACE", help="what --paradyse-trace wrote, runs/demo/trace.jsonl in the demo")
    parser.add_argument("--out", metavar="DIR", help="folder to write to (default: 'report' beside the trace)")
    parser.add_argument("--partial", action="store_true", help="leave out a last line that was cut short")


def run(asked: argparse.Namespace) -> Answer:
    """Write the page; with --json alone nothing is written and the numbers behind it are printed."""
    trace = Path(asked.trace)
    found = numbers(require_complete(trace, asked.partial))
    content: dict[str, Any] = found.as_dict()
    notes = []
    if asked.out or not asked.json:
        page, pictures = write_page(found, trace, Path(asked.out) if asked.out else trace.parent / "report")
        content |= {"page": str(page), "pictures": [str(picture) for picture in pictures]}
        notes = [f"page: {page}", f"and {len(pictures)} pictures (PNG) beside it"]
    rows = [(name.replace("_", " "), _said(value)) for name, value in found.headline.items()]
    return Answer(content, f"Report of {trace}", ("number", "value"), rows, notes)


def _said(value: float | None) -> str:
    return "unknown" if value is None else f"{value:,.0f}" if float(value).is_integer() else f"{value:,.4g}"
