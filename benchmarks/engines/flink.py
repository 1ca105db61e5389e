"""Flink SQL's interval join, both tables read from CSV, checkpoints every five seconds.

Variants: `heap` keeps state as Java objects, `rocksdb` in RocksDB with incremental checkpoints. Results are counted in
tumbling windows behind the join, and the payloads added up, so that it has to carry them. A first, small run warms the
virtual machine and is not measured.
"""

from importlib.metadata import version
from pathlib import Path

from pyflink.common import Configuration
from pyflink.table import EnvironmentSettings, TableEnvironment

from benchmarks.engines.answer import DELAY_MS, WINDOW_MS, Answer, Task, Watch

BACKENDS = {"heap": "hashmap", "rocksdb": "rocksdb"}


def environment(task: Task) -> TableEnvironment:
    settings = {
        "parallelism.default": "2",
        "state.backend.type": BACKENDS[task.variant],
        "execution.checkpointing.interval": "5 s",
        "execution.checkpointing.incremental": "true",
        "execution.checkpointing.dir": task.state.as_uri(),
        "execution.checkpointing.checkpoints-after-tasks-finish": "false",  # no wait for a last checkpoint
        "taskmanager.memory.managed.size": "1g",
        "table.local-time-zone": "UTC",
    }
    configuration = Configuration()
    for name, value in settings.items():
        configuration.set_string(name, value)
    builder = EnvironmentSettings.new_instance().in_streaming_mode().with_configuration(configuration)
    return TableEnvironment.create(builder.build())


def results(tables: TableEnvironment, texts: Path) -> int:
    """The number of results of all rows, known when all are read."""
    for name in "ab":
        tables.execute_sql(f"DROP TEMPORARY TABLE IF EXISTS {name}")
        tables.execute_sql(
            f"CREATE TEMPORARY TABLE {name} (k BIGINT, ms BIGINT, {name}_v DOUBLE, "
            f"{name}_ts AS TO_TIMESTAMP_LTZ(ms, 3), "
            f"WATERMARK FOR {name}_ts AS {name}_ts - INTERVAL '{DELAY_MS // 1000}' SECOND) "
            f"WITH ('connector' = 'filesystem', 'path' = '{(texts / name).as_uri()}', 'format' = 'csv')"
        )
    window = f"INTERVAL '{WINDOW_MS // 1000}' SECOND"
    pairs = tables.sql_query(
        f"SELECT a.k, a_ts, a_v, b_v FROM a, b WHERE a.k = b.k AND b_ts BETWEEN a_ts - {window} AND a_ts + {window}"
    )
    tables.create_temporary_view("pairs", pairs)
    counts = tables.sql_query(
        "SELECT window_start, COUNT(*), SUM(a_v), SUM(b_v) "
        "FROM TABLE(TUMBLE(TABLE pairs, DESCRIPTOR(a_ts), INTERVAL '5' SECOND)) GROUP BY window_start, window_end"
    )
    with counts.execute().collect() as rows:
        found = sum(int(row[1]) for row in rows)
    tables.drop_temporary_view("pairs")
    return found


def main() -> None:
    task = Task.read()
    tables = environment(task)
    results(tables, task.texts / "little")
    watch = Watch()
    found = results(tables, task.texts)
    seconds = watch.seconds
    rows = sum(file.read_bytes().count(b"\n") for name in "ab" for file in (task.texts / name).iterdir())
    Answer(rows, seconds, found, version("apache-flink")).send()


if __name__ == "__main__":
    main()
