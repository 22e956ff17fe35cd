"""All looks, and whether training is possible."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field

from paradyse_megatron.integration.doctor import hardware, libraries, ours
from paradyse_megatron.integration.doctor.finding import Finding, Probe, look

NEEDED: dict[str, Probe] = {"Python": libraries.python, "torch": libraries.torch, "Megatron": ours.megatron}
"""Without one of these training is impossible."""

USEFUL: dict[str, Probe] = {
    "CUDA": hardware.cuda,
    "NCCL": hardware.nccl,
    "gloo": hardware.gloo,
    "NVLink": hardware.nvlink,
    "symmetric memory": hardware.symmetric_memory,
    "Transformer Engine": libraries.transformer_engine,
    "Apex": libraries.apex,
    "flash-attn": libraries.flash_attention,
    "C++ compiler": libraries.compiler,
    "NVRTC": libraries.nvrtc,
    "planner": ours.planner,
    "cost models": ours.cost_models,
    "patches": ours.patches,
}


@dataclass(frozen=True)
class Examination:
    """What all looks found.

    Attributes:
        findings: by the name of the thing.
        kernels: of GPUs, by architecture (`kernels.kernels`).
    """

    findings: Mapping[str, Finding]
    kernels: Mapping[str, Mapping[str, object]] = field(default_factory=dict)

    @property
    def missing(self) -> list[str]:
        """What makes training impossible."""
        missing = [name for name, finding in self.findings.items() if finding.is_needed and not finding.is_good]
        if not any(self.findings[name].is_good for name in ("CUDA", "gloo")):
            missing.append("CUDA or gloo")
        return missing

    @property
    def content(self) -> dict[str, object]:
        """For scripts."""
        return {
            "can_train": not self.missing,
            "missing": self.missing,
            "findings": {name: asdict(finding) for name, finding in self.findings.items()},
            "kernels": self.kernels,
        }


def examine(needed: Mapping[str, Probe] = NEEDED, useful: Mapping[str, Probe] = USEFUL) -> Examination:
    """Look at everything; no look that fails keeps the others from being taken."""
    findings = {name: look(probe, True) for name, probe in needed.items()}
    return Examination(findings | {name: look(probe, False) for name, probe in useful.items()})
