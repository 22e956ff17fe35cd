"""The grammar of options: `attention[/mlp][+recompute]`."""

import itertools
import math

import pytest

from paradyse_megatron.planner.option import IMPLEMENTED, NAMES, USUAL_MLP, Option, all_options


@pytest.mark.parametrize(
    ("text", "parts", "canonical"),
    [
        ("tp_sp", ("tp_sp", "tp_sp", "none"), "tp_sp"),
        ("ulysses", ("ulysses", "gathered", "none"), "ulysses"),
        ("ulysses/gathered", ("ulysses", "gathered", "none"), "ulysses"),
        ("ulysses/tp_sp", ("ulysses", "tp_sp", "none"), "ulysses/tp_sp"),
        ("ring+none", ("ring", "gathered", "none"), "ring"),
        ("upipe+selective", ("upipe", "gathered", "selective"), "upipe+selective"),
        (" ring+full ", ("ring", "gathered", "full"), "ring+full"),
        ("tp_sp/gathered+full", ("tp_sp", "gathered", "full"), "tp_sp/gathered+full"),
    ],
)
def test_parse_and_canonical_text(text, parts, canonical):
    option = Option.parse(text)
    assert (option.attention, option.mlp, option.recompute) == parts
    assert str(option) == canonical
    assert Option.parse(canonical) == option


def test_every_combination_of_the_grammar_has_a_text_of_its_own():
    everything = [Option(*names) for names in itertools.product(*NAMES.values())]
    assert len({str(option) for option in everything}) == len(everything) == 7 * 3 * 3
    for option in all_options():
        assert Option.parse(str(option)) == option
    assert len(all_options()) == math.prod(map(len, IMPLEMENTED.values()))


def test_tables_agree():
    assert set(USUAL_MLP) == set(NAMES["attention"]) and set(USUAL_MLP.values()) <= set(NAMES["mlp"])
    assert all(set(IMPLEMENTED[part]) <= set(NAMES[part]) for part in NAMES)
    for attention in IMPLEMENTED["attention"]:
        assert USUAL_MLP[attention] in IMPLEMENTED["mlp"]


@pytest.mark.parametrize(
    "text",
    [
        "",
        " ",
        "/",
        "+full",
        "ring/",
        "ring/ ",
        "ring+",
        "ring//gathered",
        "ring full",
        "ring+full/gathered",
        "ring+full+full",
        "ring / gathered",
        "ring/ +full",
    ],
)
def test_malformed_is_one_sentence_with_the_form(text):
    with pytest.raises(ValueError, match=r"is no option; write attention\[/mlp\]\[\+recompute\]"):
        Option.parse(text)


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("rign", "'rign' names the attention 'rign', which does not exist; known are tp_sp, ulysses, ring, usp"),
        ("ring/dense", "names the mlp 'dense', which does not exist; known are tp_sp, gathered, streamed"),
        ("ring+some", "names the recompute 'some', which does not exist; known are none, selective, full"),
        ("TP_SP", "'TP_SP'"),
    ],
)
def test_unknown_names_are_listed(text, named):
    with pytest.raises(ValueError, match=named):
        Option.parse(text)


def test_names_of_later_versions_have_their_own_sentence(monkeypatch):
    monkeypatch.setitem(IMPLEMENTED, "recompute", ("none", "full"))
    with pytest.raises(ValueError, match="'selective', which this version cannot run yet; it can run none, full"):
        Option.parse("ring+selective")
