"""Jars for the tests of Kafka, from Maven's packages, fetched by the Ivy that comes with Spark.

They are kept under `.cache/kafka`; without them and without a network the tests say so and are skipped.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pyspark

ROOT = Path(__file__).parents[2]
CACHE = ROOT / ".cache" / "kafka"
KAFKA = "4.1.1"
BROKER = [f"org.apache.kafka:kafka_2.13:{KAFKA}", "org.slf4j:slf4j-nop:1.7.36"]
#: Spark's own for this Spark; and, where a repository has none yet, older ones that were tried with it.
CONNECTOR = [f"org.apache.spark:{name}_2.13:{pyspark.__version__}" for name in ("spark-sql-kafka-0-10", "spark-avro")]
OLDER = [
    "org.apache.spark:spark-sql-kafka-0-10_2.13:4.2.0",
    "org.apache.spark:spark-token-provider-kafka-0-10_2.13:4.0.0",
    "org.apache.spark:spark-avro_2.13:4.1.1",
    "org.apache.kafka:kafka-clients:3.9.2",
    "org.apache.commons:commons-pool2:2.12.1",
]
_IVY = """<ivy-module version="2.0">
  <info organisation="watersmeet" module="tests"/>
  <dependencies>{}</dependencies>
</ivy-module>
"""
_DEPENDENCY = '<dependency org="{}" name="{}" rev="{}" conf="default->default" transitive="{}"/>'


class NotAtHand(Exception):  # noqa: N818  # not an error: a reason to skip
    """The packages cannot be had here."""


def java() -> str:
    home = os.environ.get("JAVA_HOME")
    found = str(Path(home, "bin", "java")) if home else shutil.which("java")
    if found is None:
        raise NotAtHand("there is no Java")
    return found


def fetched(name: str, packages: Sequence[str], *, transitive: bool = True) -> Path:
    """The folder with the jars of these packages and of all they need."""
    digest = hashlib.sha256("\n".join([*packages, str(transitive)]).encode()).hexdigest()[:12]
    folder = CACHE / f"{name}-{digest}"
    if folder.is_dir():
        return folder
    CACHE.mkdir(parents=True, exist_ok=True)
    told = "".join(_DEPENDENCY.format(*package.split(":"), str(transitive).lower()) for package in packages)
    wanted = CACHE / f"{name}-{digest}.xml"
    wanted.write_text(_IVY.format(told))
    half = CACHE / f"{name}-{digest}.half"
    shutil.rmtree(half, ignore_errors=True)
    ivy = next(Path(pyspark.__file__).parent.glob("jars/ivy-*.jar"))
    command = [java(), "-jar", str(ivy), "-ivy", str(wanted), "-cache", str(CACHE / "ivy"), "-confs", "default"]
    command += ["-types", "jar", "bundle", "-retrieve", f"{half}/[artifact]-[revision].[ext]", "-error"]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)
    if ran.returncode != 0 or not half.is_dir():
        raise NotAtHand(f"Maven's packages of {name} cannot be had: {(ran.stdout + ran.stderr).strip()[-600:]}")
    half.rename(folder)
    return folder


def connector() -> str:
    """The jars of Spark's connector and of Avro, as `spark.jars` takes them."""
    try:
        folder = fetched("connector", CONNECTOR)
    except NotAtHand:
        folder = fetched("connector", OLDER, transitive=False)
    return ",".join(str(jar) for jar in sorted(folder.glob("*.jar")))
