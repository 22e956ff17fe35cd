"""Plans as values: text, equality, digest, file."""

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from paradyse_megatron.planner.jsonfile import write_object
from paradyse_megatron.planner.option import Option, all_options
from paradyse_megatron.planner.plan import HEADS, Plan

options = st.lists(st.sampled_from(all_options()), min_size=1, max_size=12).map(tuple)
plans = st.builds(Plan, options, head=st.sampled_from(HEADS))


def test_the_plan_of_the_design():
    plan = Plan.parse("tp_sp*4,ulysses/tp_sp*2,ring+full*2", 8)
    assert plan.options == ("tp_sp",) * 4 + ("ulysses/tp_sp",) * 2 + ("ring+full",) * 2
    assert plan.layer_options[4] == Option("ulysses", "tp_sp")
    assert str(plan) == "tp_sp*4,ulysses/tp_sp*2,ring+full*2"
    assert len(plan) == 8


@pytest.mark.parametrize(
    ("text", "num_layers", "canonical"),
    [
        ("ring", 3, "ring"),
        ("ring*3", 3, "ring"),
        ("ring/gathered+none", 2, "ring"),
        ("ring*1,ring*2", 3, "ring"),
        ("tp_sp, ring * 2 ,ring", 4, "tp_sp*1,ring*3"),
        ("tp_sp", 1, "tp_sp"),
        ("ring*3;head=chunked", 3, "ring;head=chunked"),
        (" tp_sp, ring ; head = chunked ", 2, "tp_sp*1,ring*1;head=chunked"),
    ],
)
def test_canonical_text(text, num_layers, canonical):
    assert str(Plan.parse(text, num_layers)) == canonical


@settings(deadline=None)  # files of a busy machine take their time
@given(plans)
def test_text_and_file_round_trip(tmp_path_factory, plan):
    assert Plan.parse(str(plan), len(plan)) == plan
    path = tmp_path_factory.mktemp("plans") / "plan.json"
    plan.save(path)
    assert Plan.from_file(path, len(plan)) == plan


def test_predictions_are_notes_outside_of_equality_and_hash(tmp_path):
    plan = Plan.parse("ring", 2)
    noted = Plan(plan.layer_options, predicted_ms=1.5, predicted_bytes=2**40, fits=True)
    assert plan == noted and hash(plan) == hash(noted) and plan.digest() == noted.digest()
    assert plan.fits is None
    noted.save(tmp_path / "plan.json")
    again = Plan.from_file(tmp_path / "plan.json", 2)
    assert (again.predicted_ms, again.predicted_bytes, again.fits) == (1.5, 2**40, True)
    with pytest.raises(AttributeError):
        plan.fits = True


def test_the_head_is_part_of_a_plan_and_shown_only_where_it_is_chunked():
    whole, chunked = Plan.parse("ring", 2), Plan.parse("ring;head=chunked", 2)
    assert (whole.head, chunked.head) == ("whole", "chunked") and whole.options == chunked.options
    assert whole != chunked and hash(whole) != hash(chunked) and whole.digest() != chunked.digest()
    assert whole == Plan(whole.layer_options, head="whole") and "head" not in str(whole)
    with pytest.raises(ValueError, match="one of whole, chunked, but this one's is 'half'"):
        Plan(whole.layer_options, head="half")


def test_digest_is_stable_and_tells_plans_apart():
    assert Plan.parse("ring", 2).digest() == "08d21be53752df58"  # sha256 of "ring*2": agreed between ranks and versions
    texts = ["ring", "ring+full", "tp_sp*1,ring*1", "ring*1,tp_sp*1"]
    assert len({Plan.parse(text, 2).digest() for text in texts} | {Plan.parse("ring", 3).digest()}) == 5


@pytest.mark.parametrize(
    ("text", "num_layers", "named"),
    [
        ("tp_sp*4,ring*2", 8, "is for 6 layers, but the model has 8"),
        ("tp_sp,ring", 3, "is for 2 layers, but the model has 3"),
        ("tp_sp*999999999", 2, "is for 999999999 layers"),
        ("tp_sp*99999999999999999999", 2, "is no option with a count"),
        ("tp_sp*0,ring*2", 2, "is for no layer; the count must be at least 1"),
        ("tp_sp*-1", 2, "is no option with a count"),
        ("tp_sp*2.0", 2, "is no option with a count"),
        ("tp_sp*", 2, "is no option with a count"),
        ("*2", 2, "is no option with a count"),
        ("tp_sp*1,,ring*1", 2, "'' in the plan"),
        ("tp_sp*2,", 2, "'' in the plan"),
        ("", 2, "is no option"),
        ("nonsense*2", 2, "'nonsense', which does not exist; known are"),
        ("ring;head=half", 2, "'head=half' after its layers, where only 'head=chunked' may stand"),
        ("ring;head=whole", 2, "where only 'head=chunked' may stand"),
        ("ring;", 2, "where only 'head=chunked' may stand"),
        ("ring;head=chunked;head=chunked", 2, "where only 'head=chunked' may stand"),
        ("head=chunked", 2, "'head=chunked', which does not exist"),
        ("ring", 0, "needs at least one layer"),
    ],
)
def test_bad_plans_are_one_sentence(text, num_layers, named):
    with pytest.raises(ValueError, match=named):
        Plan.parse(text, num_layers)


@pytest.mark.parametrize(
    ("content", "named"),
    [
        ('{"schema": 1, "plan": "ring*2", "colour": 1}', "unknown key 'colour'; known are fits, plan, predicted_bytes"),
        ('{"schema": 1}', "no key 'plan'"),
        ('{"plan": "ring"}', "no key 'schema'; this version reads schema 1"),
        ('{"schema": 2, "plan": "ring"}', "schema 2; this version reads schema 1"),
        ('{"schema": true, "plan": "ring"}', "schema True"),
        ('{"schema": 1, "plan": ["ring"]}', "under 'plan'"),
        ('{"schema": 1, "plan": "ring*3"}', "is for 3 layers, but the model has 2"),
        ('{"schema": 1, "plan": "ring", "fits": 1}', "under 'fits' 1"),
        ('{"schema": 1, "plan": "ring", "predicted_ms": -1}', "under 'predicted_ms' -1"),
        ('{"schema": 1, "plan": "ring", "predicted_bytes": true}', "under 'predicted_bytes' True"),
        ('{"schema": 1, "plan": "ring", "predicted_ms": NaN}', "NaN"),
        ('{"schema": 1, "plan": "ring", "predicted_ms": 1e999}', "infinite"),
        ('{"schema": 1, "plan": "ri', "not a whole JSON file"),
        ("[1]", "must hold a JSON object"),
        ("", "not a whole JSON file"),
        ("[" * 100_000, "not a whole JSON file"),
    ],
)
def test_bad_files_are_one_sentence_with_file_and_key(tmp_path, content, named):
    path = tmp_path / "plan.json"
    path.write_text(content)
    with pytest.raises(ValueError, match=named) as error:
        Plan.from_file(path, 2)
    assert str(path) in str(error.value)


def test_files_that_are_not_there_or_not_text(tmp_path):
    with pytest.raises(ValueError, match="cannot be read: No such file"):
        Plan.from_file(tmp_path / "none.json", 2)
    (tmp_path / "binary.json").write_bytes(b"\x80\x81\x00")
    with pytest.raises(ValueError, match="not a whole JSON file"):
        Plan.from_file(tmp_path / "binary.json", 2)


def test_a_file_by_hand_needs_no_notes(tmp_path):
    path = tmp_path / "plan.json"
    path.write_text(json.dumps({"schema": 1, "plan": "tp_sp"}))
    assert Plan.from_file(path, 5) == Plan.parse("tp_sp", 5)


def test_a_file_of_ours_is_json_whatever_its_keys_are(tmp_path):
    write_object(tmp_path / "a.json", 1, {"by_length": {128: 0.5, 256: {"x": [1, 2]}}})
    found = json.loads((tmp_path / "a.json").read_text())
    assert found == {"schema": 1, "by_length": {"128": 0.5, "256": {"x": [1, 2]}}}
