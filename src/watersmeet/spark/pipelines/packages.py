"""Packages of Spark's own that are not in its distribution: the connector to Kafka, and Avro."""

from __future__ import annotations

import os
from collections.abc import Collection
from pathlib import Path

import pyspark
from pyspark.find_spark_home import _find_spark_home

SCALA = "2.13"
#: By the format that needs them.
NAMES = {"kafka": f"spark-sql-kafka-0-10_{SCALA}", "avro": f"spark-avro_{SCALA}"}


def coordinates(formats: Collection[str], named: str = "") -> list[str]:
    """Maven coordinates of what these formats need, if neither Spark's folder has it nor some setting names it.

    `named` are jars and packages of the pipeline's own settings.
    """
    told = named + _defaults()
    missing = [name for kind, name in NAMES.items() if kind in formats and name not in told and not in_spark(name)]
    return [f"org.apache.spark:{name}:{pyspark.__version__}" for name in missing]


def in_spark(name: str) -> bool:
    """Whether the jar lies in the folder of the Spark that would be started."""
    return any(Path(_find_spark_home(), "jars").glob(f"{name}-*.jar"))


def _defaults() -> str:
    """What Spark is told by its environment, before any program speaks."""
    folder = os.environ.get("SPARK_CONF_DIR") or Path(_find_spark_home(), "conf")
    file = Path(folder, "spark-defaults.conf")
    return os.environ.get("PYSPARK_SUBMIT_ARGS", "") + (file.read_text("utf-8") if file.is_file() else "")


def in_caches(name: str) -> bool:
    """Whether the jar has been fetched before, by Ivy (as Spark does) or Maven."""
    home = Path.home()
    version = pyspark.__version__
    ivy = [home / folder / "jars" / f"org.apache.spark_{name}-{version}.jar" for folder in (".ivy2.5.2", ".ivy2")]
    maven = home / ".m2" / "repository" / "org" / "apache" / "spark" / name / version / f"{name}-{version}.jar"
    return any(jar.exists() for jar in (*ivy, maven))
