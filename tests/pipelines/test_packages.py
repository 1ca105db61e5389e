"""Connectors from Maven: which are taken with which Spark, and what happens where they cannot be had."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pyspark
import pytest

from watersmeet.errors import SettingError
from watersmeet.pipelines.pipeline import Pipeline, Session, Source
from watersmeet.spark.pipelines import assembly, maven, packages


@pytest.fixture
def bare(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """No setting of this machine names a jar, and nothing has been fetched."""
    monkeypatch.delenv("PYSPARK_SUBMIT_ARGS", raising=False)
    monkeypatch.setenv("SPARK_CONF_DIR", str(tmp_path))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return tmp_path


def downloads(monkeypatch: pytest.MonkeyPatch, *, ivy: str | None = None, client: str | None = None) -> list[str]:
    """The calls of Maven; each way writes the jars, or says what is wrong."""
    requested: list[str] = []

    def way(name: str, failure: str | None) -> None:
        def download(modules: list[str], folder: Path) -> str | None:
            requested.append(f"{name} {len(modules)}")
            for module in modules if failure is None else []:
                (folder / maven.jar(module)).touch()
            return failure

        monkeypatch.setattr(maven, name, download)

    way("by_ivy", ivy)
    way("by_client", client)
    return requested


def test_every_spark_has_a_connector_that_is_not_newer() -> None:
    for spark in ("4.0.0", "4.1.1", "4.2.0", "4.3.0", pyspark.__version__):
        for kind, name in packages.NAMES.items():
            connector = packages.modules(kind, spark)[0]
            group, module, version = connector.split(":")
            assert (group, module) == ("org.apache.spark", name)
            assert version.split(".")[:2] <= spark.split(".")[:2]


def test_a_spark_that_is_not_in_the_table_takes_the_row_before_it() -> None:
    assert packages.modules("kafka", "4.9.0") == packages.modules("kafka", "4.3.0")
    assert packages.modules("avro", "3.5.0") == packages.modules("avro", "4.0.0")


def test_the_page_of_kafka_has_the_table() -> None:
    page = (Path(__file__).parents[2] / "docs" / "kafka.md").read_text()
    for spark, (kafka, _, avro) in packages.CONNECTORS.items():
        assert f"| {spark} | {kafka} | {avro} |" in page


@pytest.mark.usefixtures("bare")
def test_connectors_are_those_that_nothing_else_brings(monkeypatch: pytest.MonkeyPatch, bare: Path) -> None:
    assert packages.missing({"kafka", "avro", "csv"}) == ["kafka", "avro"]
    assert packages.missing({"csv"}) == []
    assert packages.missing({"kafka"}, "/jars/spark-sql-kafka-0-10_2.13-4.3.0.jar") == []
    (bare / "spark-defaults.conf").write_text("spark.jars  /jars/mine.jar,/jars/spark-avro_2.13-4.2.0.jar \n")
    assert packages.missing({"kafka", "avro"}) == ["kafka"]
    assert packages.default_jars() == "/jars/mine.jar,/jars/spark-avro_2.13-4.2.0.jar"
    monkeypatch.setenv("PYSPARK_SUBMIT_ARGS", "--jars /jars/spark-sql-kafka-0-10_2.13-4.2.0.jar pyspark-shell")
    assert packages.missing({"kafka", "avro"}) == []


@pytest.mark.usefixtures("bare")
def test_a_pipeline_that_names_its_connector_fetches_none() -> None:
    source = Source("a", "kafka", "at", value="json")
    named = "org.apache.spark:spark-sql-kafka-0-10_2.13:4.2.0"
    for session in (Session(packages=(named,)), Session(settings={"spark.jars.packages": named})):
        assert assembly.connectors(Pipeline("p", "c", (source,), (), session=session)) == []
    assert assembly.connectors(Pipeline("p", "c", (source,), ())) == ["kafka"]


def test_jars_are_fetched_once(monkeypatch: pytest.MonkeyPatch, bare: Path) -> None:
    requested = downloads(monkeypatch)
    first = packages.fetched(["kafka", "avro"])
    assert packages.fetched(["avro", "kafka"]) == first[-1:] + first[:-1]
    assert requested == [f"by_ivy {len(first)}"]
    assert [jar.parent for jar in first] == [bare / "watersmeet" / "jars"] * len(first)
    assert sorted(p.name for p in first[0].parent.iterdir()) == sorted(jar.name for jar in first)


def test_where_ivy_reaches_nothing_the_client_of_maven_is_used(monkeypatch: pytest.MonkeyPatch, bare: Path) -> None:
    requested = downloads(monkeypatch, ivy="unknown host.")
    assert all(jar.exists() for jar in packages.fetched(["avro"]))
    assert requested == ["by_ivy 1", "by_client 1"]


def test_what_cannot_be_fetched_is_named_with_both_reasons(monkeypatch: pytest.MonkeyPatch, bare: Path) -> None:
    downloads(monkeypatch, ivy="unknown host.", client="there is no mvn.")
    given = r"does not give org.apache.spark:spark-avro_2.13:\S+ Spark's Ivy: unknown host. Maven's client: there is no"
    with pytest.raises(SettingError, match=rf"{given}(.|\n)*Hint: .*spark.jars"):
        packages.fetched(["avro"])
    assert list((bare / "watersmeet" / "jars").iterdir()) == []


def test_each_way_says_what_it_lacks(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    monkeypatch.setenv("PATH", str(tmp_path))
    assert maven.by_ivy(["a:b:1"], tmp_path) == "there is no Java."
    assert maven.by_client(["a:b:1"], tmp_path) == "there is no mvn."


def test_a_client_that_fails_is_quoted_and_one_that_hangs_is_left(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(maven.shutil, "which", lambda name: f"/bin/{name}")
    failed = subprocess.CompletedProcess([], 1, "noise\n[ERROR] no such artifact\n[ERROR] more\n", "")
    monkeypatch.setattr(maven.subprocess, "run", lambda *a, **k: failed)
    assert maven.by_client(["a:b:1"], tmp_path) == "[ERROR] no such artifact"
    failed.stdout = ""
    assert maven.by_client(["a:b:1"], tmp_path) == "exit code 1."

    def hangs(*a: object, **k: object) -> None:
        raise subprocess.TimeoutExpired("mvn", 1)

    monkeypatch.setattr(maven.subprocess, "run", hangs)
    assert maven.by_client(["a:b:1"], tmp_path) == f"no answer in {maven.PATIENCE} s."


@pytest.mark.more
@pytest.mark.parametrize("spark", packages.CONNECTORS)
def test_maven_has_what_the_table_names(spark: str, tmp_path: Path) -> None:
    wanted = [module for kind in packages.NAMES for module in packages.modules(kind, spark)]
    if maven.by_ivy(packages.KAFKA_NEEDS[-1:], tmp_path / "reachable") is not None:
        pytest.skip("Maven cannot be reached")
    assert all(jar.exists() for jar in maven.fetched(wanted, tmp_path))


@pytest.mark.more
def test_maven_has_no_nearer_connector(tmp_path: Path) -> None:
    """When this fails, Maven has the connector of this very Spark: write it into the table."""
    if maven.by_ivy(packages.KAFKA_NEEDS[-1:], tmp_path / "reachable") is not None:
        pytest.skip("Maven cannot be reached")
    for kind, name in packages.NAMES.items():
        own = f"org.apache.spark:{name}:{pyspark.__version__}"
        if own != packages.modules(kind)[0]:
            assert maven.by_ivy([own], tmp_path) is not None, own
