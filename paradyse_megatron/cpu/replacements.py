"""A set of attributes that are replaced together and put back together, copies of them in other modules included."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Iterable, Iterator
from types import ModuleType
from typing import Any, NamedTuple

_ABSENT: Any = object()  # the owner itself had no such attribute (it may have inherited one)


class Replacement(NamedTuple):
    """`owner.name` becomes `new` while the mapping is on."""

    owner: Any
    name: str
    new: Any


def own(function: Callable[..., Any], name: str) -> Callable[..., Any]:
    """An object of its own that does what `function` does, for a function that replaces several."""

    def own_function(*args: Any, **kwargs: Any) -> Any:
        return function(*args, **kwargs)

    own_function.__name__ = name
    return own_function


class Replacements:
    """Replaced attributes of modules and classes.

    `from torch.cuda import current_device` makes a copy that replacing `torch.cuda.current_device` does not reach. So
    module-level copies are looked for, when replacing and (for modules loaded in between) when putting back.
    """

    def __init__(self, replacements: Iterable[Replacement]) -> None:
        self._replacements = list(replacements)
        news = [id(item.new) for item in self._replacements if callable(item.new)]
        assert len(news) == len(set(news)), "copies are put back by identity: no two replacements may share an object"
        self._originals = [vars(item.owner).get(item.name, _ABSENT) for item in self._replacements]

    def apply(self) -> None:
        pairs = self._pairs()
        _refuse_what_cannot_follow(pairs)
        for owner, name, new in self._replacements:
            setattr(owner, name, new)
        _swap_copies(pairs)

    def restore(self) -> None:
        for (owner, name, _), original in zip(self._replacements, self._originals, strict=True):
            if original is _ABSENT:
                delattr(owner, name)
            else:
                setattr(owner, name, original)
        _swap_copies([(new, original) for original, new in self._pairs()])

    def _pairs(self) -> list[tuple[Any, Any]]:
        """(original, new) of what a module may have copied: functions and classes, not plain values such as `True`."""
        pairs = zip(self._originals, (item.new for item in self._replacements), strict=True)
        return [(original, new) for original, new in pairs if original is not _ABSENT and callable(original)]


def _swap_copies(pairs: list[tuple[Any, Any]]) -> None:
    new_of = {id(old): new for old, new in pairs}
    for module in _modules_with_copies():
        copies = [(name, value) for name, value in vars(module).items() if id(value) in new_of]
        for name, value in copies:
            setattr(module, name, new_of[id(value)])


def _modules_with_copies() -> Iterator[ModuleType]:
    """Loaded modules, except torch's own (only `torch.cuda` is meant to change there) and the stand-ins' home."""
    for name, module in list(sys.modules.items()):
        ours = name.startswith(__package__)
        torchs = name.split(".")[0] == "torch" and not name.startswith("torch.cuda")
        if type(module) is ModuleType and not ours and not torchs:
            yield module


def _refuse_what_cannot_follow(pairs: list[tuple[Any, Any]]) -> None:
    """Objects built from an original (subclasses, partial functions that name a device) keep using it in any case."""
    ids = {id(old) for old, _ in pairs}
    for module in _modules_with_copies():
        if module.__name__.startswith("torch."):
            continue
        for name, value in list(vars(module).items()):
            if _is_built_from(value, ids):
                raise RuntimeError(
                    f"paradyse_megatron.cpu.enable() was called too late: {module.__name__}.{name} was made from an "
                    f"object of torch that can no longer be replaced in it; call it before importing {module.__name__}."
                )


def _is_built_from(value: Any, ids: set[int]) -> bool:
    if isinstance(value, functools.partial):
        return id(value.func) in ids and "device" in value.keywords
    if issubclass(type(value), type):  # isinstance believes an object that only says it is a class
        return any(id(base) in ids for base in type.mro(value)[1:])
    return False
