"""Packages of Spark's own that are not in its distribution: the connector to Kafka, and Avro."""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Sequence
from pathlib import Path

import pyspark
from pyspark.find_spark_home import _find_spark_home

from watersmeet.spark.pipelines import maven

SCALA = "2.13"
#: By the format that needs them.
NAMES = {"kafka": f"spark-sql-kafka-0-10_{SCALA}", "avro": f"spark-avro_{SCALA}"}
#: The connector that is taken with each Spark: the nearest version that Maven has. First Kafka's, the token provider
#: that it needs, and Avro's. Of the rest, Spark itself has all but `KAFKA_NEEDS`.
CONNECTORS = {
    "4.0": ("4.0.4", "4.0.0", "4.0.2"),
    "4.1": ("4.1.3", "4.0.0", "4.1.1"),
    "4.2": ("4.2.0", "4.0.0", "4.1.1"),
    "4.3": ("4.2.0", "4.0.0", "4.1.1"),
}
KAFKA_NEEDS = ("org.apache.kafka:kafka-clients:3.9.2", "org.apache.commons:commons-pool2:2.13.1")


def modules(kind: str, spark: str = pyspark.__version__) -> list[str]:
    """The Maven modules of a format for this Spark, as ``group:name:version``; the connector comes first."""
    kafka, token, avro = CONNECTORS[_row(spark)]
    if kind == "avro":
        return [f"org.apache.spark:{NAMES['avro']}:{avro}"]
    provider = f"org.apache.spark:spark-token-provider-kafka-0-10_{SCALA}:{token}"
    return [f"org.apache.spark:{NAMES['kafka']}:{kafka}", provider, *KAFKA_NEEDS]


def _row(spark: str) -> str:
    """The row of a Spark: its own, or the last before it."""
    at = tuple(int(part) for part in spark.split(".")[:2])
    known = {row: tuple(int(part) for part in row.split(".")) for row in CONNECTORS}
    return max((row for row, version in known.items() if version <= at), key=known.__getitem__, default=min(CONNECTORS))


def missing(formats: Collection[str], named: str = "") -> list[str]:
    """The formats whose connector is neither in Spark's folder nor in a setting.

    `named` are the jars and packages of the pipeline's own settings.
    """
    configured = named + _submit_arguments() + _defaults()
    return [kind for kind, name in NAMES.items() if kind in formats and name not in configured and not in_spark(name)]


def fetched(kinds: Sequence[str]) -> list[Path]:
    """The jars of these formats. Jars that were not fetched before are downloaded."""
    wanted = [module for kind in kinds for module in modules(kind)]
    return maven.fetched(wanted, folder()) if wanted else []


def folder() -> Path:
    """The folder of fetched jars."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "watersmeet" / "jars"


def described(kind: str) -> str:
    """The connector of a format, as text."""
    connector = modules(kind)[0]
    same = connector.endswith(f":{pyspark.__version__}")
    return connector + ("" if same else f" (the nearest to Spark {pyspark.__version__} that Maven has)")


def in_spark(name: str) -> bool:
    """Whether the jar is in the folder of the Spark that would be started."""
    return any(Path(_find_spark_home(), "jars").glob(f"{name}-*.jar"))


def default_jars() -> str:
    """Jars that Spark's own configuration names; a setting of ours would replace them."""
    found = re.search(r"^\s*spark\.jars[\s=:]+(\S.*?)\s*$", _defaults(), re.MULTILINE)
    return found[1] if found else ""


def _submit_arguments() -> str:
    return os.environ.get("PYSPARK_SUBMIT_ARGS", "")


def _defaults() -> str:
    """The text of Spark's own configuration."""
    folder = os.environ.get("SPARK_CONF_DIR") or Path(_find_spark_home(), "conf")
    file = Path(folder, "spark-defaults.conf")
    return file.read_text("utf-8") if file.is_file() else ""
