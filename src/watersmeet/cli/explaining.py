"""`watersmeet explain`: what a pipeline, or a query alone, would do."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from rich.console import Console

from watersmeet.cli import spark_log
from watersmeet.errors import QueryError
from watersmeet.pipelines import secrets


def explain(asked: str, *, as_json: bool, svg: Path | None, master: str | None) -> None:
    """Print what a pipeline or a query would do. A pipeline is planned by Spark, a query alone needs none."""
    if is_query(asked):
        if svg is not None:
            raise QueryError("`--svg` draws the plan of a pipeline.", hint="give the query its streams in a pipeline.")
        text, facts = _query(asked)
    else:
        text, facts = _pipeline(Path(asked), svg, master)
    shown = json.dumps(facts, indent=2) if as_json else text
    Console(highlight=False, soft_wrap=True, markup=False).print(secrets.hide(shown))


def is_query(asked: str) -> bool:
    words = asked.split(maxsplit=1)
    return len(words) > 1 and words[0].upper().partition("(")[0] in ("SELECT", "ISTREAM", "RSTREAM", "DSTREAM")


def _pipeline(file: Path, svg: Path | None, master: str | None) -> tuple[str, dict[str, Any]]:
    from watersmeet.pipelines.reader import read

    pipeline = read(file)
    from watersmeet.spark.pipelines import assembly

    with spark_log.aside() as log:
        with spark_log.redirected(log):
            spark = assembly.session(pipeline, master)
        try:
            told = assembly.joined(pipeline, spark).explain()
            if svg is not None:
                svg.write_text(told.to_svg(), encoding="utf-8")
            return str(told), told.to_dict()
        finally:
            spark.stop()


def _query(text: str) -> tuple[str, dict[str, Any]]:
    from watersmeet.query.batch import batch_sql
    from watersmeet.query.lowering import Known, lower
    from watersmeet.query.reader import read
    from watersmeet.query.stand_alone import named_columns, spelled

    asked = read(text, named_columns(text))
    plan = lower(text, asked, {one.name: Known("time") for one in asked.inputs})
    batch = batch_sql(asked, {one.name: "time" for one in asked.inputs})
    facts = spelled(asked, plan) | {"batch": batch}
    return "\n".join(_lines(facts)), facts


def _lines(facts: dict[str, Any]) -> list[str]:
    lines = [f"{facts['how']} join of {', '.join(s['name'] for s in facts['streams'])} on {', '.join(facts['on'])}"]
    for s in facts["streams"]:
        lines.append(f"  {s['name']} ({s['stream']}): {s['window']}; brings {', '.join(s['columns'])}")
        if s["where"]:
            lines.append(f"    only where {s['where']}, which is asked below the join")
    if facts["where"]:
        lines.append(f"  where {facts['where']}, which the join asks of every pair")
    if facts["groups"]:
        lines.append(f"  groups by {', '.join(facts['groups'])}")
    lines.append(f"  tells {', '.join(facts['outputs'])}")
    return [*lines, "  as a batch, over tables of the same names:", *(f"    {x}" for x in facts["batch"].splitlines())]
