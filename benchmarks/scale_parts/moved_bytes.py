"""Bytes an event through the shuffle and into the checkpoint: ours and Spark's own join, from Spark's own metrics."""

from typing import Any

from benchmarks import cases, data, spark
from benchmarks.cases import SCALE
from benchmarks.scale_parts import event_log

CASES = ("narrow", "wide")
CONTENDERS = (cases.WATERSMEET, cases.NATIVE_MEMORY, cases.NATIVE_ROCKSDB)


def run(case: str, contender: str, quick: bool) -> dict[str, Any]:
    """Medians over the steady batches of one contender."""
    logs = event_log.folder(f"bytes-{case}-{contender}")
    outcome = spark.run_one(contender, case, quick, settings=event_log.settings(logs))
    if "error" in outcome:
        return {"case": case, "contender": contender, "error": outcome["error"]}
    shape = SCALE[case].quick() if quick else SCALE[case]
    steady = [number for number, phase in enumerate(shape.phases) if phase == "steady"]
    rows = sum(outcome["batches"][number]["rows"] for number in steady)
    stages = [stage for stage in event_log.stages(logs) if stage.batch in steady]
    return {
        "case": case,
        "contender": contender,
        "rows": rows,
        "source_bytes": source_bytes(case, quick) / shape.rows,
        "shuffle_bytes": sum(s.shuffle_write for s in stages) / rows,
        "checkpoint_bytes": outcome["checkpoint_bytes"] * len(steady) / rows,
        "results_a_row": sum(outcome["batches"][number]["results"] for number in steady) / rows,
    }


def source_bytes(case: str, quick: bool) -> float:
    """The bytes of all Parquet files of a case."""
    files = data.make(SCALE[case].quick() if quick else SCALE[case])
    return float(sum(f.stat().st_size for f in files.rglob("*.parquet")))
