"""Memory of the host executor's large tensors: used again when nothing refers to it any more, and bounded."""

from __future__ import annotations

import pytest
import torch

from paradyse_megatron.comm import host
from tests.comm.test_executors import built

pytestmark = built
LIKE = torch.zeros(1, dtype=torch.bfloat16)
PAGE = 2 << 20


@pytest.fixture(autouse=True)
def nothing_kept():
    host._built().let_go()
    yield
    host._built().let_go()


def large(num_bytes: int) -> torch.Tensor:
    return host.empty((num_bytes // 256, 128), LIKE)


def test_memory_is_used_again_by_what_is_about_as_large():
    first = large(16 << 20)
    where = first.data_ptr()
    assert where % PAGE == 0 and first.is_contiguous() and first.dtype == LIKE.dtype and host._built().kept_bytes() == 0
    del first
    assert host._built().kept_bytes() == 16 << 20
    longer, much_shorter = large(17 << 20), large(12 << 20)
    assert where not in (longer.data_ptr(), much_shorter.data_ptr())
    shorter = large(14 << 20)
    assert shorter.data_ptr() == where and host._built().kept_bytes() == 0


def test_it_is_not_while_a_view_lives():
    first = large(8 << 20)
    view, where = first[1:3].view(torch.int16), first.data_ptr()
    view.fill_(5)
    del first
    large(8 << 20).zero_()
    assert (view == 5).all()
    del view
    assert large(8 << 20).data_ptr() == where or large(8 << 20).data_ptr() == where


def test_what_is_kept_is_bounded():
    """The last eight of many sizes; of larger ones, which the system gives but lazily, as many as fit into 1 GiB."""
    for sizes, kept in ([8 + 2 * index for index in range(40)], sum(range(72, 87, 2))), ([400] * 4, 800):
        held = [large(size << 20) for size in sizes]
        while held:
            held.pop(0)
        assert host._built().kept_bytes() == kept << 20


def test_small_and_foreign_tensors_are_torchs():
    assert large(3 << 20).numel() and host._built().kept_bytes() == 0
    assert host.empty((4096, 4096), LIKE.to("meta")).device.type == "meta"


def test_where_memory_is_missing_torch_says_so():
    large(8 << 20)
    with pytest.raises(RuntimeError, match="memory"):
        large(1 << 50)
    assert host._built().kept_bytes() == 0  # let go before giving up


def test_nothing_is_kept_where_memory_is_to_go_back_at_once(monkeypatch):
    monkeypatch.setattr(host, "_GIVES_BACK", True)
    first = large(16 << 20)
    del first
    assert host._built().kept_bytes() == 0
