"""The long tests: processes killed, files torn, endless runs, fuzzing. `./run soak` and `python -m soak`.

python -m soak faults [--faults 200] [--seed 1] [--minutes M] [--kind K …]     go on where the last run ended
python -m soak endless [--minutes 30]
python -m soak fuzz [--cases 1000000] [--seed 1] [--target T …]
python -m soak report                                                      docs/reliability.md from the results
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

RESULTS = Path(__file__).parent / "results"


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m soak", description=(__doc__ or "").splitlines()[0])
    jobs = parser.add_subparsers(dest="job", required=True)
    from soak.campaign import GOOD, KINDS

    job = jobs.add_parser("faults", help="kill, tear, fill, stop; then compare with the oracle")
    job.add_argument("--faults", type=int, default=200, metavar="N", help="in all, those of earlier runs included")
    job.add_argument("--seed", type=int, default=1)
    job.add_argument("--minutes", type=float, help="end after so long, to go on another time")
    job.add_argument("--kind", action="append", choices=KINDS, metavar="KIND", help=f"of {', '.join(KINDS)}")
    job.add_argument("--out", type=Path, default=RESULTS / "faults.jsonl")
    options = parser.parse_args(arguments)
    if options.job == "faults":
        from soak import campaign

        chosen = options.kind or KINDS
        done = campaign.run(options.out, count=options.faults, seed=options.seed, minutes=options.minutes, kinds=chosen)
        bad = [outcome for outcome in done if outcome["outcome"] not in GOOD]
        print(f"{len(done)} faults, {len(bad)} not as they should be; all of them: {options.out}")
        return bool(bad)
    return 0


if __name__ == "__main__":
    sys.exit(main())
