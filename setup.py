"""Only what `pyproject.toml` cannot say.

The folder `configs` (descriptions, cost models) is installed inside the package, as `paradyse_megatron/configs`. And
the C++ extensions must never make an installation fail.

Without their sources, pybind11 or a working compiler the package installs all the same and uses the Python twins.
"""

import sys
from pathlib import Path

from setuptools import Extension, find_packages, setup

CSRC = Path("paradyse_megatron/csrc")


def extension(module: str, folder: str, flags: tuple[str, ...] = ()) -> list[Extension]:
    sources = sorted(str(path) for path in (CSRC / folder).glob("*.cpp"))
    if not sources:
        return []
    try:
        from pybind11.setup_helpers import Pybind11Extension
    except ImportError:
        return []
    headers = sorted(str(path) for path in (CSRC / folder).glob("*.h*"))
    return [
        Pybind11Extension(
            module,
            sources,
            depends=headers,
            cxx_std=17,
            optional=True,
            extra_compile_args=list(flags),
            extra_link_args=list(flags),
        )
    ]


TWINNED = ("-O3", "-ffp-contract=off")
"""Without fused multiply-adds numbers are those of the twins in Python and on GPUs, to the last bit."""
THREADS = ("-fopenmp",) if sys.platform == "linux" else ()

setup(
    ext_modules=[
        *extension("paradyse_megatron.planner._native", "planner", TWINNED),
        *extension("paradyse_megatron.comm._host", "kernels", (*TWINNED, *THREADS)),
    ],
    packages=[*find_packages(include=["paradyse_megatron*"]), "paradyse_megatron.configs"],
    package_dir={"paradyse_megatron.configs": "configs"},
    package_data={
        "paradyse_megatron.configs": ["*/*.yaml", "*/*.json"],
        "paradyse_megatron": ["csrc/**/*", "py.typed"],
    },
)
