"""Only what `pyproject.toml` cannot say: the planner's C++ extension, which must never make an installation fail.

Without its sources, pybind11 or a working compiler the package installs all the same and uses the Python twin.
"""

from pathlib import Path

from setuptools import Extension, setup

CSRC = Path("paradyse_megatron/csrc/planner")


def planner_extension() -> list[Extension]:
    sources = sorted(str(path) for path in CSRC.glob("*.cpp"))
    if not sources:
        return []
    try:
        from pybind11.setup_helpers import Pybind11Extension
    except ImportError:
        return []
    headers = sorted(str(path) for path in CSRC.glob("*.h*"))
    return [Pybind11Extension("paradyse_megatron.planner._native", sources, depends=headers, cxx_std=17, optional=True)]


setup(ext_modules=planner_extension())
