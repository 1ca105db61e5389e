"""Spark's event log: what each stage read, wrote and computed, and in which batch of a query."""

import json
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks import data

DESCRIPTION, BATCH = "spark.job.description", "streaming.sql.batchId"


@dataclass
class Stage:
    """Sums over the tasks of a stage. `runs` are the milliseconds of each task on its executor."""

    id: int
    description: str
    batch: int | None  # of a streaming query
    tasks: int
    shuffle_write: int
    shuffle_read: int
    input_rows: int
    submitted_ms: int
    completed_ms: int
    runs: list[int]

    @property
    def run_ms(self) -> int:
        return sum(self.runs)


def folder(name: str) -> Path:
    """An empty folder for the log of a session."""
    made = data.scratch("event-logs") / name
    shutil.rmtree(made, ignore_errors=True)
    made.mkdir(parents=True)
    return made


def settings(folder: Path) -> dict[str, str]:
    """The settings that write the log."""
    return {
        "spark.eventLog.enabled": "true",
        "spark.eventLog.dir": folder.as_uri(),
        "spark.eventLog.compress": "false",
        "spark.eventLog.rolling.enabled": "false",
    }


def stages(folder: Path) -> list[Stage]:
    """All completed stages of the sessions that logged into the folder, in their order."""
    found: dict[int, Stage] = {}
    for event in _events(folder):
        kind = event["Event"]
        if kind == "SparkListenerStageSubmitted":
            info, properties = event["Stage Info"], event.get("Properties") or {}
            batch = properties.get(BATCH)
            found[info["Stage ID"]] = Stage(
                info["Stage ID"], properties.get(DESCRIPTION) or "", None if batch is None else int(batch),
                0, 0, 0, 0, info.get("Submission Time", 0), 0, [],
            )  # fmt: skip
        elif kind == "SparkListenerTaskEnd" and event.get("Task Metrics"):
            stage, metrics = found[event["Stage ID"]], event["Task Metrics"]
            read = metrics["Shuffle Read Metrics"]
            stage.tasks += 1
            stage.shuffle_write += metrics["Shuffle Write Metrics"]["Shuffle Bytes Written"]
            stage.shuffle_read += read["Remote Bytes Read"] + read["Local Bytes Read"]
            stage.input_rows += metrics["Input Metrics"]["Records Read"]
            stage.runs.append(event["Task Info"]["Finish Time"] - event["Task Info"]["Launch Time"])
        elif kind == "SparkListenerStageCompleted":
            stage = found[event["Stage Info"]["Stage ID"]]
            stage.submitted_ms = event["Stage Info"]["Submission Time"]
            stage.completed_ms = event["Stage Info"]["Completion Time"]
    return [stage for stage in found.values() if stage.completed_ms]


def _events(folder: Path) -> Iterator[dict[str, Any]]:
    for file in sorted(folder.iterdir()):
        with file.open() as lines:
            yield from map(json.loads, lines)
