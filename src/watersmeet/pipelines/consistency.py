"""Checks across the keys of a pipeline, each of which is valid by itself."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from watersmeet.errors import suggestion
from watersmeet.joins.algorithm import MOST_STREAMS
from watersmeet.model import durations
from watersmeet.pipelines.diagnostics import Mistake
from watersmeet.pipelines.schema import FILES, RULES, TABLES
from watersmeet.pipelines.toml_positions import Path

#: Options without which Spark's Kafka connector does not start; one of each is needed.
_TOPICS = ("subscribe", "subscribePattern", "assign")
_SERVERS = "kafka.bootstrap.servers"
_LIKE_SERVERS = ("bootstrap.servers", "bootstrap.server", "bootstrap_servers", "servers", "brokers")
#: Keys that apply to messages only.
_MESSAGE_KEYS = {"value", "prefix_bytes", "malformed", "key", "headers"}


def check(given: dict[str, Any]) -> Iterator[Mistake]:
    """All mistakes across keys."""
    streams, sinks, join = given["streams"], given["sinks"], given.get("join")
    yield from _query_or_join(given)
    if len(streams) < 2:
        message = f"the pipeline has {len(streams)} stream; a join is of two or more."
        yield Mistake(("streams",), message, "add a table for the other one: [streams.NAME].")
    if not sinks:
        yield Mistake(("sinks",), "nothing is written anywhere.", "write [sinks.results] with a format and a path.")
    for name, stream in streams.items():
        yield from _stream(("streams", name), stream)
    for name, sink in sinks.items():
        yield from _sink(("sinks", name), sink)
    yield from _dead_letters(streams, sinks)
    if join is not None:
        yield from _join(join, streams)
        yield from _between(join, streams)
        yield from _unbounded(join, streams)
        for key in ("streams", "order"):
            for n, name in enumerate(join.get(key, ())):
                if name not in streams:
                    hint = suggestion(name, list(streams), "the streams are")
                    yield Mistake(("join", key, n), f"no stream is called `{name}`.", hint, True, name)
    yield from _paths(given)


def _join(join: dict[str, Any], streams: dict[str, Any]) -> Iterator[Mistake]:
    names, how = join.get("streams", list(streams)), join.get("how", "inner")
    if len(names) > 2 and how != "inner":
        message = f'`how` is "{how}", and {len(names)} streams are joined; which rows are unmatched is defined for two.'
        yield Mistake(("join", "how"), message, 'write how = "inner", or join two of them.', value=True)
    if len(names) > MOST_STREAMS:
        message = f"{len(names)} streams are joined; a join is of at most {MOST_STREAMS}."
        yield Mistake(("join",), message, "join some first, in a pipeline of their own.")
    for n, name in enumerate(names):
        if name in names[:n]:
            yield Mistake(("join", "streams", n), f"stream `{name}` is named twice.", "name it once.", True, name)
    if join.get("window") != "auto" and join.get("algorithm") != "wo_join":
        if "strategy" in join:
            message = "`strategy` is for joins that find by themselves what to keep; this one has windows."
            yield Mistake(("join", "strategy"), message, 'write window = "auto" in [join], or leave it out.')
        if isinstance(join.get("memory"), int):
            message = f"`memory` is {join['memory']}; a number alone could be bytes or megabytes."
            yield Mistake(("join", "memory"), message, 'write it with its unit, like "256 MB".', value=True)


def _between(join: dict[str, Any], streams: dict[str, Any]) -> Iterator[Mistake]:
    """Bounds between two streams that hold nothing, or stand beside windows."""
    if "between" not in join:
        if join.get("closed") in ("left", "neither"):
            message = f'`closed` is "{join["closed"]}", and the join has no `between`; the newest row is in its window.'
            hint = 'write "both" or "right", or between = ["-10 minutes", "10 minutes"].'
            yield Mistake(("join", "closed"), message, hint, value=True)
        return
    names = [name for name in join.get("streams", list(streams)) if name in streams]
    bounds = [durations.parse(bound, "between") for bound in join["between"]]
    if len(bounds) != 2 or bounds[0] > bounds[1]:
        message = "`between` is a lower and an upper bound, in this order."
        yield Mistake(("join", "between"), message, 'write between = ["-10 minutes", "1 hour"].', value=True)
    if len(names) > 2:
        message = f"`between` bounds the times of two streams, and {len(names)} are joined."
        yield Mistake(("join", "between"), message, "give the streams windows, or join two of them.")
    places: list[tuple[Path, dict[str, Any]]] = [(("join", "window"), join)]
    places += [(("streams", name, "window"), streams[name]) for name in names]
    for path, table in places:
        if "window" in table:
            message = "`window` and `between` are given; both say how far apart rows may be."
            yield Mistake(path, message, "leave one of them out.")


def _unbounded(join: dict[str, Any], streams: dict[str, Any]) -> Iterator[Mistake]:
    """Streams whose rows neither a window nor a punctuation evicts."""
    names = [name for name in join.get("streams", list(streams)) if name in streams]
    windows = {name: streams[name].get("window", join.get("window")) for name in names}
    if (
        join.get("allow_unbounded")
        or "between" in join
        or "auto" in windows.values()
        or join.get("algorithm") == "wo_join"
    ):
        return
    for name in names:
        others = [other for other in names if other != name]
        silent = [other for other in others if not streams[other].get("punctuation")]
        ends = not silent or any(isinstance(windows[o], str) for o in others if o not in silent)
        if windows[name] is None and not ends:
            why = " and ".join(f"`{other}`" for other in silent)
            message = f"stream `{name}` has no window, and {why} no punctuation; its rows would be kept for ever."
            hint = 'write window = "10 minutes", or allow_unbounded = true in [join].'
            yield Mistake(("streams", name), message, hint)


def _query_or_join(given: dict[str, Any]) -> Iterator[Mistake]:
    if "query" in given and "join" in given:
        yield Mistake(("join",), "the pipeline has both `query` and [join].", "keep one of them.")
    if "query" not in given and "join" not in given:
        hint = 'write [join] with on = "…", or query = """SELECT … FROM …""" before the first table.'
        yield Mistake((), "the pipeline has neither `query` nor [join].", hint)


def _stream(path: Path, stream: dict[str, Any]) -> Iterator[Mistake]:
    kind, options = stream["format"], stream.get("options", {})
    yield from _message_keys(path, stream)
    if kind in FILES and "path" not in stream:
        yield Mistake(path, f"a stream of {kind} files needs a `path`.", 'write path = "folder", where files arrive.')
    if kind == "kafka":
        yield from _servers(path, options)
        if not any(topic in options for topic in _TOPICS):
            hint = 'write options = { …, subscribe = "topic" }.'
            yield Mistake((*path, "options"), f"the options name no topic ({', '.join(_TOPICS)}).", hint)
        if stream.get("value", "json") != "text" and "schema" not in stream:
            hint = 'write schema = "id BIGINT, at TIMESTAMP"; of Avro, the name of an .avsc file.'
            yield Mistake(path, "messages do not name their columns: the stream needs a `schema`.", hint)
    if "prefix_bytes" in stream and stream.get("value") != "avro":
        yield Mistake(
            (*path, "prefix_bytes"), "only Avro values have a prefix.", 'leave it out, or write value = "avro".'
        )
    if "late_share" in stream and stream.get("delay") != "auto":
        hint = 'write delay = "auto" to have it measured, or leave `late_share` out.'
        yield Mistake((*path, "late_share"), "`late_share` is for a delay that is measured.", hint)
    rules = stream.get("punctuation", [])
    for n, rule in enumerate(rules if isinstance(rules, list) else [rules]):
        yield from _punctuation((*path, "punctuation", n) if isinstance(rules, list) else (*path, "punctuation"), rule)


def _punctuation(path: Path, rule: dict[str, Any]) -> Iterator[Mistake]:
    kinds = [key for key in rule if key in RULES]
    if len(kinds) != 1:
        message = "has no kind" if not kinds else f"is {' and '.join(kinds)} at once"
        yield Mistake(path, f"the punctuation {message}.", f"it is one of {', '.join(RULES)}.")
        return
    for key in rule:
        if key != kinds[0] and key not in RULES[kinds[0]]:
            takes = ", ".join(RULES[kinds[0]]) or "nothing else"
            yield Mistake((*path, key), f"`{key}` does not belong to `{kinds[0]}`.", f"`{kinds[0]}` takes {takes}.")
    ways = ("values" in rule) + ("low" in rule or "high" in rule)
    if kinds[0] == "when" and (ways > 1 or not (ways or "on" in rule)):
        message = "`when` selects punctuations, and one of `on`, `values`, `low` and `high` is what they close."
        yield Mistake(path, message, 'write { when = "closed", on = "item_id" }.')


def _sink(path: Path, sink: dict[str, Any]) -> Iterator[Mistake]:
    kind, options = sink["format"], sink.get("options", {})
    yield from _message_keys(path, sink)
    if kind in FILES and "path" not in sink:
        yield Mistake(path, f"a sink of {kind} files needs a `path`.", 'write path = "folder".')
    if kind in TABLES and "path" not in sink:
        named = '"folder"' if kind == "delta" else '"catalog.database.table"'
        yield Mistake(path, f"a sink of format {kind} needs the `path` of its table.", f"write path = {named}.")
    if kind == "kafka":
        yield from _servers(path, options)
        if "topic" not in options:
            wrong = "subscribe" in options
            hint = "`subscribe` is for reading; write `topic`." if wrong else 'write options = { …, topic = "…" }.'
            yield Mistake((*path, "options"), "the options name no `topic`.", hint)


def _dead_letters(streams: dict[str, Any], sinks: dict[str, Any]) -> Iterator[Mistake]:
    """`malformed = "sink"` and [sinks.malformed] need each other."""
    sending = [name for name, stream in streams.items() if stream.get("malformed") == "sink"]
    if sending and "malformed" not in sinks:
        hint = "write [sinks.malformed] with a format and a path."
        yield Mistake(
            ("streams", sending[0], "malformed"), "there is no sink for malformed messages.", hint, value=True
        )
    if not sending and "malformed" in sinks:
        hint = 'write malformed = "sink" in [streams.NAME], or leave this table out.'
        yield Mistake(("sinks", "malformed"), "no stream sends its malformed messages here.", hint)
    for name in sending:
        if streams[name].get("value") == "text":
            hint = "leave it out."
            message = "every message is a string: none is malformed."
            yield Mistake(("streams", name, "malformed"), message, hint, value=True)


def _servers(path: Path, options: dict[str, Any]) -> Iterator[Mistake]:
    if _SERVERS in options:
        return
    wrong = next((name for name in options if name.removeprefix("kafka.") in _LIKE_SERVERS), None)
    hint = f'write options = {{ "{_SERVERS}" = "${{BROKERS}}", … }}.'
    if wrong is not None:
        hint = f'`{wrong}` is called "{_SERVERS}" here; options of Kafka itself begin with "kafka.".'
    yield Mistake((*path, "options"), f"the options have no address of Kafka: `{_SERVERS}`.", hint)


def _message_keys(path: Path, table: dict[str, Any]) -> Iterator[Mistake]:
    if table["format"] == "kafka":
        return
    for key in sorted(_MESSAGE_KEYS & table.keys()):
        message = f'`{key}` is for messages of Kafka, and format is "{table["format"]}".'
        yield Mistake((*path, key), message, 'leave it out, or write format = "kafka".')


def _paths(given: dict[str, Any]) -> Iterator[Mistake]:
    """Sinks that write to the folder of a stream, of the checkpoint or of another sink."""
    taken = {s["path"].rstrip("/"): f"[streams.{n}] reads there" for n, s in given["streams"].items() if "path" in s}
    taken[given["checkpoint"].rstrip("/")] = "`checkpoint` is there"
    for name, sink in given["sinks"].items():
        where = sink.get("path", "").rstrip("/")
        if where and where in taken:
            hint = "give each a folder of its own."
            yield Mistake(("sinks", name, "path"), f'"{where}" is not free: {taken[where]}.', hint, value=True)
        taken.setdefault(where, f"[sinks.{name}] writes there")
