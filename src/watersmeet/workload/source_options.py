"""Workloads from the text options of a data source."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from typing import TYPE_CHECKING, Any, TypeVar

from watersmeet.errors import QueryError

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

Made = TypeVar("Made", bound="DataclassInstance")


def made(kind: type[Made], options: Mapping[str, str]) -> Made:
    """A workload from text options, each parsed as the type of the field's default."""
    known: dict[str, Any] = {field.name: type(field.default) for field in fields(kind)}
    unknown = sorted(set(options) - set(known))
    if unknown:
        raise QueryError(
            f"the workload {kind.__name__} has no option `{'`, `'.join(unknown)}`.",
            hint=f"it takes {', '.join(known)}.",
        )
    return kind(**{name: _value(name, text, known[name]) for name, text in options.items()})


def gap_of(options: Mapping[str, str]) -> dict[str, str]:
    """Options of a workload with a mean `gap`, which may be given as a `rate`."""
    rest = dict(options)
    if "rate" not in rest:
        return rest
    if "gap" in rest:
        raise QueryError("options `rate` and `gap` mean the same; give one of them.")
    rate = _value("rate", rest.pop("rate"), float)
    if not rate > 0:
        raise QueryError(f"option `rate` is {rate:g}; it must be a positive number of rows per second.")
    return rest | {"gap": repr(1 / rate)}


def _value(name: str, text: str, kind: Any) -> Any:
    if kind is bool:
        if text.lower() not in ("true", "false"):
            raise QueryError(f"option `{name}` is {text!r}; it is true or false.")
        return text.lower() == "true"
    try:
        return kind(text)
    except ValueError:
        raise QueryError(f"option `{name}` is {text!r}, which is not a number of type {kind.__name__}.") from None
