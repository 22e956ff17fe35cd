"""Which strategies key/value heads allow: those that share them, or a reason."""

from types import SimpleNamespace

import pytest

from paradyse_megatron.layers.support import unsupported_reason
from paradyse_megatron.planner.option import IMPLEMENTED, Option


def config(num_ranks, num_groups):
    return SimpleNamespace(
        tensor_model_parallel_size=num_ranks,
        num_query_groups=num_groups,
        num_attention_heads=24,
        attention_dropout=0.0,
        multi_latent_attention=False,
        window_size=None,
        fp8=None,
    )


@pytest.mark.parametrize(("num_ranks", "num_groups"), [(4, 2), (4, 1), (8, 4), (3, 1)])
def test_only_metp_wants_a_key_value_head_for_each_rank(num_ranks, num_groups):
    reasons = {
        name: unsupported_reason(Option(name, "tp_sp"), config(num_ranks, num_groups))
        for name in IMPLEMENTED["attention"]
    }
    assert reasons.pop("metp") == f"{num_groups} key/value heads cannot be dealt evenly to {num_ranks} ranks"
    assert set(reasons.values()) == {None} and len(reasons) >= 5


def test_heads_that_cannot_be_shared_evenly_are_refused():
    reason = unsupported_reason(Option("upipe", "tp_sp"), config(6, 4))
    assert reason is not None and "4 key/value heads can be neither dealt evenly to 6 ranks nor shared evenly" in reason
    assert unsupported_reason(Option("upipe", "tp_sp"), config(4, 8)) is None


def test_selective_recompute_that_would_free_nothing_is_refused():
    reasons = {
        name: unsupported_reason(Option(name, "tp_sp", "selective"), config(4, 8)) for name in IMPLEMENTED["attention"]
    }
    assert "keeps only q, k, v" in reasons.pop("ring")
    assert set(reasons.values()) == {None} and len(reasons) == 6
    assert "keeps only q, k, v" in unsupported_reason(Option("usp", "tp_sp", "selective"), config(4, 1))


@pytest.mark.parametrize(("precision", "flag"), [("fp8", "--fp8-format"), ("fp4", "--fp4-format")])
def test_quantised_layers_follow_tp_sp_alone_and_without_recompute(precision, flag):
    quantised = SimpleNamespace(**(vars(config(2, 8)) | {"fp8": None, precision: "hybrid"}))
    assert unsupported_reason(Option.parse("tp_sp"), quantised) is None
    for text in ("ulysses", "metp", "tp_sp/gathered", "ring/tp_sp"):
        assert unsupported_reason(Option.parse(text), quantised) == f"{flag} works in tp_sp only"
    assert unsupported_reason(Option.parse("tp_sp+full"), quantised) == f"{flag} works without recompute only"
