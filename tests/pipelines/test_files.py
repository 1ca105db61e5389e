"""What a pipeline's folders and files tell before Spark is started: that they are there, and their columns."""

from __future__ import annotations

import gzip
import re
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


def with_schema(stream: str, schema: str, options: str = "") -> tuple[str, str]:
    """A change of the pipeline: a stream gets a schema, and maybe other options."""
    if stream == "bid":
        return 'path = "bids"\ntime = "bid_at"', f'path = "bids"\nschema = "{schema}"\ntime = "bid_at"'
    return "options = { header = true }", f'schema = "{schema}"\noptions = {{ {options or "header = true"} }}'


@pytest.mark.parametrize(
    ("stream", "schema", "expected"),
    [
        ("bid", "item_id BIGINT, bid_at TIMESTAMP, price DOUBLE", ""),
        ("bid", "item_id BIGINT, bid_at TIMESTAMP", ""),
        ("bid", "PRICE DOUBLE, bid_at TIMESTAMP_NTZ, item_id LONG", ""),
        ("bid", "item_id BIGINT, bid_at TIMESTAMP, prise DOUBLE", "has a column `prise`.(.|\n)*did you mean `price`?"),
        ("bid", "item_id BIGINT, bid_at TIMESTAMP, price STRING", "`price` is STRING here and DOUBLE in 1.parquet;"),
        ("bid", "item_id BIGINT, bid_at TIMESTAMP, price DECIMAL(8, 2)", "`price` is DECIMAL here and DOUBLE in"),
        ("bid", "item_id INT, bid_at TIMESTAMP", "`item_id` is INT here and BIGINT in 1.parquet;"),
        ("auction", "item_id BIGINT, opened_at TIMESTAMP, title STRING", ""),
        ("auction", "item_id BIGINT, opened_at TIMESTAMP, TITLE STRING", ""),
        ("auction", "item_id BIGINT, opened_at TIMESTAMP", ""),
        ("auction", "item_id BIGINT, opened_at TIMESTAMP, name STRING", "column 3 is `name` here and `title` in 1.csv"),
        ("auction", "item_id BIGINT, title STRING, opened_at TIMESTAMP", "column 2 is `title` here and `opened_at` in"),
        ("auction", "item_id BIGINT, opened_at TIMESTAMP, title STRING, seller BIGINT", "has a column `seller`."),
    ],
)
def test_a_schema_is_compared_with_the_files(folder: Path, stream: str, schema: str, expected: str) -> None:
    found = mistakes_in(folder, *with_schema(stream, schema))
    assert re.search(expected, found) if expected else found == ""


def test_a_time_column_that_no_file_has_is_found(folder: Path) -> None:
    what, instead = with_schema("bid", "item_id BIGINT, at_x TIMESTAMP")
    found = mistakes_in(folder, what, instead.replace('time = "bid_at"', 'time = "at_x"'))
    assert "no file of the stream has a column `at_x`." in found


def test_a_schema_holds_where_the_user_or_the_format_wants_it(folder: Path) -> None:
    auctions = "number BIGINT, opened_at TIMESTAMP, item_id BIGINT"
    assert "column 1 is `number`" in mistakes_in(folder, *with_schema("auction", auctions))
    for options in ("header = true, enforceSchema = true", "header = false", 'header = true, comment = "#"'):
        assert mistakes_in(folder, *with_schema("auction", auctions, options)) == ""
    bad = "item_id BIGINT, opened_at TIMESTAMP, title STRING, _corrupt_record STRING"
    assert mistakes_in(folder, *with_schema("auction", bad)) == ""
    assert "column `bad`" in mistakes_in(folder, *with_schema("auction", bad.replace("_corrupt_record", "bad")))
    options = 'header = true, columnNameOfCorruptRecord = "bad"'
    assert mistakes_in(folder, *with_schema("auction", bad.replace("_corrupt_record", "bad"), options)) == ""


def test_a_column_that_older_files_lack_is_right(folder: Path) -> None:
    later = BIDS.append_column("bidder", pa.array([7]))
    change = with_schema("bid", "item_id BIGINT, bid_at TIMESTAMP, price DOUBLE, bidder BIGINT")
    assert "no file of the stream has a column `bidder`." in mistakes_in(folder, *change)
    parquet.write_table(later, folder / "bids" / "2.parquet")
    assert mistakes_in(folder, *change) == ""


def test_files_that_spark_would_not_read_contradict_nothing(folder: Path) -> None:
    change = with_schema("bid", "item_id BIGINT, bid_at TIMESTAMP, price DOUBLE")
    (folder / "bids" / "0 of old").mkdir()
    parquet.write_table(pa.table({"x": [1]}), folder / "bids" / "0 of old" / "1.parquet")
    assert mistakes_in(folder, *change) == ""
    parquet.write_table(pa.table({"x": [1]}), folder / "bids" / "0.parquet")
    assert mistakes_in(folder, *change) == "", "another file has all columns"
    (folder / "bids" / "1.parquet").unlink()
    assert "no file of the stream has a column `price`." in mistakes_in(folder, *change)
    chosen = change[1] + '\noptions = { pathGlobFilter = "1*" }'
    assert mistakes_in(folder, change[0], chosen) == ""
    (folder / "bids" / "0.parquet").write_bytes(b"not Parquet")
    assert mistakes_in(folder, *change) == ""


def test_a_schema_may_have_the_columns_of_partitions(folder: Path) -> None:
    (folder / "auctions" / "1.csv").unlink()
    (folder / "auctions" / "opened_at=2026-05-01").mkdir()
    (folder / "auctions" / "opened_at=2026-05-01" / "1.csv").write_text("item_id,title\n1,teapot\n")
    right = "item_id BIGINT, opened_at TIMESTAMP, title STRING"
    assert mistakes_in(folder, *with_schema("auction", right)) == ""
    assert "column 2 is `name`" in mistakes_in(folder, *with_schema("auction", right.replace("title", "name")))


def test_orc_goes_by_name_unless_it_has_none(folder: Path) -> None:
    (folder / "bids" / "1.parquet").unlink()
    orc.write_table(BIDS, folder / "bids" / "1.orc")
    columns = "item_id BIGINT, bid_at TIMESTAMP, prise STRING"
    change = ('format = "parquet"\npath = "bids"\n', f'format = "orc"\npath = "bids"\nschema = "{columns}"\n')
    assert "no file of the stream has a column `prise`." in mistakes_in(folder, *change)
    orc.write_table(BIDS.rename_columns(["_col0", "_col1", "_col2"]), folder / "bids" / "1.orc")
    assert mistakes_in(folder, *change) == ""
