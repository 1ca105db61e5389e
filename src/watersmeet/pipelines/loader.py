"""Reads a pipeline from a file. One error lists all mistakes, each with its line."""

from __future__ import annotations

import os
import re
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from watersmeet.errors import PipelineError, QueryError, did_you_mean
from watersmeet.model.durations import parse
from watersmeet.model.queries import join_kind
from watersmeet.model.windows import RowsWindow, TimeWindow, Window
from watersmeet.pipelines import columns, secrets
from watersmeet.pipelines import consistency as rules
from watersmeet.pipelines import join_checks as joins
from watersmeet.pipelines import reader_options as options
from watersmeet.pipelines import source_files as files
from watersmeet.pipelines import validate as checking
from watersmeet.pipelines.columns import Columns
from watersmeet.pipelines.diagnostics import Mistake, QueryMistake, refuse
from watersmeet.pipelines.pipeline import Pipeline, Session, Sink, Source
from watersmeet.pipelines.schema import FILES, PIPELINE
from watersmeet.pipelines.toml_positions import Path as KeyPath
from watersmeet.query.lowering import DeclaredStream, lower
from watersmeet.query.parser import read as read_query

#: Tables and lists in each other; a pipeline has five.
DEEPEST = 30


def read(file: str | Path, environment: Mapping[str, str] = os.environ) -> Pipeline:
    """The pipeline in a file; paths in it are relative to the file's folder."""
    file = Path(file)
    try:
        text = file.read_text(encoding="utf-8")
    except OSError as error:
        found = [p.name for p in file.parent.glob("*.toml")] if file.parent.is_dir() else []
        hint = did_you_mean(file.name, found, file.parent.joinpath) or "docs/pipelines.md has one to begin with."
        raise PipelineError(f"{file} cannot be read: {error.strerror}.", hint=hint) from None
    except UnicodeDecodeError:
        raise PipelineError(f"{file} is not text in UTF-8.", hint="save it as UTF-8.") from None
    return from_text(text, str(file), file.parent, environment, look=True)


def from_text(text: str, file: str, folder: Path, environment: Mapping[str, str], *, look: bool = False) -> Pipeline:
    """The pipeline in a text; messages name it `file`. With `look` the files that it reads are checked for columns."""
    unset: dict[KeyPath, str] = {}
    try:
        given = _filled(tomllib.loads(text), environment, (), unset)
    except tomllib.TOMLDecodeError as error:
        raise _syntax(file, text, str(error)) from None
    except (RecursionError, ValueError) as error:
        what = "values nested too deeply" if isinstance(error, RecursionError) else "a number of too many digits"
        raise PipelineError(f"{file} has {what}.", hint="docs/pipelines.md has all keys and their values.") from None
    mistakes = [_unset(name, path, environment) for name, path in _first_paths(unset).items()]
    mistakes += (mistake for mistake in checking.check(given, PIPELINE) if mistake.path not in unset)
    refuse(file, text, mistakes)  # the checks below need valid keys and values
    if "how" in given.get("join", {}):
        given["join"]["how"] = join_kind(given["join"]["how"])
    mistakes += rules.check(given)
    mistakes += options.check(given)
    known: dict[str, Columns] = {}
    if look and not mistakes:
        mistakes += files.check(given["streams"], folder, known)
    mistakes += columns.check(given["streams"], known)
    if not mistakes:
        mistakes += joins.check(given, known) if "join" in given else _query_mistakes(given, known)
    refuse(file, text, mistakes)
    return _pipeline(given, folder, Path(file).stem)


def _syntax(file: str, text: str, reason: str) -> PipelineError:
    found = re.search(r" \(at line (\d+), column (\d+)\)", reason)
    lines = text.splitlines() or [""]
    line, column = (int(found[1]), int(found[2])) if found else (len(lines), len(lines[-1]) + 1)
    what = re.sub(r" \(at .*\)$", "", reason)
    shown = lines[min(line, len(lines)) - 1]
    return PipelineError(
        f"{file}, line {line}: this is not TOML: {what}.\n  {shown}\n  {' ' * (column - 1)}^",
        hint=next((hint for start, hint in _SYNTAX.items() if what.startswith(start)), _SYNTAX[""]),
    )


_SYNTAX = {
    "Cannot overwrite": "a key may occur once in a table.",
    "Cannot declare": "a table may occur once in a file.",
    "Illegal character": "a string ends with a quote, on its line; one of several lines is in three quotes.",
    "Invalid value": 'a string is in quotes: path = "bids".',
    "": "texts stand in quotes, a table begins with [name], several lines of text with three quotes.",
}


def _filled(value: Any, environment: Mapping[str, str], path: KeyPath, unset: dict[KeyPath, str]) -> Any:
    """The value with `${NAME}` put in; variables that are not set go to `unset`."""
    if len(path) > DEEPEST:
        raise RecursionError
    if isinstance(value, dict):
        return {name: _filled(each, environment, (*path, name), unset) for name, each in value.items()}
    if isinstance(value, list):
        return [_filled(each, environment, (*path, n), unset) for n, each in enumerate(value)]
    if not isinstance(value, str):
        return value
    try:
        return secrets.filled(value, environment)
    except secrets.UnsetError as error:
        unset[path] = str(error)
        return value


def _first_paths(unset: Mapping[KeyPath, str]) -> dict[str, KeyPath]:
    return {name: path for path, name in reversed(list(unset.items()))}


def _unset(name: str, path: KeyPath, environment: Mapping[str, str]) -> Mistake:
    hint = did_you_mean(name, environment, "${{{}}}".format) or f"export {name}=… before the command."
    return Mistake(path, f"the environment has no variable `{name}`.", hint, value=True)


def _query_mistakes(given: dict[str, Any], known: dict[str, Columns]) -> Iterator[Mistake]:
    """Mistakes in the query, if the columns of all streams are known; else Spark checks it."""
    streams = given["streams"]
    if len(known) == len(streams):
        try:
            windows = {n: w for n, s in streams.items() if (w := _window(s.get("window"))) is not None}
            query = read_query(given["query"], {name: list(of) for name, of in known.items()}, windows)
            lower(given["query"], query, {i.name: DeclaredStream(streams[i.stream]["time"]) for i in query.inputs})
        except QueryError as error:
            what, _, hint = str(error).partition("\nHint: ")
            line = re.match(r"`query`, line (\d+), column \d+: ", what)
            what = what if line is None else "`query`: " + what[line.end() :]
            hint = hint or "see docs/cql.md for what a query may contain."
            yield QueryMistake(("query",), what, hint, line=1 if line is None else int(line[1]))


def _window(given: Any) -> Window | None:
    """The window of a stream, as the query parser takes it."""
    if isinstance(given, dict):
        return RowsWindow(given["rows"], given.get("per_key", False))
    return None if given is None else TimeWindow(parse(given, "window"))


def _pipeline(given: dict[str, Any], folder: Path, stem: str) -> Pipeline:
    session = dict(given.get("session", {}))
    session["packages"] = tuple(session.get("packages", ()))
    session["settings"] = _options(session)
    if "settings" in given.get("session", {}):
        session["settings"] = _options({"options": given["session"]["settings"]})
    return Pipeline(
        name=given.get("name", stem),
        checkpoint=_located(given["checkpoint"], folder),
        sources=tuple(_source(name, one, folder) for name, one in given["streams"].items()),
        sinks=tuple(_sink(name, one, folder) for name, one in given["sinks"].items()),
        query=given.get("query"),
        join=given.get("join"),
        trigger=given.get("trigger"),
        ends=given.get("ends", False),
        session=Session(**session),
    )


def _source(name: str, given: dict[str, Any], folder: Path) -> Source:
    fields = {**given, "name": name, "options": _options(given)}
    fields["select"] = tuple(_several(given.get("select", "*")))
    fields["punctuation"] = tuple(_several(given.get("punctuation", [])))
    if "path" in given and given["format"] in FILES:
        fields["path"] = _located(given["path"], folder)
    if columns.is_avro(given):
        fields["schema"] = _avro(given["schema"], folder)
    return Source(**fields)


def _sink(name: str, given: dict[str, Any], folder: Path) -> Sink:
    fields = {**given, "name": name, "options": _options(given)}
    if "path" in given and given["format"] in (*FILES, "delta"):
        fields["path"] = _located(given["path"], folder)
    if "schema" in given:
        fields["schema"] = _avro(given["schema"], folder)
    return Sink(**fields)


def _avro(schema: str, folder: Path) -> str:
    """An Avro schema: its JSON, or the file it stands in."""
    if schema.lstrip().startswith(("{", "[", '"')):
        return schema
    file = Path(_located(schema, folder))
    try:
        return file.read_text(encoding="utf-8")
    except OSError as error:
        raise PipelineError(
            f"the Avro schema {file} cannot be read: {error.strerror}.", hint="name an .avsc file."
        ) from None


def _several(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]


def _options(given: Mapping[str, Any]) -> dict[str, str]:
    """Options as strings, as Spark takes them."""
    booleans = {True: "true", False: "false"}
    return {n: booleans[v] if isinstance(v, bool) else str(v) for n, v in given.get("options", {}).items()}


def _located(path: str, folder: Path) -> str:
    return path if re.match(r"[A-Za-z][\w+.-]+:/", path) else str((folder / path).absolute())
