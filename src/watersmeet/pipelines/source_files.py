"""Checks of the folders that a pipeline reads, and of the columns of the files in them. Needs no Spark."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from glob import glob, has_magic
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyarrow import csv, orc, parquet

from watersmeet.errors import suggestion
from watersmeet.pipelines import file_schemas
from watersmeet.pipelines.columns import Columns
from watersmeet.pipelines.diagnostics import Mistake
from watersmeet.pipelines.file_schemas import FileColumns
from watersmeet.pipelines.schema import FILES

#: Bytes of a CSV file that are read.
SAMPLE = 1 << 20
#: Options that change how values of a CSV file are parsed; with one, types are unknown.
_FORMATS = {"timestampformat", "timestampntzformat", "dateformat", "inferschema", "nullvalue"}
#: Options that change how the header of a CSV file is read.
_SPARKS = {"comment", "linesep", "encoding", "charset"}
#: Options that choose among the files of a folder.
_CHOOSING = {"pathglobfilter", "modifiedbefore", "modifiedafter"}


def check(streams: Mapping[str, dict[str, Any]], folder: Path, found: dict[str, Columns]) -> Iterator[Mistake]:
    """Folders that do not exist, and schemas that their files contradict. Adds the columns of streams without a
    `schema` to `found`."""
    for name, stream in streams.items():
        if stream["format"] not in FILES or "://" in stream["path"]:
            continue
        location, path = folder / stream["path"], ("streams", name, "path")
        if not (glob(str(location)) if has_magic(str(location)) else location.exists()):
            siblings = [p.name for p in location.parent.iterdir()] if location.parent.is_dir() else []
            hint = suggestion(location.name, siblings, "make it before the run; beside it there are")
            yield Mistake(path, f'the folder "{stream["path"]}" is not there.', hint, value=True)
        elif "schema" in stream:
            yield from file_schemas.check(name, stream, _looked_at(stream, location))
        else:
            file = next(_files(location), None)
            if file is None:
                message = f'the stream has no `schema`, and "{stream["path"]}" has no file to infer it from.'
                hint = 'write schema = "item_id BIGINT, opened_at TIMESTAMP", or put a file there first.'
                yield Mistake(path, message, hint, value=True)
                continue
            columns = _columns(stream, file, location)
            if columns is not None:
                found[name] = columns


def _files(location: Path) -> Iterator[Path]:
    """The files that Spark would read: it skips names that begin with a dot or an underscore."""
    for root in sorted(glob(str(location))) if has_magic(str(location)) else [str(location)]:
        files = [Path(root)] if Path(root).is_file() else sorted(Path(root).rglob("*"))
        for file in files:
            hidden = any(part.startswith((".", "_")) for part in file.relative_to(root).parts)
            if file.is_file() and not hidden and file.stat().st_size:
                yield file


def _looked_at(stream: dict[str, Any], location: Path) -> Iterator[FileColumns]:
    """The columns of the files that are compared with a schema; it ends at a file that only Spark can read."""
    if has_magic(str(location)) or _CHOOSING & {option.lower() for option in stream.get("options", {})}:
        return
    for file in _files(location):
        folders = file.relative_to(location).parts[:-1]
        if any("=" not in folder for folder in folders):
            continue  # Spark passes over folders that are no partitions
        columns = _own_columns(stream, file)
        if columns is None:
            return
        yield FileColumns(file, columns, {folder.partition("=")[0] for folder in folders})


def _columns(stream: dict[str, Any], file: Path, location: Path) -> Columns | None:
    """Types by column, with those of partitions; None if only Spark can tell them."""
    columns = _own_columns(stream, file)
    if columns is not None and not has_magic(str(location)):
        parts = file.parent.relative_to(location).parts if location.is_dir() else ()
        columns |= {part.partition("=")[0]: None for part in parts if "=" in part}
    return columns


def _own_columns(stream: dict[str, Any], file: Path) -> Columns | None:
    """Types by column; None if the file does not contain them or cannot be read without Spark."""
    options = {name.lower(): value for name, value in stream.get("options", {}).items()}
    try:
        match stream["format"]:
            case "csv":
                return _of_csv(file, options)
            case "parquet":
                return {f.name: _spark_type(f.type) for f in parquet.read_schema(file)}
            case "orc":
                return {f.name: _spark_type(f.type) for f in orc.ORCFile(file).schema}
            case "text":
                return {"value": "STRING"}
            case _:
                return None
    except (pa.ArrowException, OSError, UnicodeDecodeError):
        return None


def _of_csv(file: Path, options: Mapping[str, Any]) -> Columns | None:
    sep, quote = str(options.get("sep", options.get("delimiter", ","))), str(options.get("quote", '"'))
    header = str(options.get("header", "false")).lower() == "true"
    if len(sep) != 1 or len(quote) != 1 or _SPARKS & options.keys():
        return None
    reads = csv.ReadOptions(block_size=SAMPLE, autogenerate_column_names=not header)
    parses = csv.ParseOptions(delimiter=sep, quote_char=quote, newlines_in_values=True)
    with csv.open_csv(file, reads, parses) as reader:
        schema = reader.schema
    names = schema.names if header else [f"_c{n}" for n in range(len(schema))]
    if len(set(names)) < len(names) or "" in names:
        return None  # Spark invents names for them
    certain = not _FORMATS & options.keys()
    return {name: _looks(kind) if certain else None for name, kind in zip(names, schema.types, strict=True)}


def _looks(kind: pa.DataType) -> str | None:
    """The type of a CSV column if Spark cannot infer a time from it, whatever other files contain; else None."""
    if pa.types.is_integer(kind):
        return "BIGINT"
    if pa.types.is_floating(kind):
        return "DOUBLE"
    return "BOOLEAN" if pa.types.is_boolean(kind) else None


_EXACT = {
    pa.int8(): "TINYINT",
    pa.int16(): "SMALLINT",
    pa.int32(): "INT",
    pa.int64(): "BIGINT",
    pa.float32(): "FLOAT",
    pa.float64(): "DOUBLE",
    pa.bool_(): "BOOLEAN",
    pa.string(): "STRING",
    pa.large_string(): "STRING",
    pa.date32(): "DATE",
}


def _spark_type(kind: pa.DataType) -> str | None:
    if pa.types.is_timestamp(kind):
        return "TIMESTAMP"
    return "DECIMAL" if pa.types.is_decimal(kind) else _EXACT.get(kind)
