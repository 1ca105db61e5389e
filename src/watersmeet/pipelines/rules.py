"""What must hold between the words of a pipeline, each of which is right by itself."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from watersmeet.pipelines.mistakes import Mistake
from watersmeet.pipelines.places import Path
from watersmeet.pipelines.words import FILES, SIGNS
from watersmeet.query.names import near

#: Options without which Spark's Kafka connector does not start; one of each is needed.
_TOPICS = ("subscribe", "subscribePattern", "assign")
_SERVERS = "kafka.bootstrap.servers"
_LIKE_SERVERS = ("bootstrap.servers", "bootstrap.server", "bootstrap_servers", "servers", "brokers")
#: Words that speak of messages.
_OF_MESSAGES = {"value", "prefix_bytes", "malformed", "key", "headers"}


def check(given: dict[str, Any]) -> Iterator[Mistake]:
    """All mistakes between words."""
    streams, sinks, join = given["streams"], given["sinks"], given.get("join")
    yield from _asked(given)
    if len(streams) < 2:
        said = f"the pipeline has {len(streams)} stream; a join is of two or more."
        yield Mistake(("streams",), said, "add a table for the other one: [streams.NAME].")
    if not sinks:
        yield Mistake(("sinks",), "nothing is written anywhere.", "write [sinks.results] with a format and a path.")
    for name, stream in streams.items():
        yield from _stream(("streams", name), stream)
    for name, sink in sinks.items():
        yield from _sink(("sinks", name), sink)
    if join is not None:
        for word in ("streams", "order"):
            for n, name in enumerate(join.get(word, ())):
                if name not in streams:
                    hint = near(name, list(streams), "the streams are")
                    yield Mistake(("join", word, n), f"no stream is called `{name}`.", hint, True, name)
    yield from _paths(given)


def _asked(given: dict[str, Any]) -> Iterator[Mistake]:
    if "query" in given and "join" in given:
        yield Mistake(("join",), "the pipeline has both `query` and [join].", "keep one of them.")
    if "query" not in given and "join" not in given:
        hint = 'write [join] with on = "…", or query = """SELECT … FROM …""" before the first table.'
        yield Mistake((), "the pipeline says neither `query` nor [join].", hint)


def _stream(path: Path, stream: dict[str, Any]) -> Iterator[Mistake]:
    kind, options = stream["format"], stream.get("options", {})
    yield from _words_of_messages(path, stream)
    if kind in FILES and "path" not in stream:
        yield Mistake(path, f"a stream of {kind} files needs a `path`.", 'write path = "folder", where files arrive.')
    if kind == "kafka":
        yield from _servers(path, options)
        if not any(topic in options for topic in _TOPICS):
            hint = 'write options = { …, subscribe = "topic" }.'
            yield Mistake((*path, "options"), f"the options name no topic ({', '.join(_TOPICS)}).", hint)
        if stream.get("value", "json") != "text" and "schema" not in stream:
            hint = 'write schema = "id BIGINT, at TIMESTAMP"; of Avro, the name of an .avsc file.'
            yield Mistake(path, "messages say nothing of their columns: the stream needs a `schema`.", hint)
    if "prefix_bytes" in stream and stream.get("value") != "avro":
        yield Mistake(
            (*path, "prefix_bytes"), "only Avro values have a prefix.", 'leave it out, or write value = "avro".'
        )
    signs = stream.get("punctuation", [])
    for n, sign in enumerate(signs if isinstance(signs, list) else [signs]):
        yield from _sign((*path, "punctuation", n) if isinstance(signs, list) else (*path, "punctuation"), sign)


def _sign(path: Path, sign: dict[str, Any]) -> Iterator[Mistake]:
    kinds = [word for word in sign if word in SIGNS]
    if len(kinds) != 1:
        said = "says nothing of where it comes from" if not kinds else f"is {' and '.join(kinds)} at once"
        yield Mistake(path, f"the punctuation {said}.", f"it is one of {', '.join(SIGNS)}.")
        return
    for word in sign:
        if word != kinds[0] and word not in SIGNS[kinds[0]]:
            takes = ", ".join(SIGNS[kinds[0]]) or "nothing else"
            yield Mistake((*path, word), f"`{word}` does not belong to `{kinds[0]}`.", f"`{kinds[0]}` takes {takes}.")
    ways = ("on" in sign) + ("values" in sign) + ("low" in sign or "high" in sign)
    if kinds[0] == "when" and ways != 1:
        said = "`when` says which rows are punctuations, and one of `on`, `values`, `low` and `high` what they close."
        yield Mistake(path, said, 'write { when = "closed", on = "item_id" }.')


def _sink(path: Path, sink: dict[str, Any]) -> Iterator[Mistake]:
    kind, options = sink["format"], sink.get("options", {})
    yield from _words_of_messages(path, sink)
    if kind in FILES and "path" not in sink:
        yield Mistake(path, f"a sink of {kind} files needs a `path`.", 'write path = "folder".')
    if kind == "kafka":
        yield from _servers(path, options)
        if "topic" not in options:
            wrong = "subscribe" in options
            hint = "`subscribe` is for reading; write `topic`." if wrong else 'write options = { …, topic = "…" }.'
            yield Mistake((*path, "options"), "the options name no `topic`.", hint)


def _servers(path: Path, options: dict[str, Any]) -> Iterator[Mistake]:
    if _SERVERS in options:
        return
    wrong = next((name for name in options if name.removeprefix("kafka.") in _LIKE_SERVERS), None)
    hint = f'write options = {{ "{_SERVERS}" = "${{BROKERS}}", … }}.'
    if wrong is not None:
        hint = f'`{wrong}` is called "{_SERVERS}" here; what Kafka itself is told begins with "kafka.".'
    yield Mistake((*path, "options"), f"the options do not say where Kafka is: `{_SERVERS}`.", hint)


def _words_of_messages(path: Path, table: dict[str, Any]) -> Iterator[Mistake]:
    if table["format"] == "kafka":
        return
    for word in sorted(_OF_MESSAGES & table.keys()):
        said = f'`{word}` speaks of messages, and format is "{table["format"]}".'
        yield Mistake((*path, word), said, 'leave it out, or write format = "kafka".')


def _paths(given: dict[str, Any]) -> Iterator[Mistake]:
    """Nothing is written where something is read, or twice to one place."""
    taken = {s["path"].rstrip("/"): f"[streams.{n}] reads there" for n, s in given["streams"].items() if "path" in s}
    taken[given["checkpoint"].rstrip("/")] = "`checkpoint` is there"
    for name, sink in given["sinks"].items():
        where = sink.get("path", "").rstrip("/")
        if where and where in taken:
            hint = "give each a folder of its own."
            yield Mistake(("sinks", name, "path"), f'"{where}" is not free: {taken[where]}.', hint, value=True)
        taken.setdefault(where, f"[sinks.{name}] writes there")
