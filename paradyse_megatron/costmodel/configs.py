"""Where the shipped descriptions and cost models are: beside the package in a checkout, inside it when installed."""

from __future__ import annotations

from pathlib import Path

_PACKAGE = Path(__file__).resolve().parents[1]


def configs_folder() -> Path:
    """The folder with `models`, `clusters` and `costs`."""
    installed = _PACKAGE / "configs"
    return installed if installed.is_dir() else _PACKAGE.parent / "configs"


def shipped(folder: str, name: str) -> Path:
    """A shipped file such as ("clusters", "dgx-h100.yaml"), or for a path that exists that path itself.

    Raises:
        ValueError: neither exists; the sentence lists what is shipped.
    """
    given = Path(name)
    if given.exists():
        return given
    for candidate in (configs_folder() / folder / name, configs_folder() / folder / f"{name}.yaml"):
        if candidate.is_file():
            return candidate
    known = ", ".join(sorted(path.stem for path in (configs_folder() / folder).glob("*.yaml")))
    raise ValueError(f"{name} is no file, and no name of a shipped one in {folder} ({known}).")
