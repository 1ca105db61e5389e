"""The Spark source delivers exactly the generator's rows, in any number of batches and after a restart."""

from math import inf

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows

from watersmeet.errors import QueryError
from watersmeet.spark import source
from watersmeet.spark.source import Interval, SourceOptions, StreamReader
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
    monkeypatch.setattr(source.time, "monotonic", clock)
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


@pytest.mark.spark
def test_a_query_that_starts_again_reads_the_rest(spark, tmp_path):
    source.register(spark)

    def run(seconds):
        bids = spark.readStream.format("watersmeet").options(workload="bids", seconds=seconds, **BIDS)
        query = (
            bids.option("batch_seconds", "2")
            .load()
            .writeStream.format("parquet")
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .trigger(availableNow=True)
            .start(str(tmp_path / "rows"))
        )
        query.awaitTermination()
        return [progress.numInputRows for progress in query.recentProgress if progress.numInputRows]

    assert len(run(3)) == 2
    assert len(run(5)) == 1
    read = spark.read.parquet(str(tmp_path / "rows")).toArrow()
    expected = STREAMS["bids"](BIDS).table(0, 5 * SECOND)
    order = [("bid_at", "ascending"), ("item_id", "ascending"), ("price", "ascending")]
    assert read.cast(expected.schema).sort_by(order).equals(expected.sort_by(order))


@pytest.mark.spark
def test_a_batch_query_sees_the_whole_stream(spark):
    source.register(spark)
    auctions = spark.read.format("watersmeet").options(workload="auctions", seconds="4", **BIDS).load()
    assert auctions.count() == STREAMS["auctions"](BIDS).table(0, 4 * SECOND).num_rows
