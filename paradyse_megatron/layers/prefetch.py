"""Gathered weights one layer ahead: the next layer's travel while this one computes, and in reverse in backward.

A layer that begins its forward finds its own weights on their way and sends for those of the layer behind it. Its
backward, when it begins, sends for those of the layer before it. So at most two layers' weights are whole at a time.
Layers that recompute all of themselves, or do not gather, take no part.

They travel in a process group of their own: on a GPU collectives of one group run in order, and a layer's all-to-all
must not queue behind the next layer's weights.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import torch.distributed as dist

from paradyse_megatron.comm.collectives import Group
from paradyse_megatron.layers.active import planned_option
from paradyse_megatron.layers.weights import GATHER_ON_USE, LayerWeights, gather_layer
from paradyse_megatron.planner.option import Option

_weight_groups: dict[tuple[int, ...], Group] = {}


def link_layers(layers: Sequence[Any], group: Group) -> None:
    """Let the layers of one pipeline stage fetch for each other. Collective over the ranks of `group`.

    Layers that follow no plan (another family's, or stock ones) are passed over.
    """
    if group.size() > 1:
        weight_group = _weight_group(group)
        layers = [layer for layer in layers if hasattr(layer, "prefetch")]
        for layer in layers:
            layer.prefetch = Prefetch(weight_group)
        for layer, following in pairwise(layers):
            layer.prefetch.following = (following,)


class Prefetch:
    """One layer's part in it; without a group, a layer's strategies gather on use.

    Attributes:
        following: the next layer of the stage, if any; in a tuple, lest torch take it for a submodule.
    """

    def __init__(self, group: Group | None = None):
        self.following: tuple[Any, ...] = ()
        self._group = group
        self._handed: LayerWeights | None = None

    def arrive(self, layer: Any, option: Option) -> LayerWeights:
        """The layer begins its forward: its own weights on their way, and those of the next one sent for."""
        weights = self._handed or self._gather(layer, option)
        self._handed = None
        weights.start()
        for following in self.following:
            following.prefetch.hand(following, weights)
        return weights

    def hand(self, layer: Any, before: LayerWeights) -> None:
        """The layer before has begun: send for this layer's weights; their backward will send for those of `before`."""
        self._handed = self._gather(layer, planned_option(layer.layer_number))
        self._handed.start()
        for weight in self._handed.matrices():
            weight.wanted_next = before.matrices()

    def _gather(self, layer: Any, option: Option) -> LayerWeights:
        if self._group is None or option.recompute == "full":
            return GATHER_ON_USE
        return gather_layer(layer, option, self._group)


def _weight_group(group: Group) -> Group:
    """A second group of the same ranks, made once."""
    ranks = tuple(dist.get_process_group_ranks(group))
    if ranks not in _weight_groups:
        made = dist.new_group(list(ranks), use_local_synchronization=True)
        assert isinstance(made, dist.ProcessGroup), "this process is not in the group"
        _weight_groups[ranks] = made
    return _weight_groups[ranks]
