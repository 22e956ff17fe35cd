"""What a look at one thing found, and how to look without falling over."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

CHILD_SECONDS = 180
"""Many times what importing Megatron takes; on a busy machine that is a minute."""


@dataclass(frozen=True)
class Finding:
    """About one thing.

    Attributes:
        is_good: whether it is there and can be used.
        found: what was found, such as a version; a clause.
        remedy: a sentence about what to do when it is not good; empty when there is nothing to do.
        details: the same for scripts.
        is_needed: whether training is impossible without.
    """

    is_good: bool
    found: str
    remedy: str = ""
    details: Mapping[str, object] = field(default_factory=dict)
    is_needed: bool = False


Probe = Callable[[], Finding]


def look(probe: Probe, is_needed: bool) -> Finding:
    """Run one probe; whatever goes wrong in it is its finding."""
    try:
        found = probe()
    except KeyboardInterrupt:
        raise
    except ValueError as error:  # a sentence of ours
        found = Finding(False, str(error))
    except BaseException as error:  # SystemExit too: Megatron calls sys.exit where others raise
        said = (str(error).strip().splitlines() or ["no message"])[-1]
        found = Finding(False, f"the look itself failed: {type(error).__name__}: {said}", "Mend or reinstall it.")
    return Finding(found.is_good, found.found, "" if found.is_good else found.remedy, found.details, is_needed)


def complaint_of(program: str, **environment: str) -> str | None:
    """Run a program in a Python of its own, as what it imports may end the process; its last words if it fails."""
    try:
        done = subprocess.run(
            [sys.executable, "-W", "ignore", "-c", program],
            env=os.environ | environment,
            capture_output=True,
            text=True,
            timeout=CHILD_SECONDS,
        )
    except subprocess.TimeoutExpired:
        return f"no end after {CHILD_SECONDS} seconds"
    if done.returncode == 0:
        return None
    return (done.stderr.strip().splitlines() or [f"ended with status {done.returncode}"])[-1]
