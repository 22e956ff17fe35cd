"""`scripts/setup_env.sh`, without installing anything: what it chooses, what it says, and that it then stays quiet."""

import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parent.parent
TOOLS = "bash cat cksum dirname find mkdir rm sort touch env".split()


@pytest.fixture
def checkout(tmp_path):
    """What of the repository the script reads."""
    root = tmp_path / "checkout"
    (root / "scripts").mkdir(parents=True)
    (root / "paradyse_megatron").mkdir()
    (root / "configs").mkdir()
    shutil.copy(REPOSITORY / "scripts" / "setup_env.sh", root / "scripts")
    shutil.copy(REPOSITORY / "paradyse_megatron" / "__init__.py", root / "paradyse_megatron")
    for name in ("setup.py", "pyproject.toml"):
        shutil.copy(REPOSITORY / name, root)
    return root


@pytest.fixture
def environment(tmp_path):
    """A PATH with what the script needs, but no Python."""
    (tmp_path / "bin").mkdir()
    for tool in TOOLS:
        (tmp_path / "bin" / tool).symlink_to(shutil.which(tool))
    return {"PATH": str(tmp_path / "bin"), "HOME": str(tmp_path / "home")}


@pytest.fixture
def with_megatron(tmp_path, environment):
    """The same, with this Python as python3, and with modules that look like torch and Megatron on PYTHONPATH."""
    for module in ("torch", "megatron/core", "megatron/training"):
        (tmp_path / "modules" / module).mkdir(parents=True)
        (tmp_path / "modules" / module / "__init__.py").touch()
    (tmp_path / "bin" / "python3").write_text(f'#!/bin/bash\nexec {sys.executable} "$@"\n')
    (tmp_path / "bin" / "python3").chmod(0o755)
    return environment | {"PYTHONPATH": str(tmp_path / "modules"), "PIP_DRY_RUN": "1"}


def _run(root: Path, environment: dict[str, str]) -> subprocess.CompletedProcess[str]:
    command = ["bash", str(root / "scripts" / "setup_env.sh")]
    return subprocess.run(command, capture_output=True, text=True, env=environment, cwd="/", timeout=300)


def test_without_a_python_it_says_what_to_do(checkout, environment):
    run = _run(checkout, environment)
    assert run.returncode == 2 and run.stdout == ""
    assert "no Python >= 3.12" in run.stderr and "pyenv install 3.12" in run.stderr


def test_an_old_python_is_not_taken(checkout, environment, tmp_path):
    old = f'#!/bin/bash\nexec {sys.executable} -c "import sys; sys.version_info = (3, 11, 7); $2"\n'
    (tmp_path / "bin" / "python3").write_text(old)
    (tmp_path / "bin" / "python3").chmod(0o755)
    run = _run(checkout, environment)
    assert run.returncode == 2 and "no Python >= 3.12" in run.stderr


def test_megatron_path_that_is_none(checkout, environment):
    run = _run(checkout, environment | {"MEGATRON_PATH": "/nowhere"})
    assert run.returncode == 2 and "MEGATRON_PATH is /nowhere, which is not a Megatron-LM checkout" in run.stderr


def test_an_environment_with_megatron_is_used_as_it_is(checkout, with_megatron):
    first = _run(checkout, with_megatron)
    assert first.returncode == 0, first.stderr
    assert os.path.samefile(first.stdout.strip(), sys.executable)
    assert "has torch and Megatron already" in first.stderr
    assert not (checkout / ".venv" / "bin").exists()

    start = time.monotonic()
    second = _run(checkout, with_megatron)
    assert second.stdout == first.stdout and second.stderr == ""
    assert time.monotonic() - start < 10  # 0.3 s on a quiet machine; pip alone takes longer

    (checkout / "pyproject.toml").write_text((checkout / "pyproject.toml").read_text() + "\n# changed\n")
    assert "has torch and Megatron already" in _run(checkout, with_megatron).stderr


def test_two_at_once_install_once(checkout, with_megatron):
    command = ["bash", str(checkout / "scripts" / "setup_env.sh")]
    both = [
        subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=with_megatron)
        for _ in range(2)
    ]
    outputs = [process.communicate(timeout=300) for process in both]
    assert [process.returncode for process in both] == [0, 0]
    assert outputs[0][0] == outputs[1][0] != ""
    assert sum("installing only this package" in messages for _, messages in outputs) == 1
