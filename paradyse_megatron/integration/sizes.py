"""Sizes of memory as people write them."""

from __future__ import annotations

import re

_UNITS = {"": 1, "B": 1, "KB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12,
          "KIB": 2**10, "MIB": 2**20, "GIB": 2**30, "TIB": 2**40}  # fmt: skip


def parse_size(text: str, flag: str) -> int:
    """'16GiB', '512 MB' or '4096' in bytes. Raises ValueError naming `flag`."""
    match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([A-Za-z]*)\s*", text)
    if not match or match[2].upper() not in _UNITS or int(float(match[1]) * _UNITS[match[2].upper()]) < 1:
        raise ValueError(f"{flag} is '{text}', which is no size. Write a positive number with a unit, such as 16GiB.")
    return int(float(match[1]) * _UNITS[match[2].upper()])
