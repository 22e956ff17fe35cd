"""The extension is optional: no compiler, no extension, no error."""

import importlib.metadata
import json
import os
import shutil
import subprocess
import sys

import pytest

from paradyse_megatron.planner import native
from tests.ranks import REPOSITORY


def test_a_broken_compiler_breaks_no_installation(tmp_path):
    pytest.importorskip("setuptools")
    pytest.importorskip("pybind11")
    command = [
        sys.executable,
        "setup.py",
        "build_ext",
        "--build-lib",
        tmp_path / "lib",
        "--build-temp",
        tmp_path / "temp",
    ]
    broken = {"CC": "false", "CXX": "false"}
    run = subprocess.run(command, cwd=REPOSITORY, env=os.environ | broken, capture_output=True, text=True, timeout=120)
    assert run.returncode == 0, run.stderr
    assert "_native" in run.stdout + run.stderr
    assert not list(tmp_path.glob("**/*.so"))


def test_where_this_checkout_was_installed_with_a_compiler_there_is_the_extension():
    try:
        origin = importlib.metadata.distribution("paradyse-megatron").read_text("direct_url.json")
    except importlib.metadata.PackageNotFoundError:
        origin = None
    if origin is None or json.loads(origin)["url"] != REPOSITORY.as_uri() or shutil.which("c++") is None:
        pytest.skip("this checkout was not installed, or there is no compiler")
    assert native.missing is None
