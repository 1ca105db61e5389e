"""Pipelines as data: what is read, where it stands, the messages of mistakes, and what no message shows."""

from __future__ import annotations

import json
import logging
import sys
import tomllib
from pathlib import Path

import pytest

from lab.query.pipeline_mistakes import CHANGES, ENVIRONMENT, FOLDERS, KAFKA, MESSAGES, all_messages, changed, message
from watersmeet.errors import PipelineError
from watersmeet.joins import REGISTRY
from watersmeet.pipelines import schema as words
from watersmeet.pipelines import secrets
from watersmeet.pipelines.loader import from_text, read
from watersmeet.pipelines.pipeline import Pipeline
from watersmeet.pipelines.toml_positions import position, spans

EXAMPLES = sorted((Path(__file__).parents[2] / "examples" / "pipelines").glob("*.toml"))


def pipeline(text: str, **environment: str) -> Pipeline:
    return from_text(text, "pipeline.toml", Path("/data"), ENVIRONMENT | environment)


def test_every_mistake_has_its_recorded_message() -> None:
    assert len(CHANGES) >= 20
    assert all_messages() == MESSAGES.read_text()


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda p: p.stem)
def test_the_examples_are_right(example: Path) -> None:
    assert len(read(example, ENVIRONMENT).sources) == 2


def test_what_is_read() -> None:
    read_one = pipeline(FOLDERS)
    auction, bid = read_one.sources
    assert read_one.name == "pipeline"
    assert read_one.checkpoint == "/data/out/checkpoint"
    assert (auction.path, auction.options) == ("/data/auctions", {"header": "true"})
    assert (auction.window, auction.delay, bid.delay) == ("12 hours", "0 seconds", "5 seconds")
    assert bid.punctuation == ({"when": "closed", "on": "item_id"},)
    assert read_one.join == {"on": "item_id", "how": "left"}
    assert read_one.formats == {"csv", "parquet"}
    assert pipeline(KAFKA).formats == {"kafka", "json"}


@pytest.mark.parametrize("ends", ['"left"', '"neither"', "true", "false"])
def test_the_ends_of_a_range_are_written_as_those_of_a_join(ends: str) -> None:
    on, low = 'on = "item_id" }', f'low = "item_id", closed = {ends} }}'
    assert on in FOLDERS
    (rule,) = pipeline(FOLDERS.replace(on, low)).sources[1].punctuation
    assert rule["closed"] == json.loads(ends)
    bounds = f'how = "left"\nbetween = ["0 seconds", "1 hour"]\nclosed = {ends}'
    lines = FOLDERS.replace('how = "left"', bounds).splitlines()
    assert pipeline("\n".join(line for line in lines if not line.startswith("window"))).join["closed"] == rule["closed"]


def test_paths_may_be_absolute_or_of_another_file_system() -> None:
    text = FOLDERS.replace('path = "auctions"', 'path = "s3a://house/auctions"').replace('"bids"', '"/srv/bids"')
    assert [source.path for source in pipeline(text).sources] == ["s3a://house/auctions", "/srv/bids"]


def test_a_file_that_is_not_there_is_reported_with_the_one_that_is(tmp_path: Path) -> None:
    (tmp_path / "join.toml").write_text(FOLDERS)
    with pytest.raises(PipelineError, match=r"cannot be read: No such file(.|\n)*did you mean .*join.toml"):
        read(tmp_path / "joyn.toml")


def test_variables_are_put_in_and_never_shown(caplog: pytest.LogCaptureFixture) -> None:
    text = changed(
        KAFKA, 'topic = "counts"', 'topic = "counts", "kafka.sasl.jaas.config" = "pw=${KAFKA_PASSWORD};$${x}"'
    )
    got = pipeline(text)
    assert got.sinks[0].options["kafka.sasl.jaas.config"] == "pw=correct horse;${x}"
    assert "correct horse" not in repr(got)
    assert secrets.hide("login with correct horse at 10.1.2.3:9092") == "login with ${KAFKA_PASSWORD} at ${BROKERS}"
    with pytest.raises(PipelineError) as refused:
        pipeline(text.replace('key = "item_id"', 'path = "${KAFKA_PASSWORD}"\nvalue = "${KAFKA_PASSWORD}"'))
    assert '`sinks.results.value` is "${KAFKA_PASSWORD}".' in str(refused.value)
    assert "correct horse" not in str(refused.value)
    record = logging.LogRecord("watersmeet", logging.INFO, "", 1, "got %s", ("correct horse",), None)
    assert secrets.Hiding().filter(record)
    assert record.getMessage() == "got ${KAFKA_PASSWORD}"
    try:
        raise RuntimeError("no login with correct horse")
    except RuntimeError:
        record = logging.LogRecord("watersmeet", logging.ERROR, "", 1, "it failed", (), sys.exc_info())
    assert secrets.Hiding().filter(record)
    shown = logging.Formatter().format(record)
    assert "RuntimeError: no login with ${KAFKA_PASSWORD}" in shown
    assert "correct horse" not in shown


def test_several_mistakes_are_reported_at_once_in_the_order_of_their_lines() -> None:
    text = changed(changed(FOLDERS, 'how = "left"', 'hwo = "left"'), 'delay = "5 seconds"', "delay = 5")
    complaint = message(text)
    assert complaint.index("line 20") < complaint.index("line 25")
    assert complaint.endswith("2 mistakes")


def test_what_a_punctuation_closes_is_a_column_of_the_stream() -> None:
    punctuation_line = 'on = "item_id" },'
    for right in (
        'on = { item_id = "kafka.key" } },',
        'on = ["ITEM_ID"] },',
        'on = "item_id", values = "array(item_id)" },',
        'on = "item_id", high = 5 },',
    ):
        first, _ = pipeline(changed(KAFKA, punctuation_line, right)).sources[1].punctuation
        assert "on" in first
    for wrong, punctuations in (
        ('on = "kafka.key" },', "there is no column `kafka.key`."),
        ('on = { item = "kafka.key" } },', "there is no column `item`."),
        ('on = { item_id = "prise" } },', "there is no column `prise`."),
        (
            "on = { item_id = 5 } },",
            "`streams.bid.punctuation[1].on.item_id` is a number; it is an expression in Spark SQL.",
        ),
        ("on = 5 },", "is a number; it is a column or several, or a table of columns and expressions."),
        ('values = "array(1)", low = 5 },', "one of `on`, `values`, `low` and `high` is what they close."),
    ):
        assert punctuations in message(changed(KAFKA, punctuation_line, wrong))


def test_a_value_stands_where_its_line_says() -> None:
    text = KAFKA + '\n[session]\nsettings.spark.cores = 4\npackages = [\n  "a:b:1", # why\n  "c:d:2",\n]\n'
    lines, found = text.splitlines(), spans(text)
    assert lines[found["streams", "bid", "time"].first - 1] == 'time = "bid_at"'
    assert lines[found["session", "settings", "spark", "cores"].first - 1] == "settings.spark.cores = 4"
    packages = found["session", "packages"]
    assert lines[packages.first - 1 : packages.last] == ["packages = [", '  "a:b:1", # why', '  "c:d:2",', "]"]
    assert found["query",].first == 2
    assert lines[found["query",].last - 1] == '"""'
    assert set(found) >= {("streams", "bid", "punctuation", 1, "heartbeat")}
    second = position(text, ("streams", "bid", "punctuation", 1, "heartbeat"))
    assert second.text.strip().startswith("{ heartbeat")
    assert second.text[second.start : second.end] == "heartbeat"


def test_the_table_around_stands_for_what_is_not_there() -> None:
    assert position(FOLDERS, ("streams", "bid", "nothing", "at", "all")).text == "[streams.bid]"
    assert position(FOLDERS, ("nothing",)).line == 1
    assert position("", ("nothing",)).line == 1


def test_more_streams_than_a_join_takes_are_counted() -> None:
    one = "\n[streams.s{0}]\nformat = 'csv'\npath = 's{0}'\ntime = 'at'\nwindow = '1 hour'\n"
    text = changed(FOLDERS, 'how = "left"', 'how = "inner"')
    assert "streams are joined; a join is of at most" in message(text + "".join(one.format(n) for n in range(100)))


def test_a_condition_of_right_columns_is_right() -> None:
    assert pipeline(changed(FOLDERS, 'how = "left"', 'how = "left"\nwhere = "price > 10 AND bid.closed"')).join


def test_every_operator_can_be_named() -> None:
    assert set(words.JOIN["algorithm"].among) == {"auto", *REGISTRY}


def test_both_texts_of_the_mistakes_are_right_themselves() -> None:
    for text in (FOLDERS, KAFKA):
        assert pipeline(text).sinks
        assert tomllib.loads(text)
