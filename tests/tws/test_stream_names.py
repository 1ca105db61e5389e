"""What streams are called, and where a query writes: both known before anything runs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from watersmeet.errors import QueryError
from watersmeet.spark.checkpoints.result_folder import literal, location, refuse_shared
from watersmeet.spark.progress.counters import counters, numbered, unnumbered
from watersmeet.spark.streams import Stream, Upstream, named, stream_label


def stream(name: str | None, *, of: str | None = None) -> Stream:
    nothing: Any = None
    upstream = None if of is None else Upstream(("k",), (0,), of)
    return Stream(nothing, name, "at", None, 0, upstream=upstream)


@pytest.mark.parametrize(
    ("given", "called"),
    [
        ([stream(None), stream(None)], ["stream1", "stream2"]),
        ([stream("a"), stream(None), stream("c")], ["a", "stream2", "c"]),
        ([stream(None), stream("stream1")], ["stream1_", "stream1"]),
        ([stream(None), stream("stream1"), stream("stream1_")], ["stream1__", "stream1", "stream1_"]),
        ([stream(None, of="a_b"), stream(None)], ["a_b", "stream2"]),
        ([stream("x", of="a_b"), stream(None)], ["x", "stream2"]),
        (
            [stream(None, of="stream1_stream2"), stream(None, of="stream1_stream2")],
            ["stream1_stream2", "stream1_stream2_2"],
        ),
        ([stream("a"), stream("a")], ["a", "a"]),  # which `join` refuses
    ],
)
def test_streams_are_called_by_their_places(given: list[Stream], called: list[str]) -> None:
    for _ in range(2):
        assert [s.name for s in named(given)] == called


def test_messages_speak_of_a_stream_without_a_name() -> None:
    assert stream_label(None) == "the stream"
    assert stream_label("bids") == "stream `bids`"


@pytest.mark.parametrize("url", ["s3a://bucket/out", "hdfs://host:9000/out", "file:///out", "out/results", "/out"])
def test_places_stay_as_they_are(url: str) -> None:
    assert location(url, "results") == url
    assert location(f"{url}/", "results") == url


def test_a_path_that_has_lost_a_slash_is_refused() -> None:
    with pytest.raises(QueryError) as caught:
        location(Path("s3a://bucket/out"), "results")
    assert str(caught.value) == (
        "`results` is the Path s3a:/bucket/out, which has lost a slash of its URL.\n"
        'Hint: give it as a text: results="s3a://bucket/out".'
    )


@pytest.mark.parametrize(
    ("one", "other"), [("out", "out"), ("out", "./out"), ("/o", "file:///o"), ("/o", "file:/o"), ("s3a://b", "s3a://b")]
)
def test_one_folder_for_two_outputs_is_refused(one: str, other: str) -> None:
    with pytest.raises(QueryError) as caught:
        refuse_shared({"checkpoint": "c", "results": one, "late": other})
    assert str(caught.value) == (
        f"`late` and `results` are one folder, {other}; each would replace what the other writes.\n"
        f"Hint: give each a folder of its own, e.g. {other}/late and {other}/results."
    )


def test_folders_of_their_own_are_not_refused() -> None:
    refuse_shared({"checkpoint": "c", "results": "out/results", "late": "out/late", "punctuations": "s3a://out/late"})


def test_a_place_is_no_pattern() -> None:
    assert literal("/a [b]/{c}*?") == r"/a \[b\]/\{c\}\*\?"


def test_observed_metrics_are_numbered_and_found_without_their_number() -> None:
    first, second = numbered("watersmeet"), numbered("watersmeet")
    assert first != second
    assert unnumbered(first) == unnumbered(second) == "watersmeet"
    assert unnumbered(numbered("watersmeet_a#b")) == "watersmeet_a#b"
    assert [unnumbered(name) for name in ("watersmeet", "watersmeet_malformed_bid", "other#1", "watersmeet#x")] == [
        None
    ] * 4


def test_several_joins_are_summed_and_told_apart_by_their_streams() -> None:
    def shard_report(shard: int, rows: int, *streams: str) -> dict[str, Any]:
        found = ", ".join(f'{{"name": "{name}"}}' for name in streams)
        return {"shards": [f'{{"shard": {shard}, "rows_in": {rows}, "streams": [{found}]}}']}

    observed = {
        "watersmeet#1": shard_report(0, 5, "a", "b"),
        "watersmeet#2": shard_report(0, 7, "c", "d"),
        "watersmeet_groups#3": shard_report(0, 100),
        "watersmeet_malformed_a": {"messages": []},
    }
    progress = {"observedMetrics": observed}
    assert counters(progress)["rows_in"] == 12
    assert counters(progress, streams=["c", "d"])["rows_in"] == 7
    assert counters(progress, streams=["e"]) == {}
    assert counters(progress, metrics="watersmeet#1")["rows_in"] == 5
    assert counters(progress, metrics="watersmeet_groups")["rows_in"] == 100
