"""From a file to a pipeline. What is wrong with it is said, all of it at once, each mistake with its line."""

from __future__ import annotations

import os
import re
import tomllib
from collections.abc import Iterator, Mapping
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from watersmeet.errors import PipelineError, QueryError
from watersmeet.model.durations import parse
from watersmeet.model.windows import RowsWindow, TimeWindow, Window
from watersmeet.pipelines import checking, columns, rules, secrets
from watersmeet.pipelines.columns import Columns
from watersmeet.pipelines.mistakes import Mistake, QueryMistake, refuse
from watersmeet.pipelines.pipeline import Pipeline, Session, Sink, Source
from watersmeet.pipelines.places import Path as Place
from watersmeet.pipelines.words import FILES, PIPELINE
from watersmeet.query.lowering import Known, lower
from watersmeet.query.names import near
from watersmeet.query.reader import read as read_query


def read(file: str | Path, environment: Mapping[str, str] = os.environ) -> Pipeline:
    """The pipeline in a file; paths in it are relative to the file's folder."""
    file = Path(file)
    try:
        text = file.read_text(encoding="utf-8")
    except OSError as error:
        found = [p.name for p in file.parent.glob("*.toml")] if file.parent.is_dir() else []
        meant = get_close_matches(file.name, found, 1)
        hint = f"did you mean {file.parent / meant[0]}?" if meant else "docs/pipelines.md has one to begin with."
        raise PipelineError(f"{file} cannot be read: {error.strerror}.", hint=hint) from None
    except UnicodeDecodeError:
        raise PipelineError(f"{file} is not a text in UTF-8.", hint="save it as UTF-8.") from None
    return from_text(text, str(file), file.parent, environment)


def from_text(text: str, file: str, folder: Path, environment: Mapping[str, str]) -> Pipeline:
    """The pipeline in a text; `file` is what messages call it."""
    try:
        raw = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise _syntax(file, text, str(error)) from None
    unset: dict[Place, str] = {}
    given = _filled(raw, environment, (), unset)
    mistakes = [_unset(name, path, environment) for name, path in _first_places(unset).items()]
    mistakes += (mistake for mistake in checking.check(given, PIPELINE) if mistake.path not in unset)
    refuse(file, text, mistakes)  # the rules below take the words for granted
    mistakes += rules.check(given)
    known: dict[str, Columns] = {}
    mistakes += columns.check(given["streams"], known)
    if not mistakes:
        mistakes += _asked(given, known)
    refuse(file, text, mistakes)
    return _pipeline(given, folder, Path(file).stem)


def _syntax(file: str, text: str, said: str) -> PipelineError:
    found = re.search(r" \(at line (\d+), column (\d+)\)", said)
    lines = text.splitlines() or [""]
    line, column = (int(found[1]), int(found[2])) if found else (len(lines), len(lines[-1]) + 1)
    what = re.sub(r" \(at .*\)$", "", said)
    shown = lines[min(line, len(lines)) - 1]
    return PipelineError(
        f"{file}, line {line}: this is not TOML: {what}.\n  {shown}\n  {' ' * (column - 1)}^",
        hint=next((hint for words, hint in _SYNTAX.items() if what.startswith(words)), _SYNTAX[""]),
    )


_SYNTAX = {
    "Cannot overwrite": "a word stands once in a table.",
    "Cannot declare": "a table stands once in a file.",
    "Illegal character": "a text ends with a quote, on its line; several lines of text stand in three quotes.",
    "Invalid value": 'a text stands in quotes: path = "bids".',
    "": "texts stand in quotes, a table begins with [name], several lines of text with three quotes.",
}


def _filled(value: Any, environment: Mapping[str, str], path: Place, unset: dict[Place, str]) -> Any:
    """The value with `${NAME}` put in; variables that are not set go to `unset`."""
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


def _first_places(unset: Mapping[Place, str]) -> dict[str, Place]:
    return {name: path for path, name in reversed(list(unset.items()))}


def _unset(name: str, path: Place, environment: Mapping[str, str]) -> Mistake:
    meant = get_close_matches(name, list(environment), 1)
    hint = f"did you mean ${{{meant[0]}}}?" if meant else f"export {name}=… before the command."
    return Mistake(path, f"the environment has no variable `{name}`.", hint, value=True)


def _asked(given: dict[str, Any], known: dict[str, Columns]) -> Iterator[Mistake]:
    """Mistakes of the query, or of the join, about columns; where some stream's columns are not known, Spark says."""
    streams = given["streams"]
    join = given.get("join")
    if join is not None:
        names = join.get("streams", list(streams))
        for text in [join["on"]] if isinstance(join["on"], str) else join["on"]:
            if "=" in text:
                continue
            for name in names:
                if name in known and text not in known[name]:
                    hint = near(text, list(known[name]), "its columns are")
                    yield Mistake(("join", "on"), f"stream `{name}` has no column `{text}`.", hint, value=True)
    elif len(known) == len(streams):
        try:
            windows = {n: w for n, s in streams.items() if (w := _window(s.get("window"))) is not None}
            asked = read_query(given["query"], {name: list(of) for name, of in known.items()}, windows)
            lower(given["query"], asked, {i.name: Known(streams[i.stream]["time"]) for i in asked.inputs})
        except QueryError as error:
            what, _, hint = str(error).partition("\nHint: ")
            line = re.match(r"`query`, line (\d+), column \d+: ", what)
            what = what if line is None else "`query`: " + what[line.end() :]
            hint = hint or "docs/cql.md says what a query may say."
            yield QueryMistake(("query",), what, hint, line=1 if line is None else int(line[1]))


def _window(given: Any) -> Window | None:
    """The window of a stream, as far as the reading of a query asks for it."""
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
        session=Session(**session),
    )


def _source(name: str, given: dict[str, Any], folder: Path) -> Source:
    told = {**given, "name": name, "options": _options(given)}
    told["select"] = tuple(_several(given.get("select", "*")))
    told["punctuation"] = tuple(_several(given.get("punctuation", [])))
    if "path" in given and given["format"] in FILES:
        told["path"] = _located(given["path"], folder)
    if columns.is_avro(given):
        told["schema"] = _avro(given["schema"], folder)
    return Source(**told)


def _sink(name: str, given: dict[str, Any], folder: Path) -> Sink:
    told = {**given, "name": name, "options": _options(given)}
    if "path" in given and given["format"] in FILES:
        told["path"] = _located(given["path"], folder)
    if "schema" in given:
        told["schema"] = _avro(given["schema"], folder)
    return Sink(**told)


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
    """Options as Spark takes them: texts."""
    spell = {True: "true", False: "false"}
    return {n: spell[v] if isinstance(v, bool) else str(v) for n, v in given.get("options", {}).items()}


def _located(path: str, folder: Path) -> str:
    return path if "://" in path else str((folder / path).absolute())
