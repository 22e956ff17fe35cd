"""The GPU kernels compile for every architecture, without a GPU, and keep within their registers."""

from __future__ import annotations

import subprocess
import sys

import pytest

from paradyse_megatron.comm import nvrtc
from paradyse_megatron.comm.launch import KERNELS
from paradyse_megatron.integration.doctor.kernels import kernels
from tests.ranks import REPOSITORY


@pytest.mark.parametrize("architecture", nvrtc.ARCHITECTURES)
def test_every_kernel_compiles_and_spills_nothing(architecture):
    pytest.importorskip("cuda.core")
    pytest.importorskip("cuda.bindings.nvrtc")
    found = nvrtc.compiled(architecture)
    assert set(found.usage) == set(KERNELS)
    assert found.code.startswith(b"\x7fELF")
    for name, usage in found.usage.items():
        assert usage.spill_bytes == 0, name
        assert 16 <= usage.registers <= 128, name  # four blocks of 128 threads share 65,536
        assert name.encode() in found.code


def test_what_does_not_compile_is_told_with_the_reason():
    pytest.importorskip("cuda.core")
    found = kernels(["sm_1"])["sm_1"]
    assert found["compiled"] is False and found["registers"] is None and found["spill_bytes"] is None
    assert "do not compile for sm_1:" in found["reason"] and "\n" not in found["reason"]


def test_without_cuda_core_it_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "cuda.core", None)
    with pytest.raises(ValueError, match=r"does not import .*; pip install 'cuda-core\[cu13\]'"):
        nvrtc.compiled("sm_81")


def test_spills_are_counted_and_a_silent_assembler_is_an_error():
    line = (
        "ptxas info    : Compiling entry function '{}' for 'sm_80'\nptxas info    : Function properties for x\n"
        "ptxas         .     8 bytes stack frame, {} bytes spill stores, 8 bytes spill loads\n"
        "ptxas info    : Used 80 registers, used 0 barriers\n"
    )
    log = "".join(line.format(name, 4 * index) for index, name in enumerate(KERNELS))
    assert [one.spill_bytes for one in nvrtc.usage_of(log).values()] == [8 + 4 * index for index in range(len(KERNELS))]
    with pytest.raises(ValueError, match="reported on copy_sections alone"):
        nvrtc.usage_of(line.format(KERNELS[0], 0))


def test_compiling_needs_no_torch():
    program = "import sys, paradyse_megatron.integration.doctor.kernels; print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", program], cwd=REPOSITORY, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"
