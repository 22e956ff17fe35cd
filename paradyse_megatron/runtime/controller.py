"""Stands at the decoder's door on every rank and pipeline stage: decides, lets the layers follow, and records."""

from __future__ import annotations

import functools
import time
import zlib
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

import torch
from torch import Tensor

from paradyse_megatron.comm.collectives import Group
from paradyse_megatron.layers.active import use_plan
from paradyse_megatron.layers.prefetch import link_layers
from paradyse_megatron.planner.plan import Plan
from paradyse_megatron.runtime.decision import Decider
from paradyse_megatron.runtime.recorder import Recorder

MAX_CACHED_LENGTHS = 4096


class Controller:
    """Installs a plan around each forward call of a decoder.

    The length is read off the hidden state, [s/P, b, h], which every pipeline stage has.

    Args:
        decider: gives the plan of a length.
        group: the tensor-parallel ranks, among whom the tokens are dealt.
        recorder: notes training micro-batches; None on ranks that write no trace.
        iteration: tells the training iteration under way.
    """

    def __init__(self, decider: Decider, group: Group, recorder: Recorder | None, iteration: Callable[[], int]):
        self._decider, self._group, self._recorder, self._iteration = decider, group, recorder, iteration
        self._scopes: list[ExitStack] = []
        self._plans: dict[int, tuple[Plan, int]] = {}
        self._followed = 0
        self._seq_length = 0
        self._head = "whole"

    def attach(self, decoder: Any) -> None:
        """Watch a `TransformerBlock` and let its layers fetch weights ahead; the hooks stay for its life."""
        link_layers(decoder.layers, self._group)
        decoder.register_forward_pre_hook(self._enter, with_kwargs=True)
        decoder.register_forward_hook(self._leave, always_call=True)

    def announce(self, seq_length: int) -> None:
        """The real tokens of the micro-batch that is about to enter, for the record."""
        self._seq_length = seq_length

    def head(self) -> str:
        """How to compute the loss head of the micro-batch that entered last; to be asked in its forward."""
        return self._head

    def forget_plans(self) -> None:
        """The decider has changed its mind; plans under way are captured, and stay."""
        self._plans.clear()

    def followed(self) -> int:
        """A hash, once, of all training micro-batches since the last call: their lengths and plans, in any order."""
        followed, self._followed = self._followed, 0
        return followed

    def loss(self, loss_sum: Tensor, num_tokens: Tensor) -> None:
        """The loss of the micro-batch that entered last, for the record."""
        if self._recorder is not None:
            self._recorder.loss(loss_sum, num_tokens)

    def _enter(self, decoder: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        hidden = _decoder_input(decoder, args, kwargs)
        begin = time.perf_counter()
        padded_length = hidden.shape[0] * (self._group.size() if decoder.config.sequence_parallel else 1)
        plan, digest = self._plan(padded_length)
        decision_us = 1e6 * (time.perf_counter() - begin)
        self._head = plan.head
        scope = ExitStack()
        scope.enter_context(use_plan(plan))
        self._scopes.append(scope)
        if decoder.training and torch.is_grad_enabled():
            self._followed = (self._followed + digest) % 2**32
        if self._recorder is not None and decoder.training and hidden.requires_grad:
            self._recorder.begin(
                self._iteration(),
                self._seq_length or padded_length,
                padded_length,
                plan,
                decision_us,
                hidden,
                functools.partial(self._decider.predicted_peak_bytes, plan),
            )

    def _plan(self, padded_length: int) -> tuple[Plan, int]:
        """The plan of a length, and a hash of both; worked out once a length."""
        if padded_length not in self._plans:
            if len(self._plans) >= MAX_CACHED_LENGTHS:
                self._plans.clear()
            plan = self._decider.decide(padded_length)
            self._plans[padded_length] = plan, zlib.crc32(f"{padded_length} {plan}".encode())
        return self._plans[padded_length]

    def _leave(self, decoder: Any, args: tuple[Any, ...], output: Any) -> None:
        if self._scopes:  # empty when `_enter` refused the length
            self._scopes.pop().close()


def _decoder_input(decoder: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Tensor:
    """What the first layer will see: the embedding's output, or what the previous pipeline stage sent."""
    if not decoder.pre_process:
        return decoder.input_tensor
    hidden = kwargs["hidden_states"] if "hidden_states" in kwargs else args[0]
    return hidden.unwrap() if hasattr(hidden, "unwrap") else hidden
