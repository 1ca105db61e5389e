"""Checkpoints, results and states on HDFS, a file system that the driver's disk knows nothing of."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import watersmeet as wm
from lab.hdfs import Hdfs
from lab.jars import NotAtHand
from lab.spark.feeds import rows, run
from lab.spark.three_streams import Three
from watersmeet.errors import QueryError, StateError
from watersmeet.spark.checkpoints.file_system import HadoopPath, copy, local, reached, remove, upload

pytestmark = [pytest.mark.spark, pytest.mark.more]

NOW = {"availableNow": True}


@pytest.fixture(scope="module")
def hdfs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    made = Hdfs(tmp_path_factory.mktemp("hdfs"))
    try:
        made.start()
    except NotAtHand as reason:
        pytest.skip(f"HDFS is not tested: {reason}")
    yield made.root
    made.stop()


def test_a_life_on_hdfs(spark: SparkSession, hdfs: str, tmp_path: Path) -> None:
    """Written, read, rescaled and continued there; the same results as from a checkpoint of this machine."""
    three = Three(spark, tmp_path, "ab")
    place, alone = f"{hdfs}/life", tmp_path / "alone"

    def batch(number: int, checkpoint: str, shards: int) -> None:
        three.add(number)
        spark.conf.set("spark.sql.shuffle.partitions", str(shards))
        query = wm.write(three.window_join(), checkpoint=checkpoint, results=f"{place}/results", trigger=NOW)
        query.awaitTermination()
        spark.conf.set("spark.sql.shuffle.partitions", "2")
        expected = run(three.window_join().df, alone).table
        found = spark.read.parquet(f"{place}/results/batch={number:06d}").toArrow()
        assert rows(found, expected.column_names) == rows(expected, expected.column_names)
        held, others = (wm.read_state(spark, at) for at in (checkpoint, alone))
        assert held.batch == number
        assert sum(h.tuples for h in held.summary) == sum(h.tuples for h in others.summary)

    batch(0, f"{place}/c", 2)
    state = wm.rescale_state(spark, f"{place}/c", f"{place}/c3", shards=3)
    assert state.checkpoint == f"{place}/c3"
    batch(1, f"{place}/c3", 3)
    wm.rescale_state(spark, f"{place}/c3", tmp_path / "here", shards=1)  # from there to this machine, and back
    wm.rescale_state(spark, tmp_path / "here", f"{place}/again", shards=2)
    batch(2, f"{place}/again", 2)
    evolved = wm.evolve_state(f"{place}/again", f"{place}/evolved", three.window_join(algorithm="pwjoin"))
    assert evolved.changes == ("algorithm hash → pwjoin",)
    assert evolved.state.checkpoint == f"{place}/evolved"
    home = reached(spark, place)
    assert home is not None
    assert sorted(entry.name for entry in home.iterdir()) == [
        "again",
        "c",
        "c3",
        "evolved",
        "results",
    ], "nothing is left behind"
    with pytest.raises(QueryError, match=rf"`new` {place}/c3 is there already, and not empty"):
        wm.rescale_state(spark, f"{place}/c", f"{place}/c3", shards=3)


def test_what_is_no_checkpoint_is_named_there_too(spark: SparkSession, hdfs: str, tmp_path: Path) -> None:
    with pytest.raises(StateError, match=rf"`checkpoint` {hdfs}/nowhere does not exist\.\nHint: give the folder"):
        wm.read_state(spark, f"{hdfs}/nowhere")
    with pytest.raises(StateError, match=rf"`checkpoint` {hdfs}/nowhere does not exist\.\nHint: give the folder"):
        wm.rescale_state(spark, f"{hdfs}/nowhere", tmp_path / "new", shards=3)
    empty = reached(spark, f"{hdfs}/empty")
    assert empty is not None
    empty.mkdir()
    with pytest.raises(StateError, match="is an empty folder"):
        wm.rescale_state(spark, f"{hdfs}/empty", tmp_path / "new", shards=3)


def test_files_of_hadoop_behave_as_those_of_this_machine(spark: SparkSession, hdfs: str, tmp_path: Path) -> None:
    there, here = reached(spark, f"{hdfs}/files"), reached(spark, str(tmp_path / "files"))
    assert isinstance(there, HadoopPath)
    assert isinstance(here, Path)
    for folder in (there, here):
        assert not folder.exists()
        assert not folder.is_dir()
        (folder / "a").mkdir(parents=True)
        (folder / "a" / "x").write_text("é")
        (folder / "a" / ".hidden").write_bytes(b"")
        assert (folder / "a" / "x").read_bytes() == "é".encode()
        assert not (folder / "a" / "x").is_dir()
        (folder / "a" / "x").rename(folder / "a" / "y")
        (tmp_path / "uploaded").write_text("up")
        upload(tmp_path / "uploaded", folder / "a" / "up")
        assert not (tmp_path / "uploaded").exists()
        copy(folder / "a", folder / "b")
        assert sorted(f.name for f in (folder / "b").iterdir()) == ["up", "y"]
        assert (folder / "b" / "y").read_text() == "é"
        assert (folder / "b").parent == folder or str((folder / "b").parent) == str(folder)
    copy(there / "b", here / "c")
    assert (here / "c" / "up").read_text() == "up"
    with pytest.raises(OSError, match="was not renamed"):
        (there / "nowhere").rename(there / "z")
    for folder in (there, here):
        remove(folder)
        assert not folder.exists()
    assert local(f"file://{tmp_path}") == reached(spark, f"file:{tmp_path}")
