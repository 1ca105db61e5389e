"""Arrow types from the text in which they are written down: the inverse of ``str(type)``."""

from __future__ import annotations

import re
from collections.abc import Callable

import pyarrow as pa

_PLAIN: dict[str, pa.DataType] = {
    str(kind): kind
    for kind in (
        pa.null(),
        pa.bool_(),
        *(pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.uint8(), pa.uint16(), pa.uint32(), pa.uint64()),
        *(pa.float16(), pa.float32(), pa.float64()),
        *(pa.string(), pa.large_string(), pa.binary(), pa.large_binary()),
        *(pa.date32(), pa.date64(), pa.month_day_nano_interval()),
        *(pa.duration(unit) for unit in ("s", "ms", "us", "ns")),
        *(pa.timestamp(unit) for unit in ("s", "ms", "us", "ns")),
        *(pa.time32("s"), pa.time32("ms"), pa.time64("us"), pa.time64("ns")),
    )
}
_SIZED: tuple[tuple[str, Callable[..., pa.DataType]], ...] = (
    (r"decimal128\((\d+), (-?\d+)\)", lambda p, s: pa.decimal128(int(p), int(s))),
    (r"timestamp\[(\w+), tz=(.+)\]", lambda unit, zone: pa.timestamp(unit, zone)),
    (r"fixed_size_binary\[(\d+)\]", lambda n: pa.binary(int(n))),
)


def parse_type(text: str) -> pa.DataType | None:
    """The type with this text; None for an unknown one."""
    if text in _PLAIN:
        return _PLAIN[text]
    for pattern, make in _SIZED:
        found = re.fullmatch(pattern, text)
        if found:
            return make(*found.groups())
    found = re.fullmatch(r"(list|large_list|struct|map)<(.*)>", text, re.DOTALL)
    return _nested(found[1], _parts(found[2])) if found else None


def _nested(name: str, parts: list[str]) -> pa.DataType | None:
    if name == "map":
        kinds = [parse_type(re.sub(r" \('.*'\)$", "", part)) for part in parts]
        return pa.map_(*kinds) if len(kinds) == 2 and None not in kinds else None
    fields = [_field(part) for part in parts]
    if any(field is None for field in fields):
        return None
    if name == "struct":
        return pa.struct(fields)
    return (pa.list_ if name == "list" else pa.large_list)(fields[0])


def _field(text: str) -> pa.Field | None:
    name, _, kind = text.partition(": ")
    needed = kind.endswith(" not null")
    found = parse_type(kind.removesuffix(" not null"))
    return None if found is None else pa.field(name, found, nullable=not needed)


def _parts(text: str) -> list[str]:
    """The parts of a text between commas outside of brackets."""
    parts, depth, start = [], 0, 0
    for at, letter in enumerate(text):
        depth += (letter in "<([") - (letter in ">)]")
        if letter == "," and depth == 0:
            parts.append(text[start:at])
            start = at + 2
    return [*parts, text[start:]] if text else []
