"""Which Megatron versions are supported, of the installed package and of a checkout."""

from __future__ import annotations

import re
from pathlib import Path

OLDEST, TOO_NEW = (0, 17), (0, 21)
"""megatron-core versions [OLDEST, TOO_NEW) are supported."""

_PACKAGE_INFO = Path("megatron") / "core" / "package_info.py"


def check_version() -> None:
    """Refuse an unsupported megatron-core by name, before anything of it is used. Raises ValueError."""
    version, folder = megatron_in_use()
    refuse_unsupported(version, f"was found in {folder}")


def megatron_in_use() -> tuple[str, Path]:
    """The version of the megatron-core that Python imports, and the folder that holds `megatron/`."""
    from megatron.core import package_info

    return package_info.__version__, Path(package_info.__file__).parents[2]


def refuse_unsupported(version: str, where: str) -> None:
    """Raise ValueError unless this package works with that version of megatron-core.

    Args:
        version: such as "0.19.2" or "0.20.0+1a2b3c".
        where: a clause for the sentence: where it was found.
    """
    if not is_supported(version):
        raise ValueError(
            f"megatron-core {version} {where}, but this version of paradyse-megatron works with {supported_range()}: "
            "pip install 'megatron-core[training]>=0.19,<0.20', or set MEGATRON_PATH to a checkout of such a version."
        )


def is_supported(version: str) -> bool:
    """Whether this package works with that version of megatron-core."""
    return OLDEST <= release(version) < TOO_NEW


def supported_range() -> str:
    """The supported versions, for sentences."""
    return f"{'.'.join(map(str, OLDEST))} up to {TOO_NEW[0]}.{TOO_NEW[1] - 1}"


def release(version: str) -> tuple[int, int]:
    """Major and minor number."""
    major, minor = version.split(".")[:2]
    return int(major), int(minor)


def version_of_checkout(path: Path) -> str:
    """The version of a Megatron-LM checkout, read without importing it. Raises ValueError where there is none."""
    file = path / _PACKAGE_INFO
    try:
        text = file.read_text()
    except OSError as error:
        raise ValueError(
            f"{path} is not a Megatron-LM checkout: {_PACKAGE_INFO} cannot be read there "
            f"({error.strerror}). Give the folder that holds pretrain_gpt.py and megatron/."
        ) from error
    numbers = [re.search(rf"^{name} *= *(\d+)", text, re.MULTILINE) for name in ("MAJOR", "MINOR", "PATCH")]
    if not all(numbers):
        raise ValueError(f"{file} does not say MAJOR, MINOR and PATCH, so the version of {path} is unknown.")
    return ".".join(number[1] for number in numbers if number)


def has_transformer_engine() -> bool:
    """Whether Megatron finds NVIDIA's Transformer Engine: installed, and fit to be loaded."""
    from megatron.core.extensions.transformer_engine import HAVE_TE

    return HAVE_TE
