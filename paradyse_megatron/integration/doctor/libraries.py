"""Looks at Python, torch, and the libraries that accelerate Megatron."""

from __future__ import annotations

import importlib.util
import platform
import shutil
import subprocess
import sys
import sysconfig
from importlib import metadata
from pathlib import Path

from paradyse_megatron.integration.doctor.finding import Finding, complaint_of

OLDEST_PYTHON, OLDEST_TORCH = (3, 12), (2, 9)


def python() -> Finding:
    """Python itself."""
    version = platform.python_version()
    wanted = ".".join(map(str, OLDEST_PYTHON))
    return Finding(
        sys.version_info >= OLDEST_PYTHON,
        f"{version} ({sys.executable})",
        f"megatron-core needs Python {wanted} or later: bash scripts/setup_env.sh finds one and makes .venv from it.",
        {"version": version},
    )


def torch() -> Finding:
    """PyTorch, imported."""
    remedy = "pip install 'torch>=2.9' (see pytorch.org for the build that fits your driver)."
    if importlib.util.find_spec("torch") is None:
        return Finding(False, "not installed", remedy)
    import torch

    version = torch.__version__
    is_new = tuple(int(part) for part in version.split(".")[:2]) >= OLDEST_TORCH
    if not torch.distributed.is_available():
        return Finding(False, f"{version}, built without torch.distributed", remedy)
    built = f"for CUDA {torch.version.cuda}" if torch.version.cuda else "without CUDA"
    return Finding(is_new, f"{version}, built {built}", remedy, {"version": version, "cuda": torch.version.cuda})


def transformer_engine() -> Finding:
    """NVIDIA's Transformer Engine."""
    return _accelerator(
        "transformer_engine",
        "import transformer_engine.pytorch",
        "Optional, Megatron's own layers serve without: pip install 'transformer_engine[pytorch]', with CUDA.",
    )


def flash_attention() -> Finding:
    """The flash-attn package."""
    return _accelerator(
        "flash_attn",
        "import flash_attn",
        "Optional, torch's own flash attention serves without: pip install flash-attn --no-build-isolation.",
    )


def apex() -> Finding:
    """NVIDIA's Apex, not to be taken for the package of that name on PyPI."""
    remedy = "Optional, torch's optimizers and norms serve without; NVIDIA's is built from github.com/NVIDIA/apex."
    spec = importlib.util.find_spec("apex")
    folders = list(spec.submodule_search_locations or []) if spec else []
    if spec is None:
        return Finding(False, "not installed", remedy)
    if not any((Path(folder) / "optimizers").is_dir() for folder in folders):
        where = folders[0] if folders else spec.origin
        return Finding(
            False,
            f"an unrelated package of that name is installed ({where})",
            "Remove it, as Megatron may take it for NVIDIA's: pip uninstall apex. " + remedy,
            {"unrelated": True},
        )
    return _accelerator("apex", "import apex, amp_C", remedy)


def compiler() -> Finding:
    """A C++ compiler, for the planner and for Megatron's data helper."""
    command = next(filter(None, map(shutil.which, ("c++", "g++", "clang++"))), None)
    remedy = (
        "Install one (on Debian and Ubuntu: apt install g++ python3-dev). Without, the planner's Python twin is used, "
        "and a Megatron-LM checkout cannot build its data helper (the wheel brings it built)."
    )
    if command is None:
        return Finding(False, "no C++ compiler on PATH", remedy)
    said = subprocess.run([command, "--version"], capture_output=True, text=True, timeout=20).stdout.splitlines()
    version = said[0] if said else command
    if not (Path(sysconfig.get_paths()["include"]) / "Python.h").exists():
        return Finding(False, f"{version}, but the headers of Python are missing", remedy)
    return Finding(True, version, details={"command": command})


def nvrtc() -> Finding:
    """The run-time compiler of CUDA kernels, and cuda-core, through which it is called."""
    remedy = "Optional, layout conversions run through torch without: pip install 'cuda-core[cu13]' nvidia-cuda-nvrtc."
    version = _version("cuda-core")
    if version is None:
        return Finding(False, "cuda-core is not installed", remedy)
    problem = complaint_of(
        "from cuda.core import Program, ProgramOptions\n"
        "code = 'extern \"C\" __global__ void kernel(int *x) { *x = 1; }'\n"
        "Program(code, 'c++', ProgramOptions(arch='sm_80')).compile('cubin')"
    )
    if problem:
        return Finding(False, f"cuda-core {version}, but a kernel does not compile: {problem}", remedy)
    nvrtc_version = _version("nvidia-cuda-nvrtc") or _version("nvidia-cuda-nvrtc-cu12")
    found = f"cuda-core {version}, NVRTC {nvrtc_version or 'of the system'}; a kernel for sm_80 compiles"
    return Finding(True, found, details={"cuda_core": version, "nvrtc": nvrtc_version})


def _accelerator(module: str, program: str, remedy: str) -> Finding:
    """An optional library: its version, and whether it imports, which a wrong build does not."""
    if importlib.util.find_spec(module) is None:
        return Finding(False, "not installed", remedy)
    version = _version(module) or "unknown version"
    problem = complaint_of(program)
    if problem:
        return Finding(False, f"{version}, but it does not import: {problem}", f"Reinstall it, or remove it. {remedy}")
    return Finding(True, version, details={"version": version})


def _version(distribution: str) -> str | None:
    try:
        return metadata.version(distribution)
    except metadata.PackageNotFoundError:
        return None
