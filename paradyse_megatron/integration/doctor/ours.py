"""Looks at Megatron, its patches, and what this package brings."""

from __future__ import annotations

import importlib
import importlib.util
import os
from pathlib import Path

from paradyse_megatron.compat.version import is_supported, supported_range, version_of_checkout
from paradyse_megatron.integration.doctor.finding import Finding, complaint_of
from paradyse_megatron.integration.patches.state import inspect_checkout

CONFIGS = Path(__file__).resolve().parents[3] / "configs"
_INSTALL = "pip install 'megatron-core[training]>=0.19,<0.20', or set MEGATRON_PATH to a Megatron-LM checkout"


def megatron() -> Finding:
    """The Megatron that training would use: a checkout or the installed package."""
    root = megatron_root()
    if root is None:
        return Finding(False, "not installed", f"{_INSTALL}.")
    version = version_of_checkout(root)
    kind = "checkout" if _is_checkout(root) else "package"
    found = f"{version}, {kind} in {root}"
    details = {"version": version, "kind": kind, "path": str(root)}
    if not is_supported(version):
        return Finding(False, f"{found}, not supported", f"Versions {supported_range()} are: {_INSTALL}.", details)
    if not (root / "megatron" / "training").is_dir():
        return Finding(False, f"{found}, without megatron.training", f"{_INSTALL}.", details)
    path = os.pathsep.join(filter(None, [str(root), os.environ.get("PYTHONPATH")]))
    problem = complaint_of("import megatron.core, megatron.training", PYTHONPATH=path)
    if problem:
        remedy = "It may lack the libraries of its extra: pip install 'megatron-core[training]' brings them."
        return Finding(False, f"{found}, but it does not import: {problem}", remedy, details)
    return Finding(True, found, details=details)


def patches() -> Finding:
    """Whether a checkout's own scripts take --dynamic-parallel."""
    root = megatron_root()
    if root is None or not _is_checkout(root):
        return Finding(True, "none needed, as this is no Megatron-LM checkout")
    found = inspect_checkout(root)
    states = {one.patch.id: one.state.value for one in found.patches}
    shown = ", ".join(f"{name} {state}" for name, state in states.items()) or "there are none for this version"
    return Finding(
        set(states.values()) == {"applied"},
        shown,
        f"Optional, our own entry trains with any supported checkout: paradyse patch apply --megatron {root}.",
        {"states": states},
    )


def planner() -> Finding:
    """Which twin of the planner runs."""
    backend = getattr(importlib.import_module("paradyse_megatron.planner"), "backend", None)
    name = str(backend()) if callable(backend) else "python"
    return Finding(
        name != "python",
        name,
        "Optional, the plans are the same: install a C++ compiler, and this package again (pip install --editable .).",
        {"backend": name},
    )


def cost_models() -> Finding:
    """Files of costs that come with this package or that a run left here."""
    from paradyse_megatron.costmodel.model import CostModel

    found: list[str] = []
    for file in [*sorted(CONFIGS.rglob("*.json")), *sorted(Path("runs").glob("*/cost_model.json"))]:
        try:
            CostModel.load(str(file))
        except ValueError:
            continue
        found.append(os.path.relpath(file))
    shown = f"{len(found)} ({', '.join(found[:3])}{', ...' if len(found) > 3 else ''})" if found else "none at hand"
    return Finding(
        bool(found),
        shown,
        "None is needed to train: --paradyse-cost-model auto works costs out from the model's shape.",
        {"files": found},
    )


def megatron_root() -> Path | None:
    """The folder that holds `megatron/`: MEGATRON_PATH, else the first on Python's path."""
    asked = os.environ.get("MEGATRON_PATH")
    if asked:
        return Path(asked).resolve()
    spec = importlib.util.find_spec("megatron")
    folders = [Path(folder) for folder in spec.submodule_search_locations or []] if spec else []
    return next((folder.parent for folder in folders if (folder / "core" / "package_info.py").is_file()), None)


def _is_checkout(root: Path) -> bool:
    return (root / "pretrain_gpt.py").is_file()
