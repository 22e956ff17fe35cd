"""Frozen dataclasses from YAML files and mappings: types are checked, unknown keys are errors."""

from __future__ import annotations

import dataclasses
import os
import re
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, get_args, get_type_hints

import yaml


class _Loader(yaml.SafeLoader):
    """Safe, and reads 1e9 as the number it is, where YAML 1.1 wants 1.0e+9."""


_Loader.add_implicit_resolver(
    "tag:yaml.org,2002:float", re.compile(r"[-+]?[0-9]+(\.[0-9]*)?[eE][-+]?[0-9]+"), list("-+0123456789")
)


def from_yaml[T](cls: type[T], path: str | os.PathLike[str]) -> T:
    """Read the dataclass `cls` from a YAML file.

    Raises:
        ValueError: one sentence that names the file, and the key where one is at fault.
    """
    where = f"{cls.__name__} file {path}"
    try:
        found = yaml.load(Path(path).read_text("utf-8"), _Loader)
    except OSError as error:
        raise ValueError(f"{where} cannot be read: {error.strerror}.") from error
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise ValueError(f"{where} is not a YAML file: {' '.join(str(error).split())}.") from error
    return from_mapping(cls, found, where)


def from_mapping[T](cls: type[T], found: Any, where: str) -> T:
    """Build the dataclass `cls` from its fields by name; fields with a default may be left out.

    Args:
        where: names the source at the start of an error.

    Raises:
        ValueError: no mapping, a key too few or too many, a value of another type, or one that `cls` refuses.
    """
    if not isinstance(found, Mapping):
        raise ValueError(f"{where} must hold keys and values, but it holds {found!r}.")
    fields = {field.name: field for field in dataclasses.fields(cls)}  # type: ignore[arg-type]
    for key in found:
        if key not in fields:
            raise ValueError(f"{where} has the unknown key {key!r}; known are {', '.join(fields)}.")
    for name, field in fields.items():
        if name not in found and field.default is field.default_factory is dataclasses.MISSING:
            raise ValueError(f"{where} has no key {name!r}.")
    hints = get_type_hints(cls)
    values = {key: _field(key, value, hints[key], where) for key, value in found.items()}
    try:
        return cls(**values)
    except ValueError as error:
        raise ValueError(f"{where}: {error}") from error


def _field(key: str, value: Any, hint: Any, where: str) -> Any:
    if dataclasses.is_dataclass(hint):
        assert isinstance(hint, type)
        return from_mapping(hint, value, f"{where}, {key!r},")
    return _checked(value, hint, f"{where} has under {key!r}")


def _checked(value: Any, hint: Any, where: str) -> Any:
    if hint in _WORDS:
        return _scalar(value, hint, where)
    if not isinstance(value, Mapping):
        raise ValueError(f"{where} {value!r}, which must be names with numbers.")
    of = get_args(hint)[1]
    if dataclasses.is_dataclass(of):
        assert isinstance(of, type)
        return {str(key): from_mapping(of, entry, f"{where}, {key!r},") for key, entry in value.items()}
    return {str(key): _scalar(entry, float, f"{where}, {key!r},") for key, entry in value.items()}


def _scalar(value: Any, hint: Any, where: str) -> Any:
    allowed = (int, float) if hint is float else hint
    if not isinstance(value, allowed) or isinstance(value, bool) != (hint is bool):
        raise ValueError(f"{where} {value!r}, which must be {_WORDS[hint]}.")
    if hint is not float:
        return value
    if not -sys.float_info.max <= value <= sys.float_info.max:  # infinite, NaN, an integer too large
        raise ValueError(f"{where} a number that is not finite.")
    return float(value)


_WORDS = {int: "a whole number", float: "a number", bool: "true or false", str: "a text"}
