"""Every example of the documents runs and prints what stands below it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

import watersmeet as wm
from lab import ROOT
from lab.pages.fences import blocks, printed
from watersmeet.model.batches import Batch, no_rows
from watersmeet.model.queries import JoinQuery, StreamSpec
from watersmeet.model.windows import TimeWindow, Unbounded

pytestmark = [pytest.mark.spark, pytest.mark.more]

#: Pages that are run from top to bottom, by a Python of their own.
WHOLE = (
    "start",
    "which-join",
    "intervals",
    "migrating",
    "punctuations",
    "lateness",
    "memory",
    "operating",
    "monitoring",
    "workloads",
    "testing",
    "operators/theta",
)
#: Pages with fragments: they speak of streams that the reader has.
FRAGMENTS = sorted(
    page.relative_to(ROOT).as_posix()
    for page in [ROOT / "README.md", *(ROOT / "docs").rglob("*.md")]
    if page.relative_to(ROOT).as_posix() not in [f"docs/{name}.md" for name in WHOLE]
    and any(b.language == "python" for b in blocks(page))
)


@pytest.mark.parametrize("name", WHOLE)
def test_a_page_from_top_to_bottom(name: str, tmp_path: Path) -> None:
    ran = printed(ROOT / "docs" / f"{name}.md", tmp_path)
    assert any(b.language == "python" for b, _ in ran)
    for (block, _), (_, before) in zip(ran[1:], ran, strict=False):
        if block.language == "text":
            assert _stripped(before) == _stripped(block.text), f"{name}.md, line {block.line}"


def _stripped(text: str) -> list[str]:
    return [line.rstrip() for line in text.strip().splitlines()]


@pytest.mark.parametrize("page", FRAGMENTS)
def test_fragments(page: str, spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wm, "session", lambda **_: spark, raising=False)
    monkeypatch.chdir(tmp_path)
    names = _names(page, spark)
    for folder, header in (("auctions", "item_id,opened_at,title"), ("bids", "item_id,bid_at,price")):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "1.csv").write_text(header + "\n")
    before = {query.id for query in spark.streams.active}
    for block in blocks(ROOT / page):
        if block.language == "python":
            text = block.text.replace('.csv("', f'.csv("{tmp_path}/')
            exec(compile("\n" * block.line + text, page, "exec"), names)
    for query in spark.streams.active:
        if query.id not in before:
            query.stop()


def _names(page: str, spark: SparkSession) -> dict[str, Any]:
    """What the fragments of a page take as given."""

    def frame(ddl: str) -> Any:
        return spark.createDataFrame([], ddl)

    auction_df = frame("item_id long, opened_at timestamp, seller string, reserve double")
    bid_df = frame("item_id long, bid_at timestamp, price double, bidder string, closed boolean")
    names: dict[str, Any] = {
        "wm": wm,
        "spark": spark,
        "auction_df": auction_df,
        "bid_df": bid_df,
        "order_df": frame("order_id long, placed_at timestamp"),
        "invoice_df": frame("order_id long, sent_at timestamp, last boolean"),
        "query": _query(3, Unbounded() if "wo_join" in page else TimeWindow(10)),
    }
    sensors = [frame(f"epoch long, {n}_at timestamp, {n} long") for n in "abc"]
    different = [
        frame(ddl) for ddl in ("p_at timestamp, x long", "q_at timestamp, x long, y long", "r_at timestamp, y long")
    ]
    for n, df in zip("abcpqr", [*sensors, *different], strict=True):
        names[n] = wm.stream(df, time=f"{n}_at", window="10 seconds", name=n)
    if "wo_join" in page:
        names |= {f"s{i + 1}": wm.stream(sensors[i], time=f"{n}_at", name=f"s{i + 1}") for i, n in enumerate("abc")}
    auctions = wm.stream(
        auction_df, time="opened_at", window="1 hour", punctuation=wm.unique("item_id"), name="auctions"
    )
    closing = wm.when("closed", on="item_id")
    bids = wm.stream(bid_df, time="bid_at", window="1 hour", punctuation=closing, name="bids")
    names |= {"auctions": auctions, "bids": bids, "joined": wm.join(auctions, bids, on="item_id")}
    if page.endswith(("hash.md", "nested_loop.md")):
        names["query"] = _query(2, TimeWindow(10))
    if page.endswith("cql.md"):
        names["query"] = (
            "SELECT A.item_id FROM auction [RANGE 1 HOUR] A, bid [RANGE 1 HOUR] B WHERE A.item_id = B.item_id"
        )
    for n, stream in zip("ab", _query(2, TimeWindow(10)).streams, strict=True):
        names[f"batch_{n}"] = Batch(no_rows(stream.schema))
    return names


def _query(streams: int, window: Any) -> JoinQuery:
    def spec(n: str) -> StreamSpec:
        schema = pa.schema([("k", pa.int64()), (f"{n}_ts", pa.int64())])
        return StreamSpec(n, schema, f"{n}_ts", ("k",), window)

    return JoinQuery(tuple(map(spec, "abc"[:streams])))
