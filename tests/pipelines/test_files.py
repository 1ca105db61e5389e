"""What a pipeline's folders and files tell before Spark is started: that they are there, and their columns."""

from __future__ import annotations

import gzip
from datetime import datetime
from pathlib import Path

import pyarrow as pa
import pytest
from pyarrow import orc, parquet

from watersmeet.errors import PipelineError
from watersmeet.pipelines.loader import read

PIPELINE = """\
checkpoint = "out/checkpoint"

[streams.auction]
format = "csv"
path = "auctions"
options = { header = true }
time = "opened_at"
window = "12 hours"

[streams.bid]
format = "parquet"
path = "bids"
time = "bid_at"
window = "12 hours"

[join]
on = "item_id"

[sinks.results]
format = "parquet"
path = "out/results"
"""
AUCTIONS = "item_id,opened_at,title\n1,2026-05-01T10:00:00,teapot\n"
AT = datetime(2026, 5, 1)
BIDS = pa.table({"item_id": [1], "bid_at": pa.array([AT], pa.timestamp("us")), "price": [1.5]})


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name in ("auctions", "bids"):
        (tmp_path / name).mkdir()
    (tmp_path / "auctions" / "1.csv").write_text(AUCTIONS)
    parquet.write_table(BIDS, tmp_path / "bids" / "1.parquet")
    return tmp_path


def mistakes_in(folder: Path, what: str = "", instead: str = "") -> str:
    """The mistakes of the pipeline with a change; nothing if it is right."""
    assert not what or PIPELINE.count(what) == 1
    (folder / "join.toml").write_text(PIPELINE.replace(what, instead) if what else PIPELINE)
    try:
        read(folder / "join.toml")
    except PipelineError as error:
        return str(error)
    return ""


def test_files_that_fit_are_right(folder: Path) -> None:
    assert mistakes_in(folder) == ""


@pytest.mark.parametrize(
    ("what", "instead", "expected"),
    [
        ('path = "auctions"', 'path = "auction"', 'the folder "auction" is not there.'),
        ('path = "auctions"', 'path = "auction*s/none-*"', 'the folder "auction*s/none-*" is not there.'),
        ('time = "opened_at"', 'time = "open_at"', "there is no column `open_at`."),
        ('time = "opened_at"', 'time = "item_id"', "`item_id` is BIGINT; an event time is a TIMESTAMP."),
        ('time = "bid_at"', 'time = "price"', "`price` is DOUBLE; an event time is a TIMESTAMP."),
        ('on = "item_id"', 'on = "item"', "stream `bid` has no column `item`."),
        ("{ header = true }", "{ header = true }\nselect = 'titel AS t'", "there is no column `titel`."),
        ("options = { header = true }\n", "", "there is no column `opened_at`."),
        ('time = "bid_at"', 'time = "bid_at"\npunctuation = { unique = "item" }', "there is no column `item`."),
    ],
)
def test_what_the_files_contradict_is_found(folder: Path, what: str, instead: str, expected: str) -> None:
    assert expected in mistakes_in(folder, what, instead)


def test_a_folder_like_it_is_named(folder: Path) -> None:
    assert "Hint: did you mean `auctions`?" in mistakes_in(folder, 'path = "auctions"', 'path = "auction"')


def test_without_a_schema_a_file_is_needed_and_with_one_it_is_not(folder: Path) -> None:
    (folder / "auctions" / "1.csv").rename(folder / "auctions" / "_1.csv")  # which is not for readers
    assert 'the stream has no `schema`, and "auctions" has no file to infer it from.' in mistakes_in(folder)
    schema = 'schema = "item_id BIGINT, opened_at TIMESTAMP"\noptions = { header = true }'
    assert mistakes_in(folder, "options = { header = true }", schema) == ""


def test_a_query_is_checked_against_the_columns_of_the_files(folder: Path) -> None:
    query = 'query = "SELECT A.titel FROM auction A, bid B WHERE A.item_id = B.item_id"\n[streams.auction]'
    text = PIPELINE.replace('[join]\non = "item_id"\n', "").replace("[streams.auction]", query)
    (folder / "join.toml").write_text(text)
    with pytest.raises(PipelineError, match=r"stream `A` has no column `titel`(.|\n)*did you mean `title`"):
        read(folder / "join.toml")


def test_keys_of_types_that_cannot_be_compared_are_found(folder: Path) -> None:
    text = pa.table({"item_id": ["1"], "opened_at": pa.array([AT], pa.timestamp("us"))})
    (folder / "texts").mkdir()
    parquet.write_table(text, folder / "texts" / "1.parquet")
    change = 'format = "csv"\npath = "auctions"\noptions = { header = true }'
    found = mistakes_in(folder, change, 'format = "parquet"\npath = "texts"')
    assert "`item_id` is STRING in `auction`, BIGINT in `bid`" in found


def test_a_time_of_a_csv_file_is_spark_s_to_read(folder: Path) -> None:
    for text in ("2026-5-1 10:00", "yesterday", "2026-05-01T10:00:00+02:00", ""):
        (folder / "auctions" / "1.csv").write_text(f"item_id,opened_at,title\n1,{text},teapot\n")
        assert mistakes_in(folder) == ""
    (folder / "auctions" / "1.csv").write_text("item_id,opened_at,title\n1,20260501100000,teapot\n")
    assert "`opened_at` is BIGINT" in mistakes_in(folder)
    assert mistakes_in(folder, "header = true", 'header = true, timestampFormat = "yyyyMMddHHmmss"') == ""


def test_what_one_file_cannot_tell_is_left_to_spark(folder: Path) -> None:
    file = folder / "auctions" / "1.csv"
    for text in ("a,a\n1,2\n", "a,\n1,2\n", ""):  # names that Spark invents; nothing at all
        file.write_text(text or "\n")
        assert mistakes_in(folder) == ""
    file.write_text(AUCTIONS)
    assert mistakes_in(folder, "header = true", 'header = true, comment = "#"') == ""
    assert mistakes_in(folder, 'path = "auctions"', 'path = "s3a://house/auctions"') == ""
    (folder / "bids" / "1.parquet").write_bytes(b"not Parquet")
    assert mistakes_in(folder) == ""
    json = folder / "auctions" / "1.json"
    json.write_text("{}\n")
    assert mistakes_in(folder, 'format = "csv"', 'format = "json"') == ""


def test_partitions_other_separators_compressed_files_and_orc(folder: Path) -> None:
    (folder / "auctions" / "1.csv").unlink()
    (folder / "auctions" / "opened_at=2026-05-01").mkdir()
    with gzip.open(folder / "auctions" / "opened_at=2026-05-01" / "1.csv.gz", "wt") as file:
        file.write("item_id;title\n1;teapot\n")
    assert mistakes_in(folder, "header = true", 'header = true, sep = ";"') == ""
    (folder / "bids" / "1.parquet").unlink()
    orc.write_table(BIDS, folder / "bids" / "1.orc")
    change = 'format = "parquet"\npath = "bids"\ntime = "bid_at"'
    found = mistakes_in(folder, change, 'format = "orc"\npath = "bids"\ntime = "price"')
    assert "`price` is DOUBLE; an event time is a TIMESTAMP." in found
    assert "there is no column `bid_at`" in mistakes_in(
        folder, change, 'format = "text"\npath = "bids"\ntime = "bid_at"'
    )
