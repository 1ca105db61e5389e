"""Types of key columns: one for all streams of a join, and one whose values can be compared."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from pyspark.sql.types import ArrayType, DataType, StringType, StructType

from watersmeet.errors import ColumnError
from watersmeet.spark.planning.columns import require
from watersmeet.spark.streams import Stream, stream_label

#: Names of types whose values have no equality.
INCOMPARABLE = ("map", "variant", "geometry", "geography", "void")


def aligned(streams: tuple[Stream, ...], keys: Sequence[tuple[str, ...]]) -> tuple[Stream, ...]:
    """The streams with key columns of one type each: integers and floats are widened, the rest must be equal."""
    for s, key in zip(streams, keys, strict=True):
        for column in key:
            require(s.df, column, "on", stream_label(s.name))
            _refuse_incomparable(s, column)
    out = list(streams)
    for columns in zip(*keys, strict=True):
        kinds = [s.df.schema[column].dataType for s, column in zip(out, columns, strict=True)]
        if len(set(kinds)) > 1:
            target = _common(kinds, columns, out)
            out = [s.with_df(s.df.withColumn(c, s.df[c].cast(target))) for s, c in zip(out, columns, strict=True)]
    return tuple(out)


def _common(kinds: list[DataType], columns: tuple[str, ...], streams: list[Stream]) -> DataType:
    names = {k.simpleString() for k in kinds}
    for family in (("tinyint", "smallint", "int", "bigint"), ("float", "double")):
        if names <= set(family):
            widest = max(names, key=family.index)
            return next(k for k in kinds if k.simpleString() == widest)
    by_stream = ", ".join(f"{k.simpleString()} in `{s.name}`" for k, s in zip(kinds, streams, strict=True))
    column = columns[0]
    target = min(names) if names == {"timestamp", "timestamp_ntz"} else "bigint"
    raise ColumnError(
        f"`on` column `{column}` is {by_stream}; values of these types cannot be compared as they are.",
        hint=f'cast one side, e.g. df.withColumn("{column}", F.col("{column}").cast("{target}")).',
    )


def _refuse_incomparable(s: Stream, column: str) -> None:
    kind = s.df.schema[column].dataType
    for part in _nested(kind):
        if isinstance(part, StringType) and getattr(part, "collation", "UTF8_BINARY") != "UTF8_BINARY":
            raise ColumnError(
                f"`on` column `{column}` of stream `{s.name}` has collation {part.collation}; "
                "keys are compared byte by byte.",
                hint=f'collate(df.{column}, "UTF8_BINARY"), or join on lower(df.{column}).',
            )
        if re.split(r"\W", part.simpleString())[0] in INCOMPARABLE or part.simpleString() == "interval":
            raise ColumnError(
                f"`on` column `{column}` of stream `{s.name}` is {kind.simpleString()}; "
                "values of that type cannot be compared for equality.",
                hint="join on a column of a comparable type.",
            )


def _nested(kind: DataType) -> Iterator[DataType]:
    """The type and the types within it."""
    yield kind
    if isinstance(kind, ArrayType):
        yield from _nested(kind.elementType)
    elif isinstance(kind, StructType):
        for f in kind.fields:
            yield from _nested(f.dataType)
