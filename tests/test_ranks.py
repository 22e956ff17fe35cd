"""The multi-rank runner itself: it brings results back, and it notices everything that can go wrong."""

import os
import subprocess
import sys
import time
from collections.abc import Callable

import pytest

from tests.ranks import REPOSITORY, RanksFailed, run_ranks


def add_up(first: int, second: int = 0) -> tuple[int, float]:
    import torch
    import torch.distributed as dist

    total = torch.tensor(float(dist.get_rank() + first + second))
    dist.all_reduce(total)
    return dist.get_rank(), total.item()


def misbehave(how: str, pid_folder: str = "") -> None:
    import torch.distributed as dist

    if pid_folder:
        child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
        for pid in (os.getpid(), child.pid):
            open(os.path.join(pid_folder, str(pid)), "w").close()
    if dist.get_rank() == 1:
        if how == "raise":
            raise ValueError("rank one is unhappy")
        if how == "exit 0":
            os._exit(0)
    time.sleep(600)


def sleep(pid_folder: str) -> None:
    open(os.path.join(pid_folder, str(os.getpid())), "w").close()
    time.sleep(600)


def _alive(pid: int) -> bool:
    try:
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rsplit(")", 1)[1].split()[0] != "Z"
    except FileNotFoundError:
        return False


def test_values_come_back_by_rank():
    assert run_ranks("tests.test_ranks:add_up", 3, 10, second=1) == [(0, 36.0), (1, 36.0), (2, 36.0)]


@pytest.mark.parametrize("how, said", [("raise", "rank one is unhappy"), ("exit 0", "rank 1 ended with code 0")])
def test_failure_of_one_rank_ends_all(how, said, tmp_path):
    with pytest.raises(RanksFailed, match=said) as caught:
        run_ranks("tests.test_ranks:misbehave", 2, how, pid_folder=str(tmp_path))
    assert "--- rank 0" in str(caught.value) and "--- rank 1" in str(caught.value)
    pids = [int(path.name) for path in tmp_path.iterdir()]
    assert len(pids) == 4 and not any(map(_alive, pids))


def test_time_limit():
    with pytest.raises(RanksFailed, match=r"ranks \[0, 1\] had not ended after 5 seconds"):
        run_ranks("tests.test_ranks:misbehave", 2, "hang", timeout_seconds=5)


def test_by_hand():
    command = [sys.executable, "-m", "tests.ranks", "tests.test_ranks:add_up", "--num-ranks", "2", "--args", "[1]"]
    run = subprocess.run(command, capture_output=True, text=True, cwd=REPOSITORY, timeout=180)
    assert "rank 1: (1, 3.0)" in run.stdout, run.stderr


def test_ranks_end_with_the_process_that_launched_them(tmp_path):
    call = f"run_ranks('tests.test_ranks:sleep', 2, {str(tmp_path)!r}, timeout_seconds=300)"
    launcher = subprocess.Popen([sys.executable, "-c", f"from tests.ranks import run_ranks; {call}"], cwd=REPOSITORY)
    try:
        _wait_until(lambda: len(list(tmp_path.iterdir())) == 2)
    finally:
        launcher.kill()
        launcher.wait()
    pids = [int(path.name) for path in tmp_path.iterdir()]
    _wait_until(lambda: not any(map(_alive, pids)))


def _wait_until(done: Callable[[], bool], timeout_seconds: float = 180) -> None:
    end = time.monotonic() + timeout_seconds
    while not done():
        assert time.monotonic() < end
        time.sleep(0.05)
