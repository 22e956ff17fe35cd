"""Calls of the git command."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

_PLAIN = ("-c", "apply.whitespace=nowarn", "-c", "apply.ignorewhitespace=no", "-c", "core.quotepath=off")
"""Settings of the user that would change what a patch does, or what is printed."""


def git(folder: Path, *arguments: str, given: str = "", alone: bool = False) -> subprocess.CompletedProcess[bytes]:
    """Run git in a folder. Raises ValueError where there is no git.

    Args:
        folder: where to run it.
        arguments: of git.
        given: on its standard input.
        alone: take `folder` for no part of a repository, even if it lies in one.
    """
    environment = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    environment["LC_ALL"] = "C"
    if alone:
        environment["GIT_CEILING_DIRECTORIES"] = str(folder.resolve().parent)
    try:
        return subprocess.run(
            ["git", *_PLAIN, *arguments], cwd=folder, env=environment, input=given.encode(), capture_output=True
        )
    except FileNotFoundError as error:
        raise ValueError("git was not found, which applies the patches. Install git.") from error


def modified_files(checkout: Path) -> list[str] | None:
    """Tracked files below `checkout` that differ from the last commit, seen from it; None where it is no repository."""
    prefix = git(checkout, "rev-parse", "--show-prefix")
    head = git(checkout, "rev-parse", "--verify", "--quiet", "HEAD:./")
    if prefix.returncode or head.returncode:
        return None
    found = git(checkout, "diff", "--name-only", "--relative", "-z", "HEAD", "--", ".")
    return [name for name in found.stdout.decode().split("\0") if name]


def committed(checkout: Path, name: str) -> bytes | None:
    """A file as the last commit has it; None where it has none."""
    found = git(checkout, "cat-file", "--filters", f"HEAD:./{name}")
    return None if found.returncode else found.stdout
