"""`watersmeet explain`: the plan of a pipeline, or of a query without streams."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from rich.console import Console

from watersmeet.cli import spark_log
from watersmeet.errors import QueryError
from watersmeet.pipelines import secrets


def explain(target: str, *, as_json: bool, svg: Path | None, master: str | None, verbose: bool = False) -> None:
    """Print the plan of a pipeline or of a query. A pipeline starts Spark, a query does not."""
    if is_query(target):
        if svg is not None:
            raise QueryError("`--svg` draws the plan of a pipeline.", hint="give the query its streams in a pipeline.")
        text, facts = _query(target)
    else:
        text, facts = _pipeline(Path(target), svg, master, verbose=verbose)
    shown = json.dumps(facts, indent=2) if as_json else text
    Console(highlight=False, soft_wrap=True, markup=False).print(secrets.hide(shown))


def is_query(target: str) -> bool:
    parts = target.split(maxsplit=1)
    return len(parts) > 1 and parts[0].upper().partition("(")[0] in ("SELECT", "ISTREAM", "RSTREAM", "DSTREAM")


def _pipeline(file: Path, svg: Path | None, master: str | None, *, verbose: bool) -> tuple[str, dict[str, Any]]:
    from watersmeet.pipelines.loader import read

    pipeline = read(file)
    from watersmeet.spark.pipelines import assembly

    with spark_log.aside() as log:
        with spark_log.redirected(log):
            spark = assembly.session(pipeline, master)
        try:
            explanation = assembly.assemble(pipeline, spark).joined.explain(verbose=verbose)
            if svg is not None:
                svg.write_text(explanation.to_svg(), encoding="utf-8")
            return str(explanation), explanation.to_dict()
        finally:
            spark.stop()


def _query(text: str) -> tuple[str, dict[str, Any]]:
    from watersmeet.query.describe import described, named_columns
    from watersmeet.query.duckdb_query import batch_sql
    from watersmeet.query.lowering import DeclaredStream, lower
    from watersmeet.query.parser import read

    query = read(text, named_columns(text))
    plan = lower(text, query, {one.name: DeclaredStream("time") for one in query.inputs})
    batch = batch_sql(query, {one.name: "time" for one in query.inputs})
    facts = described(query, plan) | {"batch": batch}
    return "\n".join(_lines(facts)), facts


def _lines(facts: dict[str, Any]) -> list[str]:
    lines = [f"{facts['how']} join of {', '.join(s['name'] for s in facts['streams'])} on {', '.join(facts['on'])}"]
    for s in facts["streams"]:
        lines.append(f"  {s['name']} ({s['stream']}): {s['window']}; columns {', '.join(s['columns'])}")
        if s["where"]:
            lines.append(f"    only where {s['where']}, evaluated below the join")
    if facts["where"]:
        lines.append(f"  where {facts['where']}, evaluated by the join on every pair")
    if facts["groups"]:
        lines.append(f"  groups by {', '.join(facts['groups'])}")
    lines.append(f"  outputs {', '.join(facts['outputs'])}")
    return [*lines, "  as a batch, over tables of the same names:", *(f"    {x}" for x in facts["batch"].splitlines())]
