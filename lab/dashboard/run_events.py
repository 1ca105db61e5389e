"""Runs as events, made up but consistent: two streams of an auction house, four batches or more."""

from __future__ import annotations

import random
from datetime import UTC, datetime, timedelta
from typing import Any

BEGAN = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)


def at(seconds: float) -> str:
    return (BEGAN + timedelta(seconds=seconds)).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def plan(*names: str) -> dict[str, Any]:
    streams = [
        {
            "name": name,
            "time": "at",
            "window": "10 seconds",
            "delay": "2 seconds" if i else "0 seconds",
            "uses_punctuations": True,
            "punctuations": ["unique"] if i == 0 else ["value"],
            "retention": f"a row of {name} is kept until the other is past it",
            "late": f"rows of {name} that are late are counted",
        }
        for i, name in enumerate(names)
    ]
    facts = {
        "algorithm": "pwjoin",
        "how": "inner",
        "on": ["item_id"],
        "mode": "streaming",
        "shards": 2,
        "divided": "keys divided by hash",
        "streams": streams,
        "settings": {},
    }
    svg = '<svg xmlns="http://www.w3.org/2000/svg" width="10" height="10"><title>plan</title></svg>'
    return {"kind": "plan", "at": at(0), "plan": facts, "svg": svg}


def batch(number: int, names: tuple[str, ...] = ("auctions", "bids"), run: str = "run-1") -> dict[str, Any]:
    """A batch; the same number always gives the same values."""
    draw = random.Random(number)
    streams = []
    for i, name in enumerate(names):
        rows = draw.randint(900, 1100) * (1 + 9 * i)
        stored = min(number + 1, 5) * rows // 2
        streams.append(
            {
                "name": name,
                "rows_in": rows,
                "late": draw.randint(0, 3) * i,
                "violations": int(number == 2 and i == 1),
                "stored": stored,
                "bytes": stored * 90,
                "closed": rows if i == 0 else 40,
                "ranges": 0,
                "keys": stored // 10,
                "newest": 1_772_366_400_000_000 + (2 * number + 2 - i) * 1_000_000,
                "delay": None,
                "scrambling": None,
                "watermark": 1_772_366_400_000_000 + 2 * number * 1_000_000,
                "lag": float(i),
                "predicted": None if number == 0 else stored + 50,
                "predicted_bytes": None if number == 0 else (stored + 50) * 90,
                "hot": [{"key": f"item {k}", "rows": 60 - k, "share": (60 - k) / rows} for k in range(3)],
                "split": ["item 0"] if i == 1 else [],
            }
        )
    rows_in = sum(s["rows_in"] for s in streams)
    stored = sum(s["stored"] for s in streams)
    late, violations = sum(s["late"] for s in streams), sum(s["violations"] for s in streams)
    left = {"window": 10 * number, "punctuation": 7 * number, "dead": number, "matched": 0, "shed": 0}
    fuller = rows_in // 2 + 100
    return {
        "kind": "batch",
        "run": run,
        "batch": number,
        "at": at(2 * number),
        "seconds": 0.8,
        "interval": 2.0,
        "rows_in": rows_in,
        "rows_out": rows_in * 2 // 3,
        "state": {"tuples": stored, "bytes": stored * 90},
        "streams": streams,
        "left": left,
        "late": late,
        "violations": violations,
        "spark_ms": {"triggerExecution": 800, "addBatch": 600, "walCommit": 60, "queryPlanning": 40},
        "shard_ms": {"decode": 20.5, "load": 5.0, "join": 90.25, "emit": 30.0, "save": 15.0},
        "shards": [
            {"shard": 0, "rows_in": fuller, "tuples": stored // 2, "bytes": stored * 45, "ms": 160.75},
            {
                "shard": 3,
                "rows_in": rows_in - fuller,
                "tuples": stored - stored // 2,
                "bytes": stored * 45,
                "ms": 140.0,
            },
        ],
        "shard_count": 2,
        "skew": round(2 * fuller / rows_in, 3),
        "operators": {},
        "counters": {"rows_in": rows_in, "results": rows_in * 2 // 3, "late": late, "stored": stored},
    }


def run(batches: int = 4, names: tuple[str, ...] = ("auctions", "bids"), run: str = "run-1") -> list[dict[str, Any]]:
    """A whole run, from its plan to its end."""
    started = {"kind": "started", "run": run, "query": "query-1", "name": "auction house", "at": at(0)}
    ended = {"kind": "ended", "run": run, "at": at(2 * batches), "error": None}
    return [plan(*names), started, *(batch(n, names, run) for n in range(batches)), ended]
