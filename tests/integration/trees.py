"""Small git trees that look to the patches like Megatron-LM checkouts, made from what the patches look for."""

from __future__ import annotations

import subprocess
from pathlib import Path

from paradyse_megatron.integration.patches.series import load_series

VERSIONS = ("0.17.1", "0.18.2", "0.19.1", "0.20.0")
HEAD = b'"""A script, with a byte \xe9 that is no UTF-8."""\n\nimport time\n\n\n'
TAIL = b"print('the last line has no end')"


def make_tree(folder: Path, version: str = "0.19.1", repository: Path | None = None) -> Path:
    """A checkout of that version, committed.

    Args:
        folder: to make it in.
        version: of Megatron.
        repository: a folder above it that is the repository; by default the checkout itself.
    """
    info = folder / "megatron" / "core" / "package_info.py"
    info.parent.mkdir(parents=True)
    numbers = zip(("MAJOR", "MINOR", "PATCH"), version.split("."), strict=True)
    info.write_text("".join(f"{name} = {number}\n" for name, number in numbers))
    for target in {patch.target for patch in load_series() if patch.is_for(version)}:
        (folder / target).write_bytes(HEAD + _wanted(target, version) + TAIL)
        (folder / target).chmod(0o755)
    (folder / "README.md").write_text("Megatron\n")
    (folder / ".gitignore").write_text("__pycache__/\n")
    home = repository or folder
    run(home, "init", "--quiet")
    commit(home)
    return folder


def commit(folder: Path) -> None:
    """Commit everything."""
    run(folder, "add", "--all")
    run(folder, "-c", "user.name=A", "-c", "user.email=a@example.com", "commit", "--quiet", "--message", "stock")


def run(folder: Path, *arguments: str) -> str:
    """What git says."""
    return subprocess.run(["git", *arguments], cwd=folder, check=True, capture_output=True, text=True).stdout


def _wanted(target: str, version: str) -> bytes:
    """The lines that the hunks expect, with others between them."""
    patches = [patch for patch in load_series() if patch.target == target and patch.is_for(version)]
    hunks = [hunk.splitlines()[1:] for patch in patches for hunk in patch.hunks]
    wanted = ["\n".join(line[1:] for line in hunk if line[:1] in (" ", "-")) for hunk in hunks]
    return "".join(f"{text}\nbetween = {number}\n" for number, text in enumerate(wanted)).encode()
