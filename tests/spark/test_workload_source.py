"""The Spark source delivers exactly the generator's rows, in any number of batches and after a restart."""

from math import inf
from types import SimpleNamespace

import pytest
from pyspark.errors import AnalysisException

from watersmeet.errors import QueryError
from watersmeet.spark import workload_source
from watersmeet.spark.runtime.spark_versions import ReadAllAvailable, ReadMaxRows
from watersmeet.spark.workload_source import Interval, SourceOptions, StreamReader
from watersmeet.workload import SECOND, STREAMS

BIDS = {"rate": "500", "seed": "3", "in_flight": "20", "delay": "0.5", "lost": "0.2"}


def reader(**options):
    return StreamReader(SourceOptions.read({"workload": "left", "rate": "100", **options}))


class Clock:
    """Stands in for `time.monotonic`."""

    def __init__(self):
        self.now = 100.0

    def __call__(self):
        return self.now


@pytest.fixture
def clock(monkeypatch):
    clock = Clock()
    monkeypatch.setattr(workload_source.time, "monotonic", clock)
    return clock


def test_stream_time_follows_the_clock(clock):
    stream = reader(speed="2")
    assert stream.latestOffset({"micros": 0}, ReadAllAvailable()) == {"micros": 0}
    clock.now += 1.5
    assert stream.latestOffset({"micros": 0}, ReadAllAvailable()) == {"micros": 3 * SECOND}


def test_a_restarted_stream_goes_on_from_its_offset(clock):
    stream = reader()
    assert stream.latestOffset({"micros": 7 * SECOND}, ReadAllAvailable()) == {"micros": 7 * SECOND}
    clock.now += 1
    assert stream.latestOffset({"micros": 7 * SECOND}, ReadAllAvailable()) == {"micros": 8 * SECOND}


def test_the_stream_ends(clock):
    stream = reader(seconds="2")
    stream.latestOffset({"micros": 0}, ReadAllAvailable())
    clock.now += 60
    assert stream.latestOffset({"micros": 0}, ReadAllAvailable()) == {"micros": 2 * SECOND}
    assert stream.latestOffset({"micros": 2 * SECOND}, ReadAllAvailable()) == {"micros": 2 * SECOND}


def test_batches_are_cut_alike_whatever_the_clock_says(clock):
    stream = reader(seconds="2.5", batch_seconds="1")
    limit = stream.getDefaultReadLimit()
    assert limit == ReadMaxRows(100)
    ends = []
    for pause in (0, 0.9, 0.2, 5, 0):
        clock.now += pause
        ends.append(stream.latestOffset({"micros": ends[-1] if ends else 0}, limit)["micros"])
    assert ends == [SECOND, SECOND, 2 * SECOND, 5 * SECOND // 2, 5 * SECOND // 2]


def test_a_batch_may_be_given_in_rows(clock):
    stream = reader(rows_per_batch="250", speed="inf")
    limit = stream.getDefaultReadLimit()
    assert limit == ReadMaxRows(250)
    assert stream.latestOffset({"micros": SECOND}, limit) == {"micros": SECOND + 5 * SECOND // 2}


def test_a_workload_that_ends_ends_the_stream():
    scrambled = {"workload": "scrambled", "length": "4"}
    assert SourceOptions.read(scrambled).end == 4 * SECOND
    assert SourceOptions.read({**scrambled, "seconds": "3"}).end == 3 * SECOND
    assert SourceOptions.read({**scrambled, "seconds": "5"}).end == 4 * SECOND


def test_a_limit_is_ignored_where_spark_wants_everything(clock):
    stream = reader(seconds="9", batch_seconds="1", speed="inf")
    assert stream.latestOffset({"micros": 0}, ReadAllAvailable()) == {"micros": 9 * SECOND}


def test_without_a_limit_a_batch_takes_all():
    assert reader().getDefaultReadLimit() == ReadAllAvailable()


def test_partitions_cover_the_interval_once():
    assert reader(partitions="3").partitions({"micros": 10}, {"micros": 20}) == [
        Interval(10, 13),
        Interval(13, 16),
        Interval(16, 20),
    ]
    assert reader(partitions="3").partitions({"micros": 10}, {"micros": 10}) == []
    assert reader(partitions="3").partitions({"micros": 10}, {"micros": 11}) == [Interval(10, 11)]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"workload": "bits"}, "option `workload` is 'bits'.\nHint: it is one of auctions, bids"),
        ({"workload": "bids", "partitions": "1.5"}, "option `partitions` is '1.5'; it must be a positive whole number"),
        ({"workload": "bids", "speed": "0"}, "option `speed` is '0'; it must be a positive number"),
        ({"workload": "bids", "seconds": "soon"}, "option `seconds` is 'soon'; it must be a positive number"),
        ({"workload": "bids", "spead": "1"}, "no option `spead`"),
        ({"workload": "bids", "rows_per_batch": "0"}, "option `rows_per_batch` is '0'; it must be a positive number"),
        (
            {"workload": "bids", "rows_per_batch": "10", "batch_seconds": "1"},
            "options `batch_seconds` and `rows_per_batch` both set how long a batch is",
        ),
    ],
)
def test_wrong_options_are_refused(options, message):
    with pytest.raises(QueryError, match=message):
        SourceOptions.read(options)


def test_endless_batches_are_refused():
    with pytest.raises(QueryError, match="the stream has no end, and so has a batch"):
        reader(speed="inf").latestOffset({"micros": 0}, ReadAllAvailable())
    with pytest.raises(QueryError, match="trigger availableNow needs an end of the stream"):
        reader().prepareForTriggerAvailableNow()
    assert SourceOptions.read({"workload": "left"}).end == inf


def sorted_rows(table, schema):
    return table.cast(schema).sort_by([(name, "ascending") for name in schema.names])


#: A workload of each kind, with options under which three seconds have some hundred rows.
EVERY = {
    "bids": BIDS,
    "left": {"rate": "200"},
    "wide_right": {"rate": "200"},
    "nexmark_persons": {"rate": "10000", "seed": "1"},
    "nexmark_auctions": {"rate": "5000", "seed": "2"},
    "nexmark_bids": {"rate": "500", "seed": "3", "in_flight": "30"},
    "punctuated": {"pattern": "punct-random-20-40", "rate": "200", "seed": "4"},
    "several": {"rate": "200", "seed": "6", "stream": "2"},
    "scrambled": {"scrambling": "30", "rate": "200", "seed": "5", "length": "60"},
}


#: Each needs two starts of a query; the others are those of the longer tests.
FIRST = ("nexmark_bids", "punctuated")


@pytest.mark.spark
@pytest.mark.parametrize("workload", [w if w in FIRST else pytest.param(w, marks=pytest.mark.more) for w in EVERY])
def test_a_query_that_starts_again_reads_the_rest(spark, tmp_path, workload):
    """The second start has another number of partitions, and offsets in the checkpoint to go on from."""

    def run(seconds, partitions):
        stream = spark.readStream.format("watersmeet").options(workload=workload, **EVERY[workload])
        query = (
            stream.options(seconds=seconds, partitions=partitions, batch_seconds="1.5")
            .load()
            .writeStream.format("parquet")
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .trigger(availableNow=True)
            .start(str(tmp_path / "rows"))
        )
        query.awaitTermination()
        return [progress.numInputRows for progress in query.recentProgress if progress.numInputRows]

    assert len(run(2, 1)) == 2
    assert len(run(3, 3)) == 1
    read = spark.read.parquet(str(tmp_path / "rows")).toArrow()
    expected = STREAMS[workload](EVERY[workload]).table(0, 3 * SECOND)
    assert expected.num_rows > 100
    assert sorted_rows(read, expected.schema).equals(sorted_rows(expected, expected.schema))


@pytest.mark.spark
def test_a_batch_query_sees_the_whole_stream(spark):
    read = spark.read.format("watersmeet").options(workload="nexmark_bids", seconds="2", partitions="3", rate="2000")
    expected = STREAMS["nexmark_bids"]({"rate": "2000"}).table(0, 2 * SECOND)
    assert sorted_rows(read.load().toArrow(), expected.schema).equals(sorted_rows(expected, expected.schema))


@pytest.mark.spark
def test_wrong_options_are_reported_by_spark(spark):
    with pytest.raises(AnalysisException, match="option `partitions` is '0'; it must be a positive whole number"):
        spark.readStream.format("watersmeet").options(workload="bids", partitions="0").load()


def refusing(condition):
    def register(source):
        raise AnalysisException("no", errorClass=condition, messageParameters={})

    return SimpleNamespace(dataSource=SimpleNamespace(register=register))


def test_a_format_that_spark_found_need_not_be_registered():
    workload_source.register(refusing("DATA_SOURCE_ALREADY_EXISTS"))


def test_another_refusal_to_register_is_raised():
    with pytest.raises(AnalysisException):
        workload_source.register(refusing("DATA_SOURCE_NOT_EXIST"))
