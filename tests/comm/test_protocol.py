"""The exchange by direct stores: signals and windows under ThreadSanitizer, with ranks that are late at random.

Ranks are threads there, as it does not see across processes; between processes the bytes alone are compared. The
kernels' sources are compiled as they are, and with each fault that the protocol must not have.
"""

from __future__ import annotations

import os
import re
import subprocess

import pytest

from paradyse_megatron.comm import windows
from tests.comm import emulated
from tests.comm.emulated import COMPILER, build, kernels_on_cpu, kernels_with, no_thread_sanitizer

compiled = pytest.mark.skipif(COMPILER is None, reason="there is no C++ compiler")

FAULTS = {
    "signals without release": ("__ATOMIC_RELEASE", "__ATOMIC_RELAXED"),
    "signals without acquire": ("__ATOMIC_ACQUIRE", "__ATOMIC_RELAXED"),
    "one window": ("number % kWindows * window_bytes", "number % 1 * window_bytes"),
}
LATE = ("0.03", "50")
"""The share of calls before, and again after, which a rank waits, and the most milliseconds that it does."""


@pytest.fixture(scope="module")
def program(tmp_path_factory):
    """Builds the exchange, with a fault or without; once each."""
    reason = no_thread_sanitizer()
    if reason is not None:
        pytest.skip(reason)
    built = {}

    def of(fault: str | None):
        if fault not in built:
            folder = tmp_path_factory.mktemp("protocol")
            kernels = kernels_with(fault and FAULTS[fault], "workspace.h", folder)
            built[fault] = folder / "protocol"
            build(built[fault], "protocol.cpp", "-g", "-pthread", "-fsanitize=thread", kernels=kernels)
        return built[fault]

    return of


def run(program, *words: object) -> subprocess.CompletedProcess[str]:
    environment = os.environ | {"TSAN_OPTIONS": "halt_on_error=1"}
    command = [str(program), *map(str, words), *LATE]
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300)


@pytest.mark.parametrize(("kind", "num_ranks", "num_calls"), [("threads", 3, 1000), ("processes", 5, 1000)])
def test_late_ranks_never_corrupt_a_byte(program, kind, num_ranks, num_calls):
    done = run(program(None), kind, num_ranks, num_calls)
    assert (done.returncode, done.stdout, done.stderr) == (0, "every byte is right\n", "")


@pytest.mark.parametrize("fault", FAULTS)
def test_each_fault_is_seen(program, fault):
    done = run(program(fault), "threads", 3, 1000)
    assert done.returncode != 0 and "data race" in done.stderr


def test_without_a_second_window_bytes_are_wrong(program):
    done = run(program("one window"), "processes", 3, 1000)
    assert (done.returncode, done.stdout) == (1, "bytes are wrong\n")


@compiled
def test_both_sides_of_a_workspace_agree_where_windows_begin():
    with kernels_on_cpu() as kernels:
        for num_peers in (1, 2, 8, 32, 33, 64):
            for number in (1, 2, 3):
                found = windows.start_of_window(num_peers, 1 << 20, number)
                assert found == kernels.window_start(num_peers, 1 << 20, number)
                assert found + (1 << 20) <= windows.bytes_of_workspace(num_peers, 1 << 20)
                assert found >= 8 * num_peers


@pytest.mark.parametrize(
    ("compiler", "reason"),
    [
        (None, r"there is no C\+\+ compiler"),
        ("false", r"false does not build with ThreadSanitizer \(it says nothing\); install .* libtsan2 \(Debian"),
        ("true", "programs with ThreadSanitizer do not run"),
    ],
)
def test_without_the_sanitizer_tests_say_what_to_install(monkeypatch, compiler, reason):
    monkeypatch.setattr(emulated, "COMPILER", compiler)
    if compiler == "true":
        monkeypatch.setattr(emulated.subprocess, "run", _built_but_not_run(subprocess.run))
    assert re.search(reason, no_thread_sanitizer.__wrapped__())


def _built_but_not_run(run):
    """The program that was not made is one that fails."""
    return lambda command, **keywords: run(["false"] if len(command) == 1 else command, **keywords)
