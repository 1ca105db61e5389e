"""Checks of a written schema against the files of its stream: without them, a column with another name is NULL in
every row."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from watersmeet.errors import suggestion
from watersmeet.pipelines.columns import Columns
from watersmeet.pipelines.diagnostics import Mistake
from watersmeet.pipelines.toml_positions import Path as KeyPath
from watersmeet.query.expressions import schema_fields

#: Further names of Spark's types.
_SYNONYMS = {
    "BYTE": "TINYINT",
    "SHORT": "SMALLINT",
    "INTEGER": "INT",
    "LONG": "BIGINT",
    "REAL": "FLOAT",
    "TIMESTAMP_LTZ": "TIMESTAMP",
    **dict.fromkeys(("DEC", "NUMERIC"), "DECIMAL"),
    **dict.fromkeys(("CHAR", "CHARACTER", "VARCHAR"), "STRING"),
}
_SMALL = {"TINYINT", "SMALLINT", "INT", "BIGINT", "DOUBLE", "DATE", "DECIMAL"}
#: What Spark reads a Parquet column as, by its type in the file; everything else stops the query.
READ_AS = {
    "TINYINT": _SMALL,
    "SMALLINT": _SMALL,
    "INT": _SMALL,
    "BIGINT": {"BIGINT", "DECIMAL"},
    "FLOAT": {"FLOAT", "DOUBLE"},
    "DOUBLE": {"DOUBLE"},
    "BOOLEAN": {"BOOLEAN"},
    "STRING": {"STRING", "BINARY"},
    "DATE": {"TINYINT", "SMALLINT", "INT", "BIGINT", "DOUBLE", "DATE", "TIMESTAMP_NTZ"},
    "TIMESTAMP": {"BIGINT", "TIMESTAMP", "TIMESTAMP_NTZ"},
}


@dataclass(frozen=True)
class FileColumns:
    """A file, its columns in their order, and the columns that its partition adds."""

    file: Path
    columns: Columns
    partition: set[str]


def check(name: str, stream: dict[str, Any], files: Iterator[FileColumns]) -> Iterator[Mistake]:
    """What the files of a stream contradict. A column that some files lack is right if another file has it."""
    path, options = ("streams", name, "schema"), {option.lower(): v for option, v in stream.get("options", {}).items()}
    declared = _declared(stream["schema"])
    if stream["format"] not in ("csv", "parquet", "orc") or not declared:
        return
    if stream["format"] == "csv":
        if str(options.get("header", "false")).lower() != "true" or str(options.get("enforceschema")).lower() == "true":
            return  # without a header, or by the user's wish, the schema alone gives names
        declared.pop(str(options.get("columnnameofcorruptrecord", "_corrupt_record")), None)
    missing: list[str] | None = None
    for found in files:
        if stream["format"] == "orc" and all(column.startswith("_col") for column in found.columns):
            return  # Hive writes no names; Spark then goes by position
        known = {column.lower() for column in (*found.columns, *found.partition)}
        lacking = [column for column in declared if column.lower() not in known]
        missing = lacking if missing is None else [column for column in missing if column in lacking]
        wrong = _misplaced if stream["format"] == "csv" else _mistyped if stream["format"] == "parquet" else None
        mistakes = [] if wrong is None else list(wrong(path, declared, found))
        yield from mistakes
        if mistakes or not missing:
            return
    for column in missing or ():
        hint = suggestion(column, list(found.columns), "the columns are")
        yield Mistake(path, f"no file of the stream has a column `{column}`.", hint, value=True, part=column)


def _declared(schema: str) -> dict[str, str]:
    """Types by column; what is no column and type is found elsewhere."""
    fields = [[token for token in field if token != ":"] for field in schema_fields(schema) or ()]
    return {name: _SYNONYMS.get(kind.upper(), kind.upper()) for name, kind, *_ in filter(lambda f: len(f) > 1, fields)}


def _misplaced(path: KeyPath, declared: dict[str, str], found: FileColumns) -> Iterator[Mistake]:
    """The first column that stands elsewhere in a CSV file's header: Spark goes by position."""
    partition = {column.lower() for column in found.partition}
    names = [column for column in declared if column.lower() not in partition]
    for number, (column, header) in enumerate(zip(names, found.columns, strict=False), 1):
        if column.lower() != header.strip().lower():
            message = f"column {number} is `{column}` here and `{header}` in {found.file.name}; Spark goes by position."
            hint = (
                f'write `{header}` in its place, and select = ["{header} AS {column}", …] to rename it; '
                "or options = { header = true, enforceSchema = true } if the file is wrong."
            )
            yield Mistake(path, message, hint, value=True, part=column)
            return


def _mistyped(path: KeyPath, declared: dict[str, str], found: FileColumns) -> Iterator[Mistake]:
    """Columns of a Parquet file that Spark does not read as what the schema says."""
    types = {column.lower(): kind for column, kind in found.columns.items()}
    for column, kind in declared.items():
        stored = types.get(column.lower())
        if stored in READ_AS and kind not in READ_AS[stored]:
            message = f"`{column}` is {kind} here and {stored} in {found.file.name}; Spark does not convert it."
            hint = f"write {column} {stored}, and convert it by `select`."
            yield Mistake(path, message, hint, value=True, part=column)
