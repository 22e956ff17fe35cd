"""Model and cluster descriptions: what is shipped, and what is refused."""

from pathlib import Path

import pytest

from paradyse_megatron.costmodel.cluster import Cluster
from paradyse_megatron.costmodel.shape import ModelShape

CONFIGS = Path(__file__).parents[2] / "configs"
MODELS, CLUSTERS = sorted((CONFIGS / "models").glob("*.yaml")), sorted((CONFIGS / "clusters").glob("*.yaml"))


def num_parameters(shape):
    """Weights and biases of the matrices, unpadded, without norms."""
    embeddings = shape.vocab_size * shape.hidden_size * (1 if shape.tied_embeddings else 2)
    mlp_weights = shape.expert_weights if shape.num_experts else shape.mlp_weights
    return shape.num_layers * (shape.attention_weights + mlp_weights) + embeddings


@pytest.mark.parametrize(
    ("name", "billions"),
    [
        ("llama-2-7b", 6.74),
        ("llama-2-13b", 13.02),
        ("llama-2-70b", 68.98),
        ("llama-3-8b", 8.03),
        ("llama-3-70b", 70.55),
        ("gpt-1.3b", 1.31),
        ("gpt-2.7b", 2.65),
        ("gpt-6.7b", 6.66),
        ("gpt-13b", 12.85),
        ("mixtral-8x7b", 46.7),
    ],
)
def test_shipped_models_have_the_published_number_of_parameters(name, billions):
    shape = ModelShape.from_yaml(CONFIGS / "models" / f"{name}.yaml")
    assert num_parameters(shape) / 1e9 == pytest.approx(billions, rel=0.01)


def test_every_shipped_file_loads():
    shapes = {path.stem: ModelShape.from_yaml(path) for path in MODELS}
    clusters = {path.stem: Cluster.from_yaml(path) for path in CLUSTERS}
    assert {"tiny", "llama-2-7b", "llama-3-8b", "gpt-13b"} <= shapes.keys()
    assert {"cpu-2core", "dgx-h100", "dgx-a100", "h200", "8x4090-pcie"} == clusters.keys()
    for shape in shapes.values():
        assert all(cluster.flops_per_ms(shape.dtype) > 0 for cluster in clusters.values())
    assert shapes["tiny"].bytes_per_element == 4 and clusters["cpu-2core"].attention_materialised


def test_what_a_shape_leaves_out_is_filled_in():
    shape = ModelShape(64, 2, 8, 256, 1000)
    assert (shape.num_query_groups, shape.head_dim) == (8, 8)
    assert shape.attention_weights == 3 * 64 * 65 + 64 * 64
    assert shape.padded_vocab_size(3) == 1152


def test_static_bytes():
    """7B in bf16 with Adam: 18 bytes a parameter, an eighth on each of 8 ranks; tiny in fp32: 16 bytes."""
    shape = ModelShape.from_yaml(CONFIGS / "models" / "llama-2-7b.yaml")
    assert shape.static_bytes(8) == pytest.approx(18 * 6.74e9 / 8, rel=0.01)
    tiny = ModelShape.from_yaml(CONFIGS / "models" / "tiny.yaml")
    assert tiny.static_bytes(1) == pytest.approx(16 * num_parameters(tiny), rel=0.06)  # norms, and V = 257 becomes 384


MODEL = "hidden_size: 64\nnum_layers: 2\nnum_attention_heads: 8\nffn_hidden_size: 256\nvocab_size: 1000\n"


@pytest.mark.parametrize(
    ("content", "named"),
    [
        (MODEL + "colour: red\n", "unknown key 'colour'; known are hidden_size"),
        (MODEL.replace("num_layers: 2\n", ""), "no key 'num_layers'"),
        (MODEL.replace(": 64", ": wide"), "under 'hidden_size' 'wide', which must be a whole number"),
        (MODEL.replace(": 64", ": 64.5"), "under 'hidden_size' 64.5"),
        (MODEL.replace(": 2\n", ": true\n"), "under 'num_layers' True"),
        (MODEL + "gated_mlp: 1\n", "under 'gated_mlp' 1, which must be true or false"),
        (MODEL.replace(": 2\n", ": 0\n"), "num_layers must be at least 1"),
        (MODEL + "num_query_groups: 3\n", "num_query_groups must divide the 8 heads, but it is 3"),
        (MODEL + "num_query_groups: -8\n", "num_query_groups"),
        (MODEL + "head_dim: -8\n", "head_dim must be at least 1"),
        (MODEL.replace(": 64", ": 65"), "65 is not a multiple of 8 heads; give head_dim"),
        (MODEL + "dtype: fp8\n", "dtype must be one of fp64, fp32, bf16, fp16, but it is 'fp8'"),
        ("- 1\n", "must hold keys and values"),
        ("", "must hold keys and values"),
        ("a: [", "is not a YAML file"),
    ],
)
def test_bad_models_are_one_sentence_with_file_and_key(tmp_path, content, named):
    path = tmp_path / "model.yaml"
    path.write_text(content)
    with pytest.raises(ValueError, match=named) as error:
        ModelShape.from_yaml(path)
    assert str(path) in str(error.value)


CLUSTER = (CONFIGS / "clusters" / "dgx-h100.yaml").read_text()


@pytest.mark.parametrize(
    ("old", "new", "named"),
    [
        ("bf16: 9.89e14", "bf16: fast", "'peak_flops_per_s', 'bf16', 'fast', which must be a number"),
        ("bf16: 9.89e14", "bf16: 0", "peak_flops_per_s of bf16 must be above 0"),
        ("achievable_fraction: 0.6", "achievable_fraction: 1.6", "achievable_fraction must be above 0, at most 1"),
        ("latency_us: 15", "latency_us: -1", "'intra_node',: latency_us must be at least 0"),
        ("latency_us: 15", "latency_us: .nan", "'intra_node', has under 'latency_us' a number that is not finite"),
        ("memory_bandwidth_bytes_per_s: 3.35e12", "memory_bandwidth_bytes_per_s: .inf", "not finite"),
        ("bandwidth_bytes_per_s: 3.6e11", "bandwidth_bytes_per_s: 0.0", "bandwidth_bytes_per_s must be above 0"),
        ("hop_overlap_fraction: 0.8", "hop_overlap_fraction: 2", "hop_overlap_fraction must be from 0 to 1"),
        ("layer_overhead_us: 300", "layer_overhead_ms: 0.3", "unknown key 'layer_overhead_ms'"),
        ("attention_materialised: false", "", "no key 'attention_materialised'"),
    ],
)
def test_bad_clusters_are_one_sentence_with_file_and_key(tmp_path, old, new, named):
    assert old in CLUSTER
    path = tmp_path / "cluster.yaml"
    path.write_text(CLUSTER.replace(old, new))
    with pytest.raises(ValueError, match=named) as error:
        Cluster.from_yaml(path)
    assert str(path) in str(error.value)


def test_numbers_without_a_point_are_numbers(tmp_path):
    path = tmp_path / "cluster.yaml"
    path.write_text(CLUSTER.replace("9.89e14", "989e12"))
    assert Cluster.from_yaml(path) == Cluster.from_yaml(CONFIGS / "clusters" / "dgx-h100.yaml")


def test_files_that_are_not_there_and_dtypes_that_are_unknown(tmp_path):
    with pytest.raises(ValueError, match="cannot be read: No such file"):
        ModelShape.from_yaml(tmp_path / "none.yaml")
    (tmp_path / "cluster.yaml").write_text(CLUSTER.replace(", fp64: 6.7e13", ""))
    with pytest.raises(ValueError, match="no peak_flops_per_s for the model's dtype 'fp64'; it has bf16, fp16, fp32"):
        Cluster.from_yaml(tmp_path / "cluster.yaml").flops_per_ms("fp64")
