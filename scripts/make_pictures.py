"""Makes the pictures of README and docs anew, from shipped cost models, results, and what is written here:

python scripts/make_pictures.py        (needs matplotlib; a few seconds)
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any, NamedTuple
from xml.sax.saxutils import escape

import matplotlib

matplotlib.use("svg")
from matplotlib import pyplot as plt

REPOSITORY = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(REPOSITORY))

from paradyse_megatron.bench.convergence import draw  # noqa: E402
from paradyse_megatron.costmodel.model import CostModel  # noqa: E402
from paradyse_megatron.planner.planner import Planner  # noqa: E402
from paradyse_megatron.report import accuracy  # noqa: E402

PICTURES = REPOSITORY / "docs" / "pictures"
COSTS = "llama-2-7b-p8-dgx-h100"
BUDGET_GIB = 72
STATIC = {"tp_sp": "tab:blue", "tp_sp+full": "tab:cyan", "ulysses": "tab:orange", "ulysses/tp_sp": "tab:red"}


def main() -> None:
    PICTURES.mkdir(parents=True, exist_ok=True)
    matplotlib.rcParams["svg.hashsalt"] = "paradyse"  # the same file each time
    plan_by_length(PICTURES / "plan_by_length.svg")
    draw(result("convergence"), PICTURES / "convergence.svg")
    for name in ("accuracy", "accuracy-time"):
        accuracy.draw(result(name), PICTURES / f"{name}.svg")
    (PICTURES / "house.svg").write_text(house(), encoding="utf-8")
    (PICTURES / "layer.svg").write_text(layers(), encoding="utf-8")


def result(name: str) -> Any:
    """What the benchmark of that name found last; there is one file of it."""
    (path,) = (REPOSITORY / "configs" / "results").glob(f"*-{name}.json")
    return json.loads(path.read_text("utf-8"))


def plan_by_length(path: Path) -> None:
    """Predicted time a token of static choices, as far as they fit, and of the plan that follows the length."""
    costs = CostModel.load(REPOSITORY / "configs" / "costs" / f"{COSTS}.cost.json")
    shape = costs.shape
    lengths = [int(1024 * 2 ** (step / 4)) // 16 * 16 for step in range(33)]

    def times(options: list[str] | None) -> tuple[list[int], list[float]]:
        planner = Planner(
            costs,
            shape.num_layers,
            BUDGET_GIB * 2**30,
            options=options,
            static_bytes=shape.static_bytes(costs.group_size),
        )
        plans = [(length, planner.plan(length)) for length in lengths]
        fitting = [(length, 1e3 * (plan.predicted_ms or 0) / length) for length, plan in plans if plan.fits]
        return [length for length, _ in fitting], [time for _, time in fitting]

    figure, axes = plt.subplots(figsize=(8, 4.2), layout="constrained")
    for option, colour in STATIC.items():
        found = times([option])
        axes.plot(*found, color=colour, linewidth=1.4, label=f"{option} in all layers")
        if found[0][-1] < lengths[-1]:
            axes.plot(found[0][-1], found[1][-1], "x", color=colour, markersize=9, markeredgewidth=2)
    axes.plot(*times(None), color="black", linewidth=4, alpha=0.35, label="plan by length")
    ticks = [2**power for power in range(10, 19)]
    axes.set_xscale("log", base=2)
    axes.set_xticks(ticks, [f"{tick // 1024}K" for tick in ticks])
    axes.set_yscale("log")
    axes.set_yticks([15, 20, 30, 40, 60], ["15", "20", "30", "40", "60"])
    axes.minorticks_off()
    axes.set_xlabel("tokens of the sequence")
    axes.set_ylabel("µs a token, forward and backward")
    axes.set_title(f"Llama-2-7B on 8 ranks, {BUDGET_GIB} GiB each; x: longer ones do not fit\n"
                   "predicted for a described DGX H100, not measured", fontsize=10)  # fmt: skip
    axes.grid(alpha=0.3)
    axes.legend(fontsize=8)
    figure.savefig(path, metadata={"Date": None})


class Box(NamedTuple):
    """A rectangle with a name and a line below it; places in pixels."""

    x: float
    y: float
    width: float
    name: str
    text: str = ""
    colour: str = "#eef2f7"
    height: float = 44


ROOMS = (
    (("cli", "one thin file a verb"),),
    (("bench", "side by side, on this machine"),),
    (("integration", "the Megatron boundary: arguments, launch"), ("report", "tables, one HTML page")),
    (("data", "a document a sample"), ("runtime", "decide, follow, record"), ("simulation", "whole runs, on paper")),
    (("profiling", "real layers on fake tensors"),),
    (("layers", "megatron-core subclasses and specs"),),
    (("compat", "every Megatron version check"),),
    (("strategies", "how a layer is computed, without Megatron"),),
    (("comm", "collectives with autograd, gathered weights, executors"),),
    (("costmodel", "time and bytes of an option by length"),),
    (("planner", "plans, the peak-memory rule, the search"),),
    (("layouts", "who holds which tokens and heads; integers only"),),
)
"""Top to bottom; imports go down only. pyproject.toml holds the contract, and a test compares."""


def house() -> str:
    """The rooms of the package, one storey a layer of the import contract."""
    width, step, boxes = 640.0, 50, []
    for storey, rooms in enumerate(ROOMS):
        share = width / len(rooms)
        colour = "#fdebd2" if storey < 4 else "#e3eefb" if storey < 9 else "#e4f4e4"
        for place, (name, text) in enumerate(rooms):
            boxes.append(Box(70 + place * share, 50 + storey * step, share - 6, name, text, colour))
    bottom = 50 + len(ROOMS) * step
    boxes += [Box(724, 50, 130, "cpu", "torch.cuda on the CPU", "#eeeeee", bottom - 106)]
    boxes += [Box(724, bottom - 50, 130, "csrc", "C++ and kernels", "#eeeeee")]
    arrow = f'<path d="M40 60 V{bottom - 20}" class="arrow"/>' + _text(34, 46, "imports", "small", "middle")
    return _svg(874, bottom + 12, "The house: imports go down only", arrow + "".join(map(_box, boxes)))


TOKENS, OWN_HEADS, BOTH, WEIGHTS = "#e3eefb", "#fdebd2", "#ffffff", "#e4f4e4"
WAYS: tuple[tuple[str, tuple[tuple[str, str, str], ...]], ...] = (
    ("tp_sp", (("all-gather", "tokens", BOTH), ("QKV", "own heads", OWN_HEADS), ("attention", "own heads", OWN_HEADS),
               ("proj", "partial sums", OWN_HEADS), ("reduce-scatter", "tokens", BOTH))),
    ("ulysses", (("gather W", "one layer ahead", WEIGHTS), ("QKV", "own tokens", TOKENS),
                 ("all-to-all", "to own heads", BOTH), ("attention", "all tokens", OWN_HEADS),
                 ("all-to-all", "to own tokens", BOTH), ("proj", "own tokens", TOKENS))),
    ("ring", (("gather W", "one layer ahead", WEIGHTS), ("zigzag", "even work", BOTH), ("QKV", "own tokens", TOKENS),
              ("P - 1 hops", "K, V travel; merge", BOTH), ("proj", "own tokens", TOKENS), ("zigzag", "back", BOTH))),
    ("usp", (("gather W", "zigzag, QKV", WEIGHTS), ("all-to-all", "among u ranks", BOTH),
             ("P/u - 1 hops", "K, V of a head share", BOTH), ("all-to-all", "back", BOTH),
             ("proj", "zigzag back", TOKENS))),
    ("upipe", (("gather W", "one layer ahead", WEIGHTS), ("for each chunk", "of the heads:", BOTH),
               ("QKV", "of the chunk", TOKENS), ("all-to-all", "attention, back", OWN_HEADS),
               ("add into proj", "own tokens", TOKENS))),
    ("metp", (("zigzag", "even work", BOTH), ("for each owner", "of a weight shard:", BOTH),
              ("broadcast", "its shard", WEIGHTS), ("QKV and ring", "of its heads", TOKENS),
              ("add into proj", "own tokens", TOKENS), ("zigzag", "back", BOTH))),
    ("MLP tp_sp", (("all-gather", "tokens", BOTH), ("fc1, act, fc2", "own columns", OWN_HEADS),
                   ("reduce-scatter", "tokens", BOTH))),
    ("MLP gathered", (("gather W", "one layer ahead", WEIGHTS), ("fc1, act, fc2", "own tokens", TOKENS))),
    ("MLP streamed", (("for each owner", "of a weight shard:", BOTH), ("broadcast", "its shard", WEIGHTS),
                      ("fc1, act, fc2", "add, own tokens", TOKENS))),
)  # fmt: skip


def layers() -> str:
    """A token's way through a layer under each strategy: all begin and end with own tokens, [s/P, b, h]."""
    body, step, width = "", 58, 118
    for row, (name, stages) in enumerate(WAYS):
        y = 78 + row * step
        body += _text(18, y + 27, name, "name")
        body += f'<path d="M128 {y + 22} H{150 + 6 * (width + 14)}" class="arrow"/>'
        for place, (title, text, colour) in enumerate(stages):
            body += _box(Box(142 + place * (width + 14), y, width, title, text, colour))
    body += _text(18, 56, "own tokens in: [s/P, b, h], contiguous", "small")
    right = 150 + 6 * (width + 14)
    body += _text(right, 56, "own tokens out, the same layout", "small", "end")
    legend = ((TOKENS, "on own tokens"), (OWN_HEADS, "on own heads or columns"), (WEIGHTS, "weights move"),
              (BOTH, "activations move, or a loop"))  # fmt: skip
    bottom = 78 + len(WAYS) * step + 12
    for place, (colour, text) in enumerate(legend):
        body += f'<rect x="{142 + place * 190}" y="{bottom}" width="16" height="16" fill="{colour}" class="box"/>'
        body += _text(164 + place * 190, bottom + 13, text, "small")
    return _svg(right + 24, bottom + 34, "A token's way through a layer, by strategy", body)


def _box(box: Box) -> str:
    middle = box.x + box.width / 2
    rectangle = (
        f'<rect x="{box.x:.0f}" y="{box.y:.0f}" width="{box.width:.0f}" height="{box.height:.0f}" rx="5" '
        f'fill="{box.colour}" class="box"/>'
    )
    name = _text(middle, box.y + (19 if box.text else 27), box.name, "name", "middle")
    return rectangle + name + (_text(middle, box.y + 35, box.text, "small", "middle") if box.text else "")


def _text(x: float, y: float, text: str, style: str, anchor: str = "start") -> str:
    return f'<text x="{x:.0f}" y="{y:.0f}" class="{style}" text-anchor="{anchor}">{escape(text)}</text>\n'


def _svg(width: float, height: float, title: str, body: str) -> str:
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:.0f} {height:.0f}" width="{width:.0f}">\n'
        "<style>text { font-family: sans-serif; fill: #222 } .title { font-size: 16px; font-weight: bold }\n"
        ".name { font-size: 13px; font-weight: bold } .small { font-size: 11px }\n"
        ".box { stroke: #8a94a3 } .arrow { stroke: #8a94a3; fill: none; stroke-width: 1.5; marker-end: url(#tip) }\n"
        '</style>\n<defs><marker id="tip" markerWidth="8" markerHeight="8" refX="6" refY="3" orient="auto">'
        '<path d="M0 0 L6 3 L0 6" fill="#8a94a3"/></marker></defs>\n'
        f'<rect width="{width:.0f}" height="{height:.0f}" fill="white"/>\n'
        f"{_text(18, 28, title, 'title')}{body}</svg>\n"
    )


if __name__ == "__main__":
    main()
