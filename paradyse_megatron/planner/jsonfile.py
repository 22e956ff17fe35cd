"""JSON files of ours: read strictly, written whole.

Every file is one object with a `schema` number. What does not fit is a `ValueError` of one sentence that names the file
and the key.
"""

from __future__ import annotations

import json
import os
import tempfile
from pathlib import Path
from typing import Any

Json = dict[str, Any]


def read_object(path: str | os.PathLike[str], what: str, schema: int) -> Json:
    """The object in a file of ours, without its `schema` key.

    Args:
        what: the kind of file for errors, "cost model".
        schema: the only schema number that is accepted.

    Raises:
        ValueError: no such file, not JSON (truncated, NaN, binary), not an object, or another schema.
    """
    found = _parsed(path, what)
    if not isinstance(found, dict):
        raise ValueError(f"{_title(what)} {path} must hold a JSON object, but it holds a {type(found).__name__}.")
    if "schema" not in found:
        raise ValueError(f"{_title(what)} {path} has no key 'schema'; this version reads schema {schema}.")
    number = found.pop("schema")
    if isinstance(number, bool) or number != schema:
        raise ValueError(f"{_title(what)} {path} has the schema {number!r}; this version reads schema {schema}.")
    return found


def write_object(path: str | os.PathLike[str], schema: int, content: Json, depth: int = 99) -> None:
    """Write a file of ours; a reader sees the old file or the whole new one, never a part.

    Args:
        depth: levels of objects and lists that have a line for each entry; what lies deeper has none of its own.
    """
    target = Path(path)
    text = _in_lines({"schema": schema, **content}, depth) + "\n"
    with tempfile.NamedTemporaryFile("w", dir=target.parent, prefix=f".{target.name}.", delete=False) as part:
        part.write(text)
    os.chmod(part.name, 0o644)
    os.replace(part.name, target)


def check_keys(found: Json, required: set[str], optional: set[str], where: str) -> None:
    """Raise a `ValueError` for a key too few or too many.

    Args:
        where: names the file (and the place in it) at the start of the sentence.
    """
    for key in sorted(required - found.keys()):
        raise ValueError(f"{where} has no key {key!r}; it needs {', '.join(sorted(required))}.")
    for key in sorted(found.keys() - required - optional):
        raise ValueError(f"{where} has the unknown key {key!r}; known are {', '.join(sorted(required | optional))}.")


def _in_lines(value: Any, depth: int, indent: str = "\n") -> str:
    if depth == 0 or not isinstance(value, dict | list) or not value:
        return json.dumps(value, allow_nan=False)
    keys = [f"{json.dumps(str(key))}: " for key in value] if isinstance(value, dict) else [""] * len(value)
    entries = value.values() if isinstance(value, dict) else value
    inner = f"{indent} "
    lines = [key + _in_lines(entry, depth - 1, inner) for key, entry in zip(keys, entries, strict=True)]
    begin, end = "{}" if isinstance(value, dict) else "[]"
    return f"{begin}{inner}{f',{inner}'.join(lines)}{indent}{end}"


def _parsed(path: str | os.PathLike[str], what: str) -> Any:
    try:
        return json.loads(Path(path).read_text("utf-8"), parse_constant=_refuse_constant)
    except OSError as error:
        raise ValueError(f"{_title(what)} {path} cannot be read: {error.strerror}.") from error
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{_title(what)} {path} is not a whole JSON file: {error}.") from error


def _refuse_constant(name: str) -> None:
    raise ValueError(f"it holds the number {name}, which JSON does not have")


def _title(what: str) -> str:
    return what[:1].upper() + what[1:]
