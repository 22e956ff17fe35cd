"""Looks at GPUs, at what joins them, and at what speaks over it."""

from __future__ import annotations

import re
import shutil
import subprocess

from paradyse_megatron.integration.doctor.finding import Finding

_NO_GPU = "no GPU"


def cuda() -> Finding:
    """The GPUs of this machine."""
    import torch

    if torch.version.cuda is None:
        return Finding(
            False,
            "torch is built without CUDA; training runs on the CPU",
            "For a GPU, install a build of torch for CUDA (pytorch.org).",
        )
    if not torch.cuda.is_available():
        return Finding(
            False,
            "no GPU is visible; training runs on the CPU",
            "The CPU serves for development and trying out. For a GPU: see that nvidia-smi lists one, that the driver "
            f"is new enough for CUDA {torch.version.cuda}, and that CUDA_VISIBLE_DEVICES does not hide it.",
        )
    names = [torch.cuda.get_device_name(device) for device in range(torch.cuda.device_count())]
    return Finding(True, f"{len(names)} x {names[0]}, CUDA {torch.version.cuda}", details={"devices": names})


def nccl() -> Finding:
    """Collectives between GPUs."""
    import torch

    if not torch.distributed.is_nccl_available():
        return Finding(False, "torch is built without it", "Needed on GPUs only: install a build of torch for CUDA.")
    version = ".".join(map(str, torch.cuda.nccl.version()))
    return Finding(True, version, details={"version": version})


def gloo() -> Finding:
    """Collectives between CPUs."""
    import torch

    return Finding(
        torch.distributed.is_gloo_available(),
        "built into torch" if torch.distributed.is_gloo_available() else "torch is built without it",
        "Needed on the CPU only: install torch from pytorch.org.",
    )


def nvlink() -> Finding:
    """Fast links between the GPUs of this machine."""
    remedy = "Optional: without NVLink, ring and usp are chosen more often than ulysses."
    if _num_gpus() < 2:
        return Finding(False, _too_few(), "Matters with two GPUs or more in a machine.")
    if shutil.which("nvidia-smi") is None:
        return Finding(False, "nvidia-smi was not found, which knows", remedy)
    said = subprocess.run(["nvidia-smi", "topo", "-m"], capture_output=True, text=True, timeout=60).stdout
    links = sorted(set(re.findall(r"\bNV\d+\b", said)))
    return Finding(bool(links), ", ".join(links) or "none between these GPUs", remedy, {"links": links})


def symmetric_memory() -> Finding:
    """Stores straight into another GPU's memory."""
    import torch
    import torch.distributed._symmetric_memory  # whether this torch has it

    remedy = "Optional: conversions go through collectives without. It needs GPUs that reach each other's memory."
    if _num_gpus() < 2:
        return Finding(False, f"torch has it; {_too_few()}", "Matters with two GPUs or more in a machine.")
    reaches = torch.cuda.can_device_access_peer(0, 1)
    return Finding(reaches, "GPU 0 reaches GPU 1" if reaches else "GPU 0 does not reach GPU 1", remedy)


def _num_gpus() -> int:
    import torch

    return torch.cuda.device_count() if torch.cuda.is_available() else 0


def _too_few() -> str:
    return _NO_GPU if _num_gpus() == 0 else "one GPU"
