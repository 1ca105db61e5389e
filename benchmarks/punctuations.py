"""The costs and savings of punctuations: state and throughput of the engine's operators on punctuated streams.

    python -m benchmarks.punctuations [--quick] [--only CASE] [--out DIR]
    python -m benchmarks.punctuations --redraw       tables, chart and README again from the last results

One shard, one process, no Spark. Operators take turns within a repetition, so that a machine that slows down slows
all of them.
"""

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
from rich.console import Console
from rich.progress import Progress

from benchmarks import command, punctuation_report
from benchmarks.operators import Case, auction_house, many_punctuations, punct, run
from benchmarks.spark import describe, schedule
from watersmeet.kernels.warm_up import warm_up

EVERY = ("nested_loop", "hash, 100 buckets", "hash", "pwjoin")
ASCENDING = ("punct-asc-100-40", "punct-asc-100-40")
MIXED = ("punct-asc-30-40", "punct-random-30-40")


def cases(quick: bool) -> list[Case]:
    """All cases; quick ones have a tenth of the data and run once."""
    part, turns = (10, 1) if quick else (1, 7)
    made = [
        Case(
            f"state-{window}",
            f"two punct-asc-100-40, a tuple every 10 ms, windows of {window} s, batches of 2 s",
            punct(ASCENDING, 20_000 // part, 0.01, window, 2.0, values=400),
            EVERY if window != 15 else (*EVERY, "pjoin"),
            repetitions=1,
        )
        for window in (1, 5, 15)
    ]
    made += [
        Case(
            f"rate-{window}",
            f"two punct-asc-100-40, a tuple every ms, windows of {window} s, batches of 5 s",
            punct(ASCENDING, 100_000 // part, 0.001, window, 5.0, values=1_500),
            (*EVERY, "hash, informed", "pjoin"),
            repetitions=turns,
        )
        for window in (5, 15)
    ]
    fast = {"tuples": 800_000 // part, "gap": 1e-5, "batch": 0.5}
    return [
        *made,
        Case(
            "without",
            "keys at random of 100,000, a tuple every 10 µs, windows of 2 s, batches of 0.5 s; no punctuations",
            punct(("uniform-100000", "uniform-100000"), window=2.0, **fast),
            ("hash", "pwjoin, none"),
            turns,
        ),
        Case(
            "irrelevant",
            "punct-asc-30-40 and punct-random-30-40, a tuple every 10 µs, windows of 0.5 s, batches of 0.5 s; no "
            "punctuation matches any tuple",
            punct(MIXED, window=0.5, values=40_000, irrelevant=True, **fast),
            ("hash", "pwjoin, none", "pwjoin"),
            turns,
        ),
        *(
            Case(
                f"punctuations-{name}",
                f"100,000 stored tuples of one stream, then as many punctuations of the other, in turn; {key} keys",
                many_punctuations(kind, 100_000 // part, 8),
                ("pwjoin",),
                turns,
            )
            for name, key, kind in (("int", "64-bit", pa.int64()), ("string", "string", pa.string()))
        ),
        *(
            Case(
                f"auctions-{wait}",
                "unique auctions of half an hour to an hour and a half, bids within 12 hours of the opening, 2 % of "
                f"the punctuations lost, 36 hours; auctions wait 12 h for bids, bids {wait} h for auctions",
                auction_house(36, 60_000 // part, 0.02, wait),
                ("hash", "pwjoin"),
                repetitions=1,
            )
            for wait in (12, 0)
        ),
    ]


def run_all(chosen: list[Case], quick: bool, console: Console) -> dict[str, Any]:
    warm_up(baselines=True)
    found = {case.name: describe(case, quick) for case in chosen}
    with Progress(console=console) as progress:
        bar = progress.add_task("", total=sum(len(schedule(c, list(c.contenders))) for c in chosen))
        for case in chosen:
            for repetition, name in schedule(case, list(case.contenders)):
                progress.update(bar, description=f"{case.name}, {repetition + 1} of {case.repetitions}: {name}")
                found[case.name]["runs"].append({"repetition": repetition} | run(case, name))
                progress.advance(bar)
    return found


def write(results: dict[str, Any], folder: Path, console: Console) -> None:
    punctuation_report.draw(results, folder / "punctuations.svg")
    command.publish(
        "punctuations",
        punctuation_report.markdown(results),
        punctuation_report.tables(results),
        folder,
        console,
        "state",
    )


def main() -> None:
    parser = command.parser("punctuations", __doc__, "a tenth of the data, once")
    parser.add_argument("--only", action="append", metavar="CASE", help="run this case; the others keep their results")
    options = parser.parse_args()
    folder = command.folder_of(options)
    stored, console = folder / "punctuations.json", Console()
    results = command.read(stored, {"cases": {}})
    if not options.redraw:
        chosen = [case for case in cases(options.quick) if not options.only or case.name in options.only]
        if not chosen:
            parser.error(f"no such case; there are {', '.join(case.name for case in cases(True))}")
        results["cases"] |= run_all(chosen, options.quick, console)
        stored.write_text(json.dumps(results))
    write(results, folder, console)


if __name__ == "__main__":
    main()
