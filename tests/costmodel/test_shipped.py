"""The shipped cost models are what `python scripts/make_cost_models.py` would write now."""

import pytest

from paradyse_megatron.costmodel.cluster import Cluster
from paradyse_megatron.costmodel.configs import configs_folder, shipped
from paradyse_megatron.costmodel.first_principles import estimate
from paradyse_megatron.costmodel.model import CostModel
from paradyse_megatron.costmodel.model_sources import read_shape

FILES = sorted((configs_folder() / "costs").glob("*.cost.json"))


def test_there_is_one_for_each_model_and_cluster():
    clusters = {path.stem for path in (configs_folder() / "clusters").glob("*.yaml")}
    for model in ("llama-2-7b", "gpt-13b"):
        found = {
            path.name.split("-p", 1)[1][2:].removesuffix(".cost.json") for path in FILES if path.name.startswith(model)
        }
        assert found == clusters


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_it_follows_from_its_trace_and_the_descriptions(path):
    """`tests/profiling` compares the trace itself with the layers of today."""
    model = CostModel.load(path)
    name = path.name.split(f"-p{model.group_size}-")[0]
    assert model.shape == read_shape(name)
    cluster = Cluster.from_yaml(shipped("clusters", model.provenance.machine))
    again = estimate(model.shape, cluster, model.group_size, list(model.options), parts=model.parts)
    assert (again.costs, again.head, again.chunked_head) == (model.costs, model.head, model.chunked_head)
    assert not model.is_measured and model.provenance.accuracy.time_mape_held_out is None
