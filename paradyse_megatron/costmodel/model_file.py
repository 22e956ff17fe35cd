"""The cost model's file. Schema 3.

One object: `model`, `group_size`, `micro_batch_size`, `source`, `machine`, `versions`, `date`, `grid`, `accuracy`,
`assumptions`; `layers`, by kind of layer and option; `heads`, whole and chunked; `parts`, traced work (may be empty).
Units are in the keys, lengths are tokens. A curve is {`terms`, `points`, `terms_below`}, see `curve.Curve`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from paradyse_megatron.costmodel.costs import HeadCosts, Measured, OptionCosts
from paradyse_megatron.costmodel.curve import Curve
from paradyse_megatron.costmodel.described import from_mapping
from paradyse_megatron.costmodel.polynomial import Polynomial
from paradyse_megatron.costmodel.provenance import Accuracy, Provenance
from paradyse_megatron.costmodel.shape import LAYER_KINDS, ModelShape
from paradyse_megatron.costmodel.work import KINDS, PartWork, Pass, Transfer
from paradyse_megatron.planner.jsonfile import Json, check_keys
from paradyse_megatron.planner.option import Option

if TYPE_CHECKING:
    from paradyse_megatron.costmodel.model import CostModel

SCHEMA = 3
DEPTH = 3
"""Levels of the file that are written in lines: each option is one."""
_REQUIRED = set(
    "model group_size micro_batch_size source machine versions date grid accuracy assumptions".split()
    + "layers heads parts".split()
)


def content(model: CostModel) -> Json:
    """What the file of a cost model holds."""
    about = model.provenance
    heads = {"whole": model.head, "chunked": model.chunked_head}
    return {
        "model": model.model,
        "group_size": model.group_size,
        "micro_batch_size": model.micro_batch_size,
        "source": model.source,
        "machine": about.machine,
        "versions": dict(about.versions),
        "date": about.date,
        "grid": {"measured_tokens": list(about.grid_tokens), "traced_tokens": list(about.traced_tokens)},
        "accuracy": asdict(about.accuracy),
        "assumptions": list(about.assumptions),
        "layers": {
            kind: {option: _written(costs) for option, costs in of_kind.items()}
            for kind, of_kind in model.costs.items()
        },
        "heads": {name: _written(costs) for name, costs in heads.items() if costs is not None},
        "parts": {name: asdict(part) for name, part in model.parts.items()},
    }


def _written(costs: OptionCosts | HeadCosts) -> Json:
    curves = {name: curve for name, curve in vars(costs).items() if isinstance(curve, Curve)}
    written: Json = {name: asdict(curve) for name, curve in curves.items()}
    return written | {"measured": [asdict(each) for each in costs.measured]}


def fields(found: Json, where: str) -> dict[str, Any]:
    """The fields of `CostModel` from the content of its file. Raises a ValueError of one sentence."""
    check_keys(found, _REQUIRED, set(), where)
    shape = from_mapping(ModelShape, found["model"], f"{where}, 'model',")
    heads = _names(found["heads"], f"{where}, 'heads',")
    check_keys(heads, {"whole"}, {"chunked"}, f"{where}, 'heads',")
    of_heads = {name: _costs(HeadCosts, entry, f"{where}, head {name!r},") for name, entry in heads.items()}
    return {
        "shape": shape,
        "group_size": _whole(found["group_size"], f"{where} has under 'group_size'"),
        "micro_batch_size": _whole(found["micro_batch_size"], f"{where} has under 'micro_batch_size'"),
        "source": _text(found["source"], f"{where} has under 'source'"),
        "costs": _layers(found["layers"], shape, where),
        "head": of_heads["whole"],
        "chunked_head": of_heads.get("chunked"),
        "parts": _by_name(_part, found["parts"], f"{where}, 'parts'"),
        "provenance": _provenance(found, where),
    }


def _provenance(found: Json, where: str) -> Provenance:
    grid = _names(found["grid"], f"{where}, 'grid',")
    check_keys(grid, {"measured_tokens", "traced_tokens"}, set(), f"{where}, 'grid',")
    accuracy = _names(found["accuracy"], f"{where}, 'accuracy',")
    check_keys(accuracy, set(Accuracy.__dataclass_fields__), set(), f"{where}, 'accuracy',")
    versions = _names(found["versions"], f"{where}, 'versions',")
    return Provenance(
        machine=_text(found["machine"], f"{where} has under 'machine'"),
        versions={name: _text(each, f"{where}, 'versions', has under {name!r}") for name, each in versions.items()},
        date=_text(found["date"], f"{where} has under 'date'"),
        grid_tokens=_list(_whole, grid["measured_tokens"], f"{where}, 'grid', has under 'measured_tokens'"),
        traced_tokens=_list(_whole, grid["traced_tokens"], f"{where}, 'grid', has under 'traced_tokens'"),
        accuracy=Accuracy(
            **{
                name: None if share is None else _number(share, f"{where}, 'accuracy', has under {name!r}")
                for name, share in accuracy.items()
            }
        ),
        assumptions=_list(_text, found["assumptions"], f"{where} has under 'assumptions'"),
    )


def _layers(found: Any, shape: ModelShape, where: str) -> dict[str, dict[str, OptionCosts]]:
    kinds = _names(found, f"{where}, 'layers',")
    check_keys(kinds, set(shape.kinds), set(LAYER_KINDS) & set(shape.kinds), f"{where}, 'layers',")
    return {kind: _options(kinds[kind], f"{where}, 'layers', {kind!r},") for kind in shape.kinds}


def _options(found: Any, where: str) -> dict[str, OptionCosts]:
    if not isinstance(found, dict) or not found:
        raise ValueError(f"{where} holds {found!r}, but it must hold the costs of at least one option.")
    return {
        _canonical(text, where): _costs(OptionCosts, entry, f"{where} option {text!r},")
        for text, entry in found.items()
    }


def _canonical(text: str, where: str) -> str:
    try:
        canonical = str(Option.parse(text))
    except ValueError as error:
        raise ValueError(f"{where} {error}") from error
    if text != canonical:
        raise ValueError(f"{where} has the option {text!r}, which must be written {canonical!r}.")
    return canonical


def _costs[T: (OptionCosts, HeadCosts)](cls: type[T], found: Any, where: str) -> T:
    """Every field of `cls` but the measurements a curve; time must be above 0."""
    names = set(cls.__dataclass_fields__)
    found = _names(found, where)
    check_keys(found, names, set(), where)
    curves = {name: _curve(found[name], f"{where} {name!r}") for name in names - {"measured"}}
    measured = _list(_measured, found["measured"], f"{where} 'measured'")
    whole = "workspace_bytes" if cls is OptionCosts else "saved_bytes"
    if not curves["buffer_bytes"].is_within(curves[whole]):
        raise ValueError(f"{where} 'buffer_bytes' is more than {whole!r}, which it is a part of.")
    if curves["milliseconds"](1) <= 0:
        raise ValueError(f"{where} 'milliseconds' is 0 at 1 token, which no layer is.")
    return cls(**curves, measured=measured)


def _curve(found: Any, where: str) -> Curve:
    found = _names(found, where)
    check_keys(found, set(Curve.__dataclass_fields__), set(), where)
    curve = Curve(
        terms=_list(_polynomial, found["terms"], f"{where}, 'terms',"),
        points=_list(_point, found["points"], f"{where}, 'points',"),
        terms_below=_list(_polynomial, found["terms_below"], f"{where}, 'terms_below',"),
    )
    fault = curve.fault()
    if fault is not None:
        raise ValueError(f"{where} {fault}.")
    return curve


def _polynomial(found: Any, where: str) -> Polynomial:
    polynomial = from_mapping(Polynomial, found, where)
    check_keys(found, set(Polynomial.__dataclass_fields__), set(), where)
    for name, coefficient in asdict(polynomial).items():
        if coefficient < 0:
            raise ValueError(f"{where} has under {name!r} {coefficient}, but no cost falls with length.")
    return polynomial


def _point(found: Any, where: str) -> tuple[int, float]:
    if not isinstance(found, list) or len(found) != 2:
        raise ValueError(f"{where} has {found!r}, which must be a pair of tokens and value.")
    return _whole(found[0], f"{where} has"), _number(found[1], f"{where} has")


def _measured(found: Any, where: str) -> Measured:
    found = _names(found, where)
    check_keys(found, set(Measured.__dataclass_fields__), set(), where)
    return Measured(
        _whole(found["length_tokens"], f"{where} has under 'length_tokens'"),
        _number(found["milliseconds"], f"{where} has under 'milliseconds'"),
        _number(found["spread_milliseconds"], f"{where} has under 'spread_milliseconds'"),
        None if found["peak_bytes"] is None else _whole(found["peak_bytes"], f"{where} has under 'peak_bytes'"),
    )


def _part(found: Any, where: str) -> PartWork:
    found = _names(found, where)
    check_keys(found, set(PartWork.__dataclass_fields__), set(), where)
    numbers = {name: found[name] for name in ("gathered_weight_bytes", "forward_kernels", "backward_kernels")}
    for name, number in numbers.items():
        _number(number, f"{where} has under {name!r}")
    return PartWork(
        forward=_pass(found["forward"], f"{where}, 'forward',"),
        backward=_pass(found["backward"], f"{where}, 'backward',"),
        transfers=_list(_transfer, found["transfers"], f"{where}, 'transfers',"),
        saved_bytes=_polynomial(found["saved_bytes"], f"{where}, 'saved_bytes',"),
        forward_peak_bytes=_list(_polynomial, found["forward_peak_bytes"], f"{where}, 'forward_peak_bytes',"),
        backward_peak_bytes=_list(_polynomial, found["backward_peak_bytes"], f"{where}, 'backward_peak_bytes',"),
        buffer_bytes=_polynomial(found["buffer_bytes"], f"{where}, 'buffer_bytes',"),
        **numbers,
    )


def _pass(found: Any, where: str) -> Pass:
    found = _names(found, where)
    check_keys(found, set(Pass.__dataclass_fields__), set(), where)
    return Pass(**_by_name(_polynomial, found, where))


def _transfer(found: Any, where: str) -> Transfer:
    found = _names(found, where)
    check_keys(found, set(Transfer.__dataclass_fields__), set(), where)
    if found["kind"] not in KINDS:
        raise ValueError(f"{where} has under 'kind' {found['kind']!r}, which must be one of {', '.join(KINDS)}.")
    num_bytes = {name: _polynomial(found[name], f"{where}, {name!r},") for name in ("forward_bytes", "backward_bytes")}
    for name in ("num_peers", "forward_calls", "backward_calls", "share_beside_attention"):
        _number(found[name], f"{where} has under {name!r}")
    return Transfer(**(found | num_bytes))


def _by_name[T](read: Callable[[Any, str], T], found: Any, where: str) -> dict[str, T]:
    return {name: read(entry, f"{where}, {name!r},") for name, entry in _names(found, where).items()}


def _list[T](read: Callable[[Any, str], T], found: Any, where: str) -> tuple[T, ...]:
    if not isinstance(found, list):
        raise ValueError(f"{where} {found!r}, which must be a list.")
    return tuple(read(entry, where) for entry in found)


def _names(found: Any, where: str) -> Json:
    if not isinstance(found, Mapping):
        raise ValueError(f"{where} must hold keys and values, but it is {found!r}.")
    return dict(found)


def _whole(value: Any, where: str) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise ValueError(f"{where} {value!r}, which must be a whole number of at least 1.")
    return value


def _number(value: Any, where: str) -> float:
    if not isinstance(value, int | float) or isinstance(value, bool) or not 0 <= value < float("inf"):
        raise ValueError(f"{where} {value!r}, which must be a number that is not negative.")
    return value


def _text(value: Any, where: str) -> str:
    if not isinstance(value, str):
        raise ValueError(f"{where} {value!r}, which must be a text.")
    return value
