"""A report as one self-contained HTML page: no script, no request, readable on a phone and in black and white."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from html import escape
from pathlib import Path

from paradyse_megatron.report.figures import Rendered, render
from paradyse_megatron.report.looks import look
from paradyse_megatron.report.numbers import Numbers
from paradyse_megatron.runtime.metrics import option_shares

_STYLE = """
:root { color-scheme: light; }
* { box-sizing: border-box; }
body { margin: 0 auto; max-width: 76rem; padding: 1rem; background: #fff; color: #1a1a1a;
       font: 1rem/1.5 system-ui, -apple-system, "Segoe UI", Roboto, "Helvetica Neue", Arial, sans-serif; }
h1 { font-size: 1.5rem; line-height: 1.2; margin: .5rem 0 .25rem; }
h2 { font-size: 1.1rem; margin: 0 0 .25rem; }
p { margin: .25rem 0 .75rem; }
.source { color: #555; overflow-wrap: anywhere; }
dl { display: grid; grid-template-columns: repeat(2, 1fr); gap: .5rem; margin: 1rem 0; }
@media (min-width: 56rem) { dl { grid-template-columns: repeat(5, 1fr); } }
dl div { border: 1px solid #ccc; border-radius: .4rem; padding: .5rem .7rem; }
dt { font-size: .8rem; color: #555; }
dd { margin: 0; font-size: 1.2rem; font-weight: 600; font-variant-numeric: tabular-nums; }
dd small { display: block; font-size: .8rem; font-weight: 400; color: #555; }
main { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(100%, 30rem), 1fr)); gap: 1rem; }
section { border: 1px solid #ccc; border-radius: .4rem; padding: .8rem; min-width: 0; break-inside: avoid; }
section.wide { grid-column: 1 / -1; }
figure { margin: 0; }
figure svg { display: block; width: 100%; height: auto; }
section p { font-size: .9rem; color: #444; }
.scroll { overflow-x: auto; }
table { border-collapse: collapse; width: 100%; font-size: .9rem; font-variant-numeric: tabular-nums; }
th, td { text-align: right; padding: .3rem .6rem; border-bottom: 1px solid #ddd; white-space: nowrap;
         vertical-align: top; }
th:last-child, td:last-child { text-align: left; white-space: normal; overflow-wrap: anywhere; min-width: 10rem; }
@media print { body { padding: 0; } }
"""

_FIGURES = {
    "plan-by-length": (
        "Which plan for which length",
        "Each column is a range of lengths that followed one plan; from bottom to top, how its layers ran.",
    ),
    "shares": ("Strategies over the run", "Share of all layers that ran each option, iteration by iteration."),
    "time": (
        "Time, predicted and measured",
        "Forward and backward of a micro-batch, a point each, marked by the option of most layers. "
        "On the line they agree; the grey band is 20 % less to 25 % more.",
    ),
    "memory": (
        "Memory, predicted and measured",
        "Peak of a rank during a micro-batch; without a GPU, the resident set of the whole process.",
    ),
    "loss": ("Loss", "Mean over the tokens of a micro-batch, and over the micro-batches of an iteration."),
    "lengths": (
        "Lengths",
        "By octave: the share of micro-batches of this length, and the share of all tokens in them.",
    ),
    "decisions": (
        "Time to decide",
        "What finding each micro-batch's plan took; lengths seen before are remembered.",
    ),
}


_HOW_TO_READ = (
    "An option reads attention[/mlp][+recompute]. In the figures the capital letter is the attention strategy; a small "
    "one is an MLP strategy other than the usual for it; a plus means that backward computes the layer again."
)


def write_page(numbers: Numbers, trace: Path, out: Path) -> tuple[Path, list[Path]]:
    """Write `report.html` and a PNG for each figure into the folder `out`, which is made.

    Returns the page and the pictures.

    Raises:
        ValueError: matplotlib is missing, or the folder cannot be written.
    """
    page = out / "report.html"
    try:
        out.mkdir(parents=True, exist_ok=True)
        rendered = render(numbers)
        pictures = {out / f"{name}.png": figure.png for name, figure in rendered.items()}
        page.write_text(html(numbers, trace, rendered), "utf-8")
        for path, content in pictures.items():
            path.write_bytes(content)
    except OSError as error:
        raise ValueError(f"The report cannot be written to {out} ({error.strerror}); use another --out.") from error
    return page, list(pictures)


def html(numbers: Numbers, trace: Path, rendered: Mapping[str, Rendered]) -> str:
    """The page."""
    sections = "\n".join(_section(name, figure.svg) for name, figure in rendered.items())
    return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>Training report: {escape(trace.name)}</title>
<style>{_STYLE}</style>
</head>
<body>
<h1>How the sequences were computed</h1>
<p class="source">from the trace {escape(str(trace))}</p>
<dl>
{_cards(numbers)}
</dl>
<main>
{sections}
<section>
<h2>Options</h2>
<p>{_HOW_TO_READ}</p>
<div class="scroll">{_options(numbers)}</div>
</section>
<section class="wide">
<h2>By length</h2>
<div class="scroll">{_table(numbers)}</div>
</section>
</main>
</body>
</html>
"""


def _cards(numbers: Numbers) -> str:
    cards = (
        f"<div><dt>{escape(name)}</dt><dd>{escape(value)}<small>{escape(detail)}</small></dd></div>"
        for name, value, detail in _facts(numbers)
    )
    return "\n".join(cards)


def _facts(numbers: Numbers) -> Iterator[tuple[str, str, str]]:
    """Name, value and what it refers to."""
    of = numbers.headline
    yield "real tokens", _said(of["real_tokens"]), f"{_said(of['padding_pct'], 1)} % padding on top"
    yield "tokens per second", _said(of["tokens_per_second"]), "in forward and backward"
    yield "micro-batches", _said(of["microbatches"]), f"in {_said(of['iterations'])} iterations"
    yield "loss", _said(of["loss_last_fifth"], 3), f"last fifth; first fifth {_said(of['loss_first_fifth'], 3)}"
    yield "longest sequence", _said(of["longest_tokens"]), f"shortest {_said(of['shortest_tokens'])} tokens"
    yield "plans", _said(of["plans"]), f"for {_said(of['lengths'])} lengths, {_said(of['plan_changes'])} changes"
    ratio = "measured over predicted, median"
    yield "time", _said(of["time_measured_over_predicted"], 2, " ×"), ratio
    yield "memory", _said(of["memory_measured_over_predicted"], 2, " ×"), ratio
    peak = of["peak_bytes"]
    yield "peak of memory", _said(None if peak is None else peak / 2**20, 0, " MiB"), "of a rank"
    share = f"{_said(of['decision_share_pct'], 2)} % of the time in all"
    yield "a decision", _said(of["decision_us_median"], 0, " µs"), f"median; {share}"


def _said(value: float | None, digits: int = 0, unit: str = "") -> str:
    return "unknown" if value is None else f"{value:,.{digits}f}{unit}"


def _section(name: str, svg: str) -> str:
    title, text = _FIGURES[name]
    labelled = _own_ids(svg, name).replace("<svg ", f'<svg role="img" aria-label="{escape(title)}" ', 1)
    return f"<section><h2>{title}</h2><p>{text}</p><figure>{labelled}</figure></section>"


def _own_ids(svg: str, name: str) -> str:
    """Ids with the figure's name, as one page holds several figures."""
    for before in ('id="', 'href="#', "url(#"):
        svg = svg.replace(before, f"{before}{name}-")
    return svg


def _table(numbers: Numbers) -> str:
    columns = ("tokens", "micro-batches", "real tokens", "measured ms", "predicted ms", "plans")
    head = "".join(f"<th>{column}</th>" for column in columns)
    rows = []
    for bucket in numbers.buckets:
        plans = "<br>".join(f"{escape(plan)} × {count:,}" for plan, count in bucket.plans.items())
        cells = (
            f"{bucket.shortest:,} – {bucket.longest:,}",
            f"{bucket.microbatches:,}",
            f"{bucket.tokens:,}",
            _said(bucket.measured_ms, 1),
            _said(bucket.predicted_ms, 1),
            plans,
        )
        rows.append("<tr>" + "".join(f"<td>{cell}</td>" for cell in cells) + "</tr>")
    return f"<table><thead><tr>{head}</tr></thead><tbody>{''.join(rows)}</tbody></table>"


def _options(numbers: Numbers) -> str:
    shares = option_shares(line.plan for line in numbers.lines)
    rows = "".join(
        f"<tr><td>{escape(look(option).name)}</td><td>{100 * share:.1f} %</td><td>{escape(option)}</td></tr>"
        for option, share in shares.items()
    )
    head = "<th>in figures</th><th>of all layers</th><th>option</th>"
    return f"<table><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table>"
