"""The long tests: processes killed, files torn, an endless run, fuzzing. `./run soak` and `python -m soak`.

python -m soak faults [--faults 200] [--seed 1] [--minutes M] [--kind K …]     go on where the last run ended
python -m soak endless [--minutes 30] [--rows 50000]
python -m soak fuzz [--cases 1000000] [--seed 1] [--target T …] [--only N]
python -m soak guided [--runs 1000000] [--seed 1] [--target T …]            by atheris, which must be installed
python -m soak mishaps [--subject S …] [--examples 100] [--seed 1]      every single mishap of the state protocol, of
                                                    every kind of operator; and many at once, by the state machine
python -m soak report                                                      docs/reliability.md from the results
"""

from __future__ import annotations

import argparse
import signal
import sys
from pathlib import Path

RESULTS = Path(__file__).parent / "results"


def _faults_options(job: argparse.ArgumentParser) -> None:
    from soak.campaign import KINDS

    job.add_argument("--faults", type=int, default=200, metavar="N", help="in all, those of earlier runs included")
    job.add_argument("--seed", type=int, default=1)
    job.add_argument("--minutes", type=float, help="end after so long, to go on another time")
    job.add_argument("--kind", action="append", choices=KINDS, metavar="KIND", help=f"of {', '.join(KINDS)}")
    job.add_argument("--out", type=Path, default=RESULTS / "faults.jsonl")


def _faults(options: argparse.Namespace) -> int:
    from soak import campaign

    kinds = options.kind or campaign.KINDS
    done = campaign.run(options.out, count=options.faults, seed=options.seed, minutes=options.minutes, kinds=kinds)
    bad = [outcome for outcome in done if outcome["outcome"] not in campaign.GOOD]
    print(f"{len(done)} faults, {len(bad)} not as they should be; all of them: {options.out}")
    return bool(bad)


def _endless_options(job: argparse.ArgumentParser) -> None:
    job.add_argument("--minutes", type=float, default=30)
    job.add_argument("--rows", type=int, default=50_000, help="of a stream in a steady batch")
    job.add_argument("--out", type=Path, default=RESULTS / "endless.json")


def _endless(options: argparse.Namespace) -> int:
    from soak import endless

    outcome = endless.run(options.out, minutes=options.minutes, rows=options.rows)
    wrong = [p for p in outcome["predicted"] if p["state"] != p["predicted"]]
    grown = endless.flat(outcome)
    print(f"{len(outcome['samples'])} samples; growth {outcome['growth']}; {len(wrong)} states not as predicted")
    return bool(wrong or grown)


def _fuzz_options(job: argparse.ArgumentParser) -> None:
    job.add_argument("--cases", type=int, default=1_000_000)
    job.add_argument("--seed", type=int, default=1)
    job.add_argument("--target", action="append", metavar="T")
    job.add_argument("--only", type=int, metavar="N", help="one case, in this process")
    job.add_argument("--jobs", type=int, default=2, help="processes at once")
    job.add_argument("--out", type=Path, default=RESULTS / "fuzz.jsonl")


def _fuzz(options: argparse.Namespace) -> int:
    from soak import fuzz
    from soak.targets import TARGETS

    wanted = options.target or list(TARGETS)
    if options.only is not None:
        print(*(f"{name}: {fuzz.one(name, options.seed, options.only)}" for name in wanted), sep="\n")
        return 0
    done = fuzz.run(options.out, cases=options.cases, seed=options.seed, wanted=wanted, jobs=options.jobs)
    for name, ended in fuzz.totals(done).items():
        print(f"{name:18} {dict(ended)}")
    found = [(d["target"], f) for d in done for f in d["findings"]]
    for name, finding in found[:10]:
        print(f"\n{name}, case {finding['number']}:\n{finding['what']}")
    return bool(found)


def _guided_options(job: argparse.ArgumentParser) -> None:
    from soak.guided import GUIDED

    job.add_argument("--runs", type=int, default=1_000_000, help="of each target")
    job.add_argument("--seed", type=int, default=1)
    job.add_argument("--target", action="append", choices=GUIDED, metavar="T", help=f"of {', '.join(GUIDED)}")
    job.add_argument("--out", type=Path, default=RESULTS / "guided.json")


def _guided(options: argparse.Namespace) -> int:
    from soak import guided

    wanted = options.target or list(guided.GUIDED)
    known = guided.run(options.out, runs=options.runs, seed=options.seed, wanted=wanted)
    for target in wanted:
        print(f"{target}: {known[target]}")
    return any(known[target]["finding"] for target in wanted)


def _mishaps_options(job: argparse.ArgumentParser) -> None:
    job.add_argument("--subject", action="append", metavar="S", help="a kind of operator; without it, all of them")
    job.add_argument("--examples", type=int, default=100, help="of the state machine, for each two kinds of operators")
    job.add_argument("--seed", type=int, default=1, help="of the state machine; another one gives other examples")


def _mishaps(options: argparse.Namespace) -> int:
    from lab.tws import mishaps, subject_runs
    from lab.tws.subjects import SUBJECTS

    wanted, failed = options.subject or list(SUBJECTS), 0
    for name in wanted:
        every, found = list(mishaps.mishaps(name)), "none shows"
        try:
            mishaps.check(name, every)
        except AssertionError as error:
            failed, found = failed + 1, f"wrong: {error}"
        print(f"{name}: {len(every)} mishaps, {found}", flush=True)
    for pair in subject_runs.pairs(1 + options.seed % (len(SUBJECTS) // 2)):
        if options.examples and not set(pair).isdisjoint(wanted):
            found = "the protocol holds"
            try:
                subject_runs.check(pair, examples=options.examples, steps=15, seed=options.seed)
            except Exception as error:  # of any kind: the state machine ends with what was raised
                notes = "\n".join(getattr(error, "__notes__", []))
                failed, found = failed + 1, f"wrong: {error!r}\n{notes}"
            print(f"{' and '.join(pair)}: {options.examples} examples, {found}", flush=True)
    return bool(failed)


def _report_options(job: argparse.ArgumentParser) -> None:
    return


def _report(options: argparse.Namespace) -> int:
    from soak import report

    report.write()
    return 0


#: The jobs: a function that adds the options, and one that runs the job.
JOBS = {
    "faults": (_faults_options, _faults),
    "endless": (_endless_options, _endless),
    "fuzz": (_fuzz_options, _fuzz),
    "guided": (_guided_options, _guided),
    "mishaps": (_mishaps_options, _mishaps),
    "report": (_report_options, _report),
}


def main(arguments: list[str]) -> int:
    if not arguments or arguments[0].startswith("-"):
        arguments = ["faults", *arguments]  # what `./run soak` does
    parser = argparse.ArgumentParser(prog="python -m soak", description=(__doc__ or "").splitlines()[0])
    jobs = parser.add_subparsers(dest="job", required=True)
    for name, (add_options, _) in JOBS.items():
        add_options(jobs.add_parser(name))
    options = parser.parse_args(arguments)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # leave through every `with`: nothing stays behind
    return JOBS[options.job][1](options)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
