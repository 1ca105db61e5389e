"""Streams as folders of parquet files."""

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from watersmeet.workload import STREAMS
from watersmeet.workload.parquet_files import save, save_stream
from watersmeet.workload.scrambled import Scrambled, cut


@pytest.mark.parametrize("name", ["auctions", "bids", "left", "wide_right"])
def test_a_streams_files_hold_what_it_delivers(name, tmp_path):
    stream = STREAMS[name]({"rate": "500", "seed": "3"})
    paths = save_stream(stream, tmp_path / name, seconds=2.5, per_file=1.0)
    assert [p.name for p in paths] == ["000000.parquet", "000001.parquet", "000002.parquet"]
    assert pa.concat_tables(map(pq.read_table, paths)).equals(stream.table(0, 2_500_000))


def test_files_are_in_the_order_of_their_modification(tmp_path):
    parts = [rows for (rows,) in cut([Scrambled(20).rows(5, seed=1)], 5, 1.0)]
    paths = save(parts, tmp_path)
    assert sorted(tmp_path.iterdir(), key=lambda p: p.stat().st_mtime) == paths
    assert pa.concat_tables(map(pq.read_table, paths)).equals(pa.Table.from_batches(parts))
