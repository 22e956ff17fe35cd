"""`torch.cuda` on the CPU: what is mapped, and that all of it is put back."""

import functools
import logging
import resource
import subprocess
import sys
import types

import pytest
import torch

from paradyse_megatron import cpu
from paradyse_megatron.cpu import devices, memory, streams

MIB = 2**20


@pytest.fixture(autouse=True)
def off():
    """These tests begin with the mapping off, whatever other modules of tests did when they were imported."""
    was_enabled = cpu.is_enabled()
    cpu.disable()
    yield
    cpu.disable()
    if was_enabled:
        cpu.enable()


@pytest.fixture
def enabled(off):
    cpu.enable()


@pytest.fixture
def module(off):
    """A loaded module, as one that was imported before `enable()`."""
    module = types.ModuleType("imported_before")
    sys.modules[module.__name__] = module
    yield module
    del sys.modules[module.__name__]


def _everything() -> dict[tuple[int, str], object]:
    owners = [torch, torch.cuda, torch.cuda.memory, torch.cuda.random, torch.cuda.nvtx, torch.accelerator]
    owners += [torch.Tensor, torch.utils.data.DataLoader]
    return {(id(owner), name): value for owner in owners for name, value in vars(owner).items()}


def test_disable_restores_every_object():
    before = _everything()
    cpu.enable()
    during = _everything()
    assert sum(during.get(key) is not value for key, value in before.items()) > 60
    cpu.disable()
    after = _everything()
    assert after.keys() == before.keys()
    assert [key for key, value in before.items() if after[key] is not value] == []


def test_enabling_twice_does_not_stack(enabled):
    first = _everything()
    cpu.enable()
    assert cpu.is_enabled()
    assert all(value is first[key] for key, value in _everything().items())


def test_disabling_without_enabling_is_harmless():
    cpu.disable()
    assert not cpu.is_enabled()


def test_refuses_when_there_is_a_gpu(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    before = _everything()
    with pytest.raises(RuntimeError, match="there is a GPU.*CUDA_VISIBLE_DEVICES="):
        cpu.enable()
    assert not cpu.is_enabled()
    assert all(value is before[key] for key, value in _everything().items())


def test_says_once_that_it_is_on(caplog, monkeypatch):
    monkeypatch.delenv("RANK", raising=False)
    with caplog.at_level(logging.INFO):
        cpu.enable()
        cpu.enable()
        cpu.disable()
    assert [record.getMessage().split(" (")[0] for record in caplog.records] == ["torch.cuda is mapped onto the CPU"]


def test_copies_in_loaded_modules_follow(module):
    module.current_device = original = torch.cuda.current_device
    cpu.enable()
    assert module.current_device() == 0
    module.device_count = torch.cuda.device_count  # as a module that is imported now would
    cpu.disable()
    assert module.current_device is original
    assert module.device_count is torch.cuda.device_count


@pytest.mark.parametrize(
    "make", [lambda: functools.partial(torch.zeros, device="cuda"), lambda: type("MyEvent", (torch.cuda.Event,), {})]
)
def test_refuses_when_something_can_no_longer_follow(module, make):
    module.made_from_cuda = make()
    with pytest.raises(RuntimeError, match="too late: imported_before.made_from_cuda"):
        cpu.enable()
    assert not cpu.is_enabled()


@pytest.mark.parametrize("device", ["cuda", "cuda:0", 0, torch.device("cuda"), torch.device("cuda", 0)])
def test_naming_the_device_gives_the_cpu(enabled, device):
    tensor = torch.arange(6.0)
    made = [
        torch.empty(2, device=device),
        torch.tensor([1], device=device),
        torch.zeros_like(tensor, device=device),
        torch.empty(2, pin_memory=True),
        tensor.new_zeros(2, device=device),
        tensor.to(device),
        tensor.to(device=device, dtype=torch.bfloat16),
        tensor.cuda(device),
        tensor.pin_memory(),
        torch.nn.Linear(2, 2, device=device).to(device).cuda().weight,
    ]
    assert {result.device.type for result in made} == {"cpu"}
    with torch.cuda.device(0), torch.cuda.stream(torch.cuda.Stream()):
        assert torch.cuda.is_available() and torch.cuda.current_device() == 0


def test_other_devices_stay_what_they_are(enabled):
    assert torch.empty(2, device="meta").device.type == "meta"
    assert torch.empty(2).to("meta").device.type == "meta"
    with torch.device("meta"):
        assert torch.zeros(2).device.type == "meta"
    assert torch.ones(2).to(torch.float64).dtype == torch.float64
    assert torch.ones(2).type() == "torch.FloatTensor"


def test_every_factory_is_mapped():
    """One that takes a device and is not would fail on "cuda" in the middle of a run."""
    values = {name: getattr(torch, name) for name in dir(torch) if name[0] != "_"}
    functions = {name: f for name, f in values.items() if callable(f) and not isinstance(f, type)}
    signatures = {name: str(f.__doc__).strip().split("\n\n")[0].split("->")[0] for name, f in functions.items()}
    takes_device = {name for name, signature in signatures.items() if "device=" in signature}
    assert len(takes_device) > 30
    assert takes_device - set(devices.FACTORIES) == set()


def test_event_measures_time(enabled):
    start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    with pytest.raises(ValueError, match="recorded"):
        start.elapsed_time(end)
    start.record()
    numbers = torch.ones(300, 300)
    for _ in range(20):
        numbers = numbers @ numbers / 300
    torch.cuda.current_stream().record_event(end)
    assert isinstance(end, streams.Event)
    assert 0.1 < start.elapsed_time(end) < 60_000


def test_random_state(enabled):
    torch.cuda.manual_seed(7)
    state = torch.cuda.get_rng_state()
    first = torch.rand(3)
    torch.cuda.set_rng_state(state)
    assert torch.equal(torch.rand(3), first)
    torch.manual_seed(8)
    torch.manual_seed(7)
    assert torch.equal(torch.rand(3, device="cuda"), first)


@pytest.mark.filterwarnings("error")  # pinning without an accelerator would warn
def test_data_loader_leaves_the_random_state_alone(enabled):
    torch.manual_seed(1)
    state = torch.cuda.get_rng_state()
    assert [item.tolist() for item in torch.utils.data.DataLoader([1, 2], pin_memory=True)] == [[1], [2]]
    assert torch.equal(torch.cuda.get_rng_state(), state)


def test_forked_random_states_are_independent_and_reproducible(enabled, caplog):
    random = pytest.importorskip("megatron.core.tensor_parallel.random")

    def draws(order: str) -> dict[str, list[float]]:
        tracker = random.CudaRNGStatesTracker()
        tracker.add("a", 1)
        tracker.add("b", 2)
        torch.cuda.manual_seed(3)
        drawn: dict[str, list[float]] = {"a": [], "b": [], "-": []}
        for name in order:
            if name == "-":
                drawn[name] += torch.rand(2).tolist()
            else:
                with tracker.fork(name):
                    drawn[name] += torch.rand(2).tolist()
        return drawn

    with caplog.at_level(logging.WARNING):
        first = draws("a-b-ab-")
    assert first == draws("aabb---")  # what one state gives does not depend on when the others are used
    assert len({value for values in first.values() for value in values}) == sum(map(len, first.values()))
    assert not [record for record in caplog.records if "RNG" in record.getMessage()]


def test_memory_is_the_process_own(enabled):
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats()
    before, peak_before = torch.cuda.memory_allocated(), torch.cuda.max_memory_allocated()
    block = torch.ones(200 * MIB // 4)
    assert torch.cuda.memory_allocated() - before > 190 * MIB
    del block
    assert torch.cuda.memory_allocated() - before < 50 * MIB
    assert torch.cuda.max_memory_allocated() - peak_before > 190 * MIB
    assert torch.cuda.max_memory_reserved() == torch.cuda.memory_stats()["allocated_bytes.all.peak"]
    torch.cuda.reset_peak_memory_stats()
    assert torch.cuda.max_memory_allocated() - peak_before < 50 * MIB


def test_memory_of_the_machine():
    available_bytes, total_bytes = memory.memory_info()
    assert 0 < available_bytes < total_bytes
    assert torch.cuda.mem_get_info is not memory.memory_info  # not enabled


LIMITED = """
import resource, torch
from paradyse_megatron import cpu
cpu.enable()
used = cpu.memory._field_bytes("/proc/self/status", "VmSize")
resource.setrlimit(resource.RLIMIT_AS, (used + 2**30, resource.RLIM_INFINITY))
available, total = torch.cuda.mem_get_info()
assert total == used + 2**30 and available <= 2**30, (available, total)
torch.ones(2**26)  # 256 MiB fit
try:
    with cpu.translate_out_of_memory():
        torch.ones(2**30)
except torch.cuda.OutOfMemoryError as error:
    print(error)
"""


def test_running_out_of_memory():
    run = subprocess.run([sys.executable, "-c", LIMITED], capture_output=True, text=True, timeout=120)
    assert run.returncode == 0, run.stderr
    assert "Out of memory on the CPU: 4.00 GiB asked for" in run.stdout
    assert "address-space limit (ulimit -v)" in run.stdout
    assert "can't allocate memory: you tried to allocate 4294967296 bytes" in run.stdout


def test_other_errors_pass_as_they_are():
    with pytest.raises(RuntimeError, match="shape") as caught:
        with cpu.translate_out_of_memory():
            torch.ones(2) + torch.ones(3) if False else torch.ones(3).view(2)
    assert not isinstance(caught.value, torch.OutOfMemoryError)
    with pytest.raises(torch.OutOfMemoryError, match="unknown amount"):
        with cpu.translate_out_of_memory():
            raise MemoryError


def test_an_object_that_only_claims_to_be_a_class_is_in_nobodys_way(module):
    """As the flags of absl do, which TensorBoard brings along."""

    class Pretender:
        __class__ = property(lambda self: type)

    module.FLAGS = Pretender()
    assert isinstance(module.FLAGS, type)
    cpu.enable()
    assert cpu.is_enabled()


def test_nothing_is_compiled(enabled):
    @torch.compile(fullgraph=True)
    def twice(numbers):
        return numbers * 2

    assert twice.__name__ == "twice" and not hasattr(twice, "_torchdynamo_orig_callable")
    assert torch.compile(twice) is twice


def test_no_limit_is_set_here():
    """The other tests measure without one."""
    assert resource.getrlimit(resource.RLIMIT_AS)[0] == resource.RLIM_INFINITY
