"""The report of `benchmarks.scale`: tables and sentences of each part, as sections of the documents."""

from collections.abc import Callable
from typing import Any

from benchmarks.cases import WATERSMEET
from benchmarks.scale_parts import all_to_all, cost, simulator_runs
from benchmarks.scale_parts.memory import more_than_tiny, same_results
from benchmarks.scale_parts.simulator import PerBlob
from lab.measure.claims import answer
from lab.measure.tables import Table, markdown_table

Found = Any


def section(name: str, results: dict[str, Any]) -> str:
    """The tables of a part under the line of its circumstances."""
    part = results["parts"][name]
    machine = part["machine"]
    where = f"{machine['cores']} cores, {machine['CPU']}, {machine['memory']}"
    load = f"load before: {part['load_before']:.2f}"
    about = f"*Measured {part['date']} ({where}; {load}): `./run bench scale --only {name}`*"
    quick = " **A quick run: no numbers to quote.**" if part["quick"] else ""
    texts = [
        f"{t.caption}\n\n{markdown_table(t.columns, t.rows)}" if t.rows else t.caption for t in tables(name, results)
    ]
    return "\n\n".join([about + quick, *texts])


def tables(name: str, results: dict[str, Any]) -> list[Table]:
    return TABLES[name](results["parts"][name]["found"], results)


def shard(found: Found, results: dict[str, Any]) -> list[Table]:
    one = found[0]
    if "error" in one:
        return [_failed("one shard", one["error"])]
    names = {
        "cpu_ms": "core time a batch, ms",
        "wall_ms": "wall time a batch, ms",
        "memory_mb": "memory of the process, MB",
        "state_rows": "rows in state",
        "state_mb": "working state, MB",
        "store_mb": "state store, MB",
        "segments": "segments in the store",
    }
    rows = [
        (title, *(_short(one["drift"][name][end]) for end in ("first", "last")), f"{one['drift'][name]['ratio']:.3f}")
        for name, title in names.items()
    ]
    caption = (
        f"One shard of {one['shards']:,}: {one['batches']:,} batches of {one['rows_a_batch']:,} rows of its own, in "
        f"{one['blobs_a_batch']} blobs from {one['partitions']} partitions of each stream, for "
        f"{one['series'][-1]['minute']:.1f} minutes; {one['results']:,} results."
    )
    return [Table("one shard", caption, ("median", "first third", "last third", "ratio"), rows)]


def blobs(found: Found, results: dict[str, Any]) -> list[Table]:
    packed = [
        (
            f"{row['shards']:,}",
            f"{row['rows']:,}",
            f"{row['payload_bytes'] / row['shards']:.1f}",
            f"{row['arrow_bytes'] / row['shards']:.1f}",
            f"{row['pack_us_a_shard']:.2f}",
            f"{row['unpack_us_a_blob']:.2f}",
            f"{row['pack_us_a_shard'] * row['shards'] / 1000:.1f}",
            f"{row['unpack_us_a_blob'] * row['shards'] / 1000:.1f}",
        )
        for row in found[0]["packed"]
    ]
    shuffled = [
        (
            row["job"],
            f"{row['partitions']:,}",
            f"{row['shards']:,}" if row["job"] == all_to_all.ALL_TO_ALL else "1",
            f"{row['tasks']:,}",
            f"{row['s'] * 1000:,.0f}",
            f"{row['task_ms']:,}",
            f"{row['shuffle_bytes']:,}",
            f"{row['shuffle_bytes'] / (row['partitions'] * row['shards']):.1f}"
            if row["job"] == all_to_all.ALL_TO_ALL
            else "–",
        )
        for row in found[0]["shuffled"]
    ]
    return [
        Table("a thousand by a thousand", _a_thousand(found[0]), (), []),
        Table(
            "blobs of one partition",
            "One source partition packs for all shards; one shard unpacks the blobs of as many partitions. Core time.",
            ("shards", "rows", "payload, bytes a blob", "with its row, bytes", "packing, µs a shard",
             "unpacking, µs a blob", "a partition's packing, ms", "a shard's unpacking, ms"),
            packed,
        ),
        Table(
            "through Spark's shuffle",
            "Jobs of empty partitions: the blobs of all partitions for all shards, beside a job that gathers the "
            "newest times of all partitions on the driver.",
            ("job", "partitions", "shards", "tasks", "wall, ms", "all tasks, ms", "shuffled, bytes", "bytes a blob"),
            shuffled,
        ),
    ]  # fmt: skip


def _a_thousand(found: Found) -> str:
    """What a batch without rows costs with 1,024 partitions and as many shards, from what a blob costs here."""
    packed = max((row for row in found["packed"] if not row["rows"]), key=lambda row: row["shards"])
    sent = max((row for row in found["shuffled"] if row["job"] == all_to_all.ALL_TO_ALL), key=_blobs)
    gathered = max((row for row in found["shuffled"] if row["job"] == all_to_all.GATHERED), key=_blobs)
    a_blob = sent["shuffle_bytes"] / _blobs(sent)
    packing, joining = (1.024 * packed[name] for name in ("pack_us_a_shard", "unpack_us_a_blob"))
    everything, a_task = 1024**2 * a_blob / 1e6, 1024 * a_blob / 1e3
    return " ".join(
        (
            f"1,024 partitions and 1,024 shards, all empty: {everything:.0f} MB through the shuffle in a batch,",
            f"{a_task:.0f} kB a task; {packing:.2f} ms of a core for a task that packs, {joining:.2f} ms for one that",
            f"joins. The job that gathers the newest times of {gathered['partitions']} partitions took",
            f"{gathered['s'] * 1000:,.0f} ms on two cores.",
        )
    )


def _blobs(row: Found) -> int:
    return int(row["partitions"] * row["shards"])


def moved(found: Found, results: dict[str, Any]) -> list[Table]:
    rows = [
        (row["case"], row["contender"], "failed", "–", "–", "–")
        if "error" in row
        else (
            row["case"],
            row["contender"],
            f"{row['source_bytes']:.0f}",
            f"{row['shuffle_bytes']:.1f}",
            f"{row['checkpoint_bytes']:.1f}",
            f"{row['results_a_row']:.2f}",
        )
        for row in found
    ]
    columns = (
        "rows",
        "join",
        "Parquet, bytes a row",
        "shuffle, bytes a row",
        "checkpoint, bytes a row",
        "results a row",
    )
    caption = (
        "Steady batches; the shuffle as Spark writes it (lz4), the checkpoint as files written during the batches."
    )
    return [Table("bytes a row", caption, columns, rows)]


def network(found: Found, results: dict[str, Any]) -> list[Table]:
    skipped = [row for row in found if "skipped" in row]
    if skipped:
        return [_failed("limited network", f"This machine does not allow network namespaces: {skipped[0]['skipped']}")]
    free = {row["contender"]: row["batch_ms"] for row in found if row["megabits"] is None and not row["delay_ms"]}
    rows = [
        (
            row["contender"],
            "none" if row["megabits"] is None else f"{row['megabits']:,} Mbit/s",
            f"{row['delay_ms']:g} ms",
            f"{row['measured_megabits']:,.0f}",
            f"{row['measured_trip_ms']:.2f}",
            f"{row['batch_ms'] / 1000:.2f}",
            f"{row['low_ms'] / 1000:.2f}–{row['high_ms'] / 1000:.2f}",
            f"{row['batch_ms'] / free[row['contender']]:.2f}",
        )
        for row in found
    ]
    columns = ("join", "limit", "delay", "measured, Mbit/s", "round trip, ms", "batch, s", "min–max", "× no limit")
    warm_up = f"after {found[0]['warm_up']} batches to warm up"
    caption = f"Batches of {found[0]['rows']:,} rows, two shards, two workers of one core, {warm_up}."
    return [Table("limited network", caption, columns, rows)]


def simulator(found: Found, results: dict[str, Any]) -> list[Table]:
    if "error" in found:
        return [_failed("simulator", found["error"])]
    driver, packing, joining = (found["coefficients"][name] for name in ("driver", "packing", "joining"))
    compared = [
        (
            f"{row['rows']:,}",
            f"{row['shards']}",
            f"{row['measured']:,.0f} ({row['measured_low']:,.0f}–{row['measured_high']:,.0f})",
            _milliseconds(row["predicted"]),
            f"{row['error'] * 100:+.0f} %",
        )
        for row in found["compared"]
    ]
    beyond = [
        (
            row["load"],
            f"{row['cores']:,}",
            f"{row['rows']:,}",
            _milliseconds(row),
            f"{driver[0] + driver[1] * (row['partitions'] + row['shards']):,.0f}",
            f"{row['rows'] / row['median'] * 1000:,.0f}",
            f"{row['rows'] / row['median'] * 1000 / row['cores']:,.0f}",
        )
        for row in sorted(found["beyond"], key=lambda row: row["load"])
    ]
    fitted = (
        f"Fitted on one core: driver {driver[0]:.0f} ms + {driver[1]:.1f} ms a task; packing {packing[0]:.0f} ms a "
        f"task + {packing[1] * 1000:.2f} µs a row; joining {joining[0]:.0f} ms a shard "
        f"+ {joining[1] * 1000:.2f} µs a row. Two cores, predicted and measured:"
    )
    worst = f"Beyond two cores, ranges with the largest error above, {found['worst_error'] * 100:.0f} %, on both sides:"
    return [
        Table(
            "two cores", fitted, ("rows a batch", "shards", "measured, ms", "predicted, ms", "error"), compared
        ),
        Table(
            "beyond", worst,
            ("load", "cores", "rows a batch", "batch, ms", "of it the driver", "rows/s", "rows/s a core"), beyond,
        ),
    ]  # fmt: skip


def costs(found: Found, results: dict[str, Any]) -> list[Table]:
    kernel = next((row["rows_a_second"] for row in found if row["peer"] == cost.KERNEL and "error" not in row), None)
    rows = []
    for row in found:
        if "error" in row:
            rows.append((row["peer"], "failed", "–", "–", "–"))
            continue
        pass_it = "–" if row["peer"] == cost.KERNEL or kernel is None else _cores(row, kernel, results)
        rows.append(
            (
                f"{row['peer']} {row['version']}".strip(),
                f"{row['rows_a_second']:,.0f}",
                f"{row['cores_used']:.2f}",
                f"{row['core_seconds_a_million']:.2f}",
                pass_it,
            )
        )
    columns = ("peer", "rows/s", "cores in use", "core-seconds a million rows", "cores to pass the kernel's one thread")
    caption = (
        "Two cores, the kernel one thread. Cores to pass it: if speed grew with cores (at least so many); of "
        "Watersmeet also by the simulator, with batches of 100 k rows a core."
    )
    return [Table("COST", caption, columns, rows)]


def _cores(row: Found, kernel: float, results: dict[str, Any]) -> str:
    linear = f"≥ {cost.cores_if_linear(row['rows_a_second'], 2, kernel)}"
    fitted = results["parts"].get("simulator", {}).get("found", {})
    if row["peer"] != WATERSMEET or "coefficients" not in fitted:
        return linear
    per_blob = PerBlob(**fitted["coefficients"]["per_blob"])
    cores = simulator_runs.cores_to_pass(simulator_runs.samples_of(fitted), per_blob, kernel, None)
    return f"{linear}; simulated: {cores or 'more than 1,024'}"


def workers(found: Found, results: dict[str, Any]) -> list[Table]:
    rows = [
        (
            f"{row['shards_a_core']:g}",
            row["about"] or "–",
            f"{row['batch_ms'] / 1000:.2f}",
            f"{row['first_ms'] / 1000:.1f}",
            f"{row['jvm_mb']:,.0f}",
            f"{row['python_mb']:,.0f}",
            f"{row['state_mb']:.1f}",
            f"{row['rebuilt']}",
        )
        for row in found
        if "shards_a_core" in row
    ]
    lost = next(row for row in found if "shards_a_core" not in row)
    after = ", ".join(
        f"{ms / 1000:.2f} s ({n} rebuilt)" for ms, n in zip(lost["after_ms"], lost["rebuilt_after"], strict=True)
    )
    killed = (
        f"An executor killed between two batches ({lost['shards']} shards): {lost['before_ms'] / 1000:.2f} s a batch "
        f"before, then {after}; the cluster had started another one by the end of them."
    )
    columns = ("tasks a core", "setting", "batch, s", "first batch, s", "executor's JVM, MB", "its Python workers, MB",
               "state, MB", "rebuilt")  # fmt: skip
    caption = f"Two executors of one core on one machine, batches of {found[0]['rows']:,} rows. {killed}"
    return [Table("workers", caption, columns, rows)]


#: The joins of `memory` by name.
JOINS = {"tiny": "of tiny state", "large": "without `memory`", "bounded": "with `memory`"}


def memory(found: Found, results: dict[str, Any]) -> list[Table]:
    rows = []
    for run in found:
        if "error" in run:
            rows.append((JOINS[run["name"]], run["error"], *["–"] * 6))
            continue
        more = more_than_tiny(found, run["name"])
        rows.append(
            (
                JOINS[run["name"]],
                _megabytes(run["state_bytes"]),
                _megabytes(run["spilled_bytes"]),
                _megabytes(run["most_bytes"]),
                _megabytes(run["median_bytes"]),
                f"{run['processes']}",
                "–" if more is None or run["name"] == "tiny" else _megabytes(more),
                f"{run['batch_ms'] / 1000:.2f}",
            )
        )
    columns = ("join", "state, MB", "of it on disk, MB", "memory at most, MB", "its median, MB", "Python processes",
               "over tiny state, MB", "batch, s")  # fmt: skip
    return [Table("memory", _kept(found, quick=results["parts"]["memory"]["quick"]), columns, rows)]


def _kept(found: Found, *, quick: bool) -> str:
    """Whether the bound was kept, in words."""
    bounded, more = next(run for run in found if run["name"] == "bounded"), more_than_tiny(found, "bounded")
    if more is None or not same_results(found):
        return "Not measured, or the results differ."
    memory, state = bounded["memory"], bounded["state_bytes"]
    return (
        f"Two shards, batches of {bounded['rows']:,} rows; `memory` is {_megabytes(memory)} MB, and the state is "
        f"{state / memory:.1f} times as large. The results are the same. Memory is that of all Python workers "
        "(PSS) with the files of the working states. It is to be at most "
        f"{_megabytes(memory)} MB over that of the same join with tiny state: {_megabytes(more)} MB, "
        f"{answer(more <= memory, quick=quick)}."
    )


def _megabytes(count: float) -> str:
    return f"{count / 1e6:,.1f}"


def _failed(title: str, reason: str) -> Table:
    return Table(title, f"Not measured. {reason}", (), [])


def _milliseconds(row: Found) -> str:
    return f"{row['median']:,.0f} ({row['low']:,.0f}–{row['high']:,.0f})"


def _short(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.2f}"


TABLES: dict[str, Callable[[Found, dict[str, Any]], list[Table]]] = {
    "shard": shard,
    "blobs": blobs,
    "bytes": moved,
    "network": network,
    "simulator": simulator,
    "cost": costs,
    "workers": workers,
    "memory": memory,
}
