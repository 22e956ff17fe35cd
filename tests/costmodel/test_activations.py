"""The closed forms for memory against what real layers held.

Measured on 2026-11-30 with torch 2.14.1 and megatron-core 0.19.2 on CPU: one `DynamicTransformerLayer`, h = 256, a = 8,
f = 1024, b = 1, s = 4096, local spec; saved by `saved_tensors_hooks` (distinct storages, without parameters), peak by
`torch.distributed._tools.mem_tracker.MemTracker` above the memory before the layer's forward. KiB on rank 0. Rows with
`ring`, `usp` or `selective` come from `tests/layers/layer_trace.py`; `tests/layers/test_bytes.py` traces them again.
"""

import pytest

from paradyse_megatron.costmodel import activations
from paradyse_megatron.costmodel.polynomial import Polynomial
from paradyse_megatron.costmodel.setting import Setting
from paradyse_megatron.costmodel.shape import ModelShape
from paradyse_megatron.planner.option import USUAL_MLP, Option, all_options

# family, key/value heads, dtype, ranks, option: KiB saved, KiB at the peak of forward and backward
MEASURED = {
    ("gpt", 8, "fp32", 2, "tp_sp"): (311_328, 1_344_662),
    ("gpt", 8, "fp32", 2, "ulysses"): (34_912, 46_689),
    ("gpt", 8, "fp32", 2, "ring"): (32_864, 44_641),
    ("gpt", 8, "fp32", 2, "ulysses+full"): (2_048, 48_737),
    ("llama", 4, "fp32", 2, "tp_sp"): (342_032, 1_347_209),
    ("llama", 4, "fp32", 2, "ulysses"): (66_640, 86_096),
    ("llama", 4, "fp32", 2, "ring"): (60_496, 79_440),
    ("llama", 8, "fp32", 4, "tp_sp"): (182_280, 682_821),
    ("llama", 8, "fp32", 4, "ulysses"): (35_880, 45_864),
    ("llama", 8, "fp32", 4, "ring"): (31_272, 40_744),
    ("llama", 8, "bf16", 2, "tp_sp"): (447_504, 947_016),
    ("llama", 8, "bf16", 2, "ulysses"): (38_992, 50_000),
    ("llama", 8, "bf16", 2, "ring"): (35_408, 45_904),
    ("gpt", 8, "bf16", 2, "tp_sp"): (426_000, 942_667),
    ("gpt", 8, "bf16", 2, "ulysses"): (17_488, 23_376),
    ("gpt", 8, "bf16", 2, "ring"): (16_464, 32_395),
    ("gpt", 8, "fp32", 2, "metp"): (10_336, 36_073),
    ("gpt", 8, "fp32", 2, "metp+full"): (2_048, 38_121),
    ("gpt", 8, "fp32", 2, "tp_sp/streamed"): (294_944, 1_342_614),
    ("llama", 4, "fp32", 2, "metp"): (14_416, 61_024),
    ("llama", 8, "fp32", 4, "metp"): (7_208, 21_552),
    ("llama", 8, "fp32", 4, "tp_sp/streamed"): (161_800, 681_797),
    ("llama", 8, "bf16", 2, "metp"): (11_344, 36_704),
    ("gpt", 8, "bf16", 2, "metp"): (5_200, 24_220),
    ("gpt", 8, "bf16", 4, "metp"): (2_600, 9_456),
    ("llama", 2, "fp32", 4, "tp_sp"): (180_232, 681_797),  # two ranks share each key/value head
    ("llama", 2, "fp32", 4, "ulysses"): (34_344, 42_792),
    ("llama", 2, "fp32", 4, "usp"): (31_272, 40_744),
    ("llama", 2, "fp32", 4, "upipe"): (27_688, 36_136),
    ("gpt", 2, "bf16", 4, "ulysses"): (8_232, 10_920),
    ("gpt", 2, "bf16", 4, "usp"): (7_976, 11_177),
    ("gpt", 2, "bf16", 4, "upipe"): (6_696, 9_384),
    ("llama", 8, "fp32", 2, "upipe2"): (55_376, 74_320),
    ("gpt", 8, "bf16", 2, "upipe2"): (13_392, 19_280),
    ("gpt", 8, "fp32", 2, "tp_sp+selective"): (32_800, 1_348_758),
    ("gpt", 8, "fp32", 2, "ulysses+selective"): (32_800, 44_577),
    ("gpt", 8, "fp32", 2, "upipe+selective"): (24_608, 36_385),
    ("gpt", 8, "fp32", 2, "metp+selective"): (8_240, 37_065),
    ("llama", 8, "fp32", 4, "tp_sp+selective"): (34_824, 687_941),
    ("llama", 8, "fp32", 4, "ulysses+selective"): (30_728, 40_200),
    ("llama", 8, "fp32", 4, "upipe+selective"): (26_632, 36_104),
    ("llama", 8, "fp32", 4, "metp+selective"): (6_160, 21_520),
    ("llama", 8, "bf16", 2, "tp_sp+selective"): (37_904, 951_113),
    ("llama", 8, "bf16", 2, "ulysses+selective"): (34_832, 44_304),
    ("llama", 8, "bf16", 2, "upipe+selective"): (30_736, 40_208),
    ("llama", 8, "bf16", 2, "metp+selective"): (10_272, 35_616),
    ("llama", 2, "fp32", 4, "ulysses+selective"): (29_704, 39_176),
    ("llama", 2, "fp32", 4, "usp+selective"): (29_192, 38_664),
    ("gpt", 2, "bf16", 4, "usp+selective"): (7_432, 10_633),
    ("gpt", 2, "bf16", 4, "upipe+selective"): (6_152, 9_353),
}
# the same with f = 64, so that attention's backward is the worst moment
MEASURED_WITH_A_SMALL_MLP = {
    ("llama", 8, "fp32", 2, "upipe"): (16_976, 26_025),
    ("gpt", 8, "fp32", 2, "upipe"): (11_360, 23_194),
    ("gpt", 8, "bf16", 2, "upipe"): (5_712, 13_229),
    ("llama", 2, "fp32", 4, "upipe"): (8_488, 18_005),
    ("gpt", 2, "bf16", 4, "upipe"): (2_856, 8_631),
    ("llama", 8, "fp32", 2, "upipe2"): (16_976, 38_057),
    ("gpt", 8, "bf16", 2, "upipe2"): (5_712, 17_005),
    ("llama", 2, "fp32", 4, "upipe2"): (8_488, 19_029),
    ("llama", 8, "bf16", 2, "upipe2+selective"): (11_536, 21_592),
    ("gpt", 8, "fp32", 2, "metp+selective"): (8_240, 36_103),
    ("llama", 8, "bf16", 2, "metp+selective"): (10_272, 28_329),
    ("llama", 8, "bf16", 2, "upipe+selective"): (11_536, 18_489),
}


def make_setting(family, num_groups, dtype, group_size, unfused=True, ffn=1024):
    llama = family == "llama"
    shape = ModelShape(
        256,
        1,
        8,
        ffn,
        512,
        num_query_groups=num_groups,
        gated_mlp=llama,
        add_bias=not llama,
        rms_norm=llama,
        rotary=llama,
        dtype=dtype,
    )
    return Setting(shape, group_size, 1, unfused)


@pytest.mark.parametrize("case", MEASURED, ids=str)
def test_never_under_and_not_far_over_what_was_measured(case):
    assert_bounds(case[-1], *MEASURED[case], make_setting(*case[:-1]))


@pytest.mark.parametrize("case", MEASURED_WITH_A_SMALL_MLP, ids=str)
def test_chunks_of_heads_in_the_workspace(case):
    assert_bounds(case[-1], *MEASURED_WITH_A_SMALL_MLP[case], make_setting(*case[:-1], ffn=64))


def assert_bounds(option, saved_kib, peak_kib, setting):
    held = activations.layer(Option.parse(option), setting)
    ahead = 0 if option.endswith("+full") else activations._ahead(Option.parse(option), setting)(4096)
    # Single layers were measured, without a neighbour whose weights travel beside them.
    saved, peak = held.saved(4096) / 1024, (held.saved(4096) + held.workspace(4096) - ahead) / 1024
    assert 0.99 < saved / saved_kib < 1.06  # of the notes that operations take for each row only the norms' are counted
    assert 1.0 <= peak / peak_kib < 1.45  # the worst moment is bounded from above, not followed


def test_fused_attention_is_linear_in_length_and_materialised_is_not():
    for option in all_options():
        held = activations.layer(option, make_setting("llama", 4, "bf16", 4, unfused=False))
        assert held.saved.per_token_squared == held.workspace.per_token_squared == 0
        unfused = activations.layer(option, make_setting("llama", 4, "bf16", 4))
        assert (unfused.workspace.per_token_squared > 0) == (option.attention == "tp_sp")
        assert (unfused.saved.per_token_squared > 0) == (option.attention == "tp_sp" and option.recompute == "none")


def test_full_recompute_keeps_the_input_and_rebuilds_the_rest():
    setting = make_setting("gpt", 8, "fp32", 2)
    for option in all_options():
        if option.recompute != "none":
            continue
        kept = activations.layer(option, setting)
        full = activations.layer(Option(option.attention, option.mlp, "full"), setting)
        assert full.saved == Polynomial(per_token=256 * 4 / 2)
        ahead = activations._ahead(option, setting)
        assert full.workspace + ahead == kept.saved + kept.workspace
        gathers = "gathered" in (USUAL_MLP[option.attention], option.mlp)
        assert (ahead.constant > 0) == gathers  # nothing travels ahead of a layer that recomputes


def test_selective_recompute_drops_what_only_the_core_keeps():
    """Llama's q and k rotated, cosines and sines, output and log-sum-exp; some make them piece by piece."""
    setting = make_setting("llama", 8, "fp32", 2)
    lse, output, rotated = 8, 256, 2 * 256 + 4 * 32 * 2
    dropped = {
        "ulysses": output + lse + rotated,
        "usp": output + lse + rotated,
        "upipe": output + lse,
        "upipe2": output + lse,
        "metp": output + lse,
    }
    rounds = {"upipe": 4, "upipe2": 2, "metp": 2}
    assert {name: activations.rounds(name, setting) for name in rounds} == rounds
    for attention, per_row in dropped.items():
        kept, lean = (activations.layer(Option(attention, "gathered", how), setting) for how in ("none", "selective"))
        assert (kept.saved(2) - lean.saved(2)) / 4 == per_row
        assert 0 <= lean.workspace(2) - kept.workspace(2) <= per_row * 4 / rounds.get(attention, 1)


@pytest.mark.parametrize("num_groups", [32, 8])
def test_metp_holds_at_most_half_of_tp_sp_at_the_longest(num_groups):
    """A 7B layer at 131,072 tokens on 8 ranks, everything fused; `tests/layers/test_bytes.py` traces the real layer."""
    shape = ModelShape(
        4096,
        32,
        32,
        11008,
        32000,
        num_query_groups=num_groups,
        gated_mlp=True,
        add_bias=False,
        rms_norm=True,
        rotary=True,
        dtype="bf16",
    )
    tp_sp, metp = (
        activations.layer(Option.parse(option), Setting(shape, 8, 1, unfused=False)) for option in ("tp_sp", "metp")
    )
    assert metp.saved(131_072) + metp.workspace(131_072) < (tp_sp.saved(131_072) + tp_sp.workspace(131_072)) / 2
    assert metp.saved(131_072) < tp_sp.saved(131_072) / 4


def test_gathered_weights_are_in_the_workspace_whatever_the_length():
    """The MLP's matrices and their gradients whole; on one rank the gradients only, on many with tp_sp their share."""
    setting = make_setting("gpt", 8, "bf16", 2)
    whole = activations.layer(Option("tp_sp", "gathered"), setting).workspace.constant
    assert whole == (2 + 1) * 2 * setting.shape.mlp_weights  # the third copy is on its way for the neighbour
    alone = make_setting("gpt", 8, "bf16", 1)
    assert activations.layer(Option("tp_sp", "gathered"), alone).workspace.constant == 2 * alone.shape.mlp_weights
    assert activations.layer(Option("tp_sp", "tp_sp"), setting).workspace.constant == setting.shape.mlp_weights
