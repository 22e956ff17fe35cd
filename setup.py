"""Only what `pyproject.toml` cannot say.

The folder `configs` (descriptions, cost models) is installed inside the package, as `paradyse_megatron/configs`. And
the planner's C++ extension must never make an installation fail.

Without its sources, pybind11 or a working compiler the package installs all the same and uses the Python twin.
"""

from pathlib import Path

from setuptools import Extension, find_packages, setup

CSRC = Path("paradyse_megatron/csrc/planner")
FLAGS = ["-O3", "-ffp-contract=off"]
"""Without fused multiply-adds the doubles are those of the Python twin, to the last bit."""


def planner_extension() -> list[Extension]:
    sources = sorted(str(path) for path in CSRC.glob("*.cpp"))
    if not sources:
        return []
    try:
        from pybind11.setup_helpers import Pybind11Extension
    except ImportError:
        return []
    headers = sorted(str(path) for path in CSRC.glob("*.h*"))
    return [
        Pybind11Extension(
            "paradyse_megatron.planner._native",
            sources,
            depends=headers,
            cxx_std=17,
            extra_compile_args=FLAGS,
            optional=True,
        )
    ]


setup(
    ext_modules=planner_extension(),
    packages=[*find_packages(include=["paradyse_megatron*"]), "paradyse_megatron.configs"],
    package_dir={"paradyse_megatron.configs": "configs"},
    package_data={
        "paradyse_megatron.configs": ["*/*.yaml", "*/*.json"],
        "paradyse_megatron": ["csrc/**/*", "py.typed"],
    },
)
