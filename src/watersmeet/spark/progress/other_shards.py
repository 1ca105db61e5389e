"""The reports of many shards, bounded: those of the slowest shards in full, those of the others summed by the driver.

A report takes two kilobytes or more, and Spark keeps the progress of the last hundred batches. So beyond `LISTED`
shards a report ends with its time and its `sums`: the values of all numbers of which the sum over the shards has a
meaning, behind their names in one text, which the driver compares for each shard. The observed metrics then are the
reports of the slowest shards, `LISTED` of them or as many as fit into `LISTED_BYTES`, without these; and the sums of
the others, which make one more report, whose `shards` is their number.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import takewhile
from typing import Any

from pyspark.sql import Column
from pyspark.sql import functions as F

#: Shards of which the progress has the whole report.
LISTED = 64
#: Bytes of these reports together.
LISTED_BYTES = 128 << 10
#: Where a shard's time goes.
PARTS = ("decode", "load", "join", "emit", "watch", "save")
#: Numbers of the whole report that are not summed: those of streams or of processes.
ALIKE = ("shard", "idle", "worker_bytes", "time_us")
#: Fields of a stream that are summed over the shards, and those of its statistics.
OF_STREAM = ("rows_in", "late", "violations", "stored", "bytes", "closed", "keys")
OF_STATISTICS = ("rate", "distinct", "window_tuples", "punctuation_rate", "set_size")

#: Where the numbers begin that stand behind a report, and what is between two of their names.
END, BETWEEN = ', "time_us": ', ","

Report = dict[str, Any]


def with_sums(report: Report) -> Report:
    """The report of a shard with its time, by which shards are listed, and its sums."""
    time, sums = sum(report.get(f"{part}_us", 0) for part in PARTS), sums_of(report)
    return report | {"time_us": time, "sums": {"names": BETWEEN.join(sums), "values": list(sums.values())}}


def sums_of(report: Report) -> dict[str, float]:
    """The numbers of a report that are summed, by a path. `has …` counts the shards that have such numbers at all."""
    sums: dict[str, float] = {n: value for n, value in report.items() if type(value) is int and n not in ALIKE}
    for i, stream in enumerate(report.get("streams", ())):
        sums |= {f"streams {i} {name}": stream[name] for name in OF_STREAM if name in stream}
    for i, values in enumerate(report.get("statistics", ())):
        sums |= {f"statistics {i} {name}": values[name] for name in OF_STATISTICS if name in values}
        if "stay" in values:
            sums |= {f"stay {i} tuples": values["stay"] * values["rate"], f"stay {i} rate": values["rate"]}
    for i, pair in enumerate(report.get("expected", ())):
        sums |= {f"expected {i} {n}": value for n, value in enumerate(pair)}
    for i, value in enumerate(report.get("scrambling", ())):
        sums[f"scrambling {i}"] = value
    for name, value in (report.get("predicted") or {}).items():
        sums |= {f"predicted {name}": value, f"has predicted {name}": 1}
    for name in ("expected", "scrambling"):
        if name in report:
            sums[f"has {name}"] = 1
    return sums


def parsed(detail: str) -> str:
    """SQL of a report in the column `detail`, without its end: a struct of time, report and sums.

    Tasks evaluate it, for each report by itself: the driver parses nothing.
    """
    parts = (
        f"split(`{detail}`, '{END}', 2)"  # in a text of JSON all quotes are escaped, so it is found at the end alone
    )
    numbers = "time_us bigint, sums struct<names string, values array<double>>"
    end = f"from_json(concat('{{\"time_us\": ', {parts}[1]), '{numbers}')"
    return f"named_struct('time', {end}.time_us, 'report', concat({parts}[0], '}}'), 'sums', {end}.sums)"


def bounded(reports: Column, shards: int) -> Column:
    """The reports of the slowest shards and the sums of the others, from the `parsed` reports of so many shards.

    Nothing from fewer: every shard is called in a batch, or none, and Spark's scheduler evaluates them whenever a task
    ends, for the tasks so far.
    """

    def listed_and_sums(ranked: Column) -> Column:
        longest = F.array_max(F.transform(ranked, lambda r: F.octet_length(r["report"])))
        fit = F.greatest(F.lit(1), F.least(F.lit(LISTED), F.floor(F.lit(LISTED_BYTES) / longest).cast("int")))
        rest = F.slice(ranked, fit + 1, F.size(ranked))
        # almost all shards have the same names
        each = F.array_distinct(F.transform(rest, lambda r: r["sums"]["names"]))
        sums = F.transform(each, lambda names: F.struct(names.alias("names"), _total(rest, names).alias("values")))
        total = F.to_json(F.struct(F.size(rest).alias("shards"), sums.alias("sums")))
        return F.concat(_texts(F.slice(ranked, 1, fit)), F.array(total))

    # as the only element of an array the ranked reports are computed once
    ranked = F.array(F.sort_array(reports, asc=False))
    return F.when(F.size(reports) >= shards, F.transform(ranked, listed_and_sums)[0]).otherwise(F.array())


def _texts(reports: Column) -> Column:
    return F.transform(reports, lambda r: r["report"])


def _total(reports: Column, names: Column) -> Column:
    """The sums over the reports with these names, value by value."""
    alike = F.transform(F.filter(reports, lambda r: r["sums"]["names"] == names), lambda r: r["sums"]["values"])
    zeros = F.transform(F.split(names, BETWEEN), lambda _: F.lit(0.0))
    return F.aggregate(alike, zeros, lambda all_, values: F.zip_with(all_, values, lambda a, b: a + b))


def listed_and_others(found: Sequence[Report]) -> tuple[list[Report], Report | None]:
    """The reports that are listed, and that of all other shards together; None if all are listed."""
    listed = list(takewhile(lambda report: "shard" in report, found))
    total = next((report for report in found if "shard" not in report), None)
    if total is None:
        return [_without_sums(report) for report in listed], None
    sums: dict[str, float] = {}
    for part in total["sums"]:  # of shards that have the same numbers
        for name, value in zip(part["names"].split(BETWEEN), part["values"], strict=True):
            sums[name] = sums.get(name, 0.0) + value
    return listed, _report_of(sums, total["shards"], listed[0])


def _without_sums(report: Report) -> Report:
    return {name: value for name, value in report.items() if name not in ("sums", "time_us")}


def _report_of(sums: Mapping[str, float], shards: int, alike: Report) -> Report:
    """The report of so many shards together. What is the same in all of them is taken from the report of another."""

    def numbers(path: str, names: Iterable[Any]) -> dict[Any, float]:
        return {name: sums[f"{path} {name}"] for name in names if f"{path} {name}" in sums}

    def all_have(name: str) -> bool:
        return round(sums.get(f"has {name}", 0)) == shards

    report: Report = {name: round(value) for name, value in sums.items() if " " not in name}
    report |= {"shards": shards} | {name: alike[name] for name in ("watermarks", "delays") if name in alike}
    report["streams"] = [
        stream | _rounded(numbers(f"streams {i}", OF_STREAM)) | {"hot": []}
        for i, stream in enumerate(alike.get("streams", ()))
    ]
    if "statistics" in alike:
        report["statistics"] = [
            {"row_bytes": values["row_bytes"]} | numbers(f"statistics {i}", OF_STATISTICS) | _stay(sums, i)
            for i, values in enumerate(alike["statistics"])
        ]
    streams = range(len(report["streams"]))
    if all_have("expected"):
        report["expected"] = [list(_rounded(numbers(f"expected {i}", range(2))).values()) for i in streams]
    if all_have("scrambling"):
        report["scrambling"] = [round(sums[f"scrambling {i}"]) for i in streams]
    predicted = [name.removeprefix("predicted ") for name in sums if name.startswith("predicted ")]
    report["predicted"] = _rounded(numbers("predicted", filter(lambda n: all_have(f"predicted {n}"), predicted)))
    return report


def _stay(sums: Mapping[str, float], i: int) -> dict[str, float]:
    """The mean stay of a tuple, weighted by the rates."""
    rate = sums.get(f"stay {i} rate", 0.0)
    return {"stay": sums[f"stay {i} tuples"] / rate} if rate > 0 else {}


def _rounded(values: dict[Any, float]) -> dict[Any, int]:
    return {name: round(value) for name, value in values.items()}
