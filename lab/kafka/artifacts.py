"""Maven's artifacts for Kafka: those of a broker, and the jars of Spark's connector."""

from __future__ import annotations

from lab import ROOT
from lab.jars import NotAtHand
from watersmeet.errors import SettingError
from watersmeet.spark.pipelines import packages

CACHE = ROOT / ".cache" / "kafka"
KAFKA = "4.1.1"
BROKER = [f"org.apache.kafka:kafka_2.13:{KAFKA}", "org.slf4j:slf4j-nop:1.7.36"]


def connector() -> str:
    """The jars of Spark's connector and of Avro, as `spark.jars` takes them."""
    try:
        return ",".join(map(str, packages.fetched(["kafka", "avro"])))
    except SettingError as error:
        raise NotAtHand(str(error)) from None
