"""What is written to Delta Lake and Iceberg, without either; `tests/kafka/test_deliveries.py` has both."""

from __future__ import annotations

from typing import Any
from unittest.mock import MagicMock

import pytest

import watersmeet as wm
from watersmeet.pipelines.pipeline import Sink
from watersmeet.spark.pipelines import sinks


def rows(*, last: int | None = None, exists: bool = True, empty: bool = False) -> Any:
    """A DataFrame for a table with batches up to `last`."""
    df = MagicMock()
    df.isEmpty.return_value = empty
    df.sparkSession.catalog.tableExists.return_value = exists
    found = df.sparkSession.table.return_value.where.return_value.selectExpr.return_value
    found.collect.return_value = [{"last": last}]
    for chained in (df.write.format.return_value.mode.return_value, df.writeTo.return_value):
        chained.options.return_value = chained
    return df


def options(chained: Any) -> dict[str, str]:
    return {name: value for call in chained.options.call_args_list for name, value in call.kwargs.items()}


def test_delta_is_given_the_query_and_the_batch() -> None:
    df = rows()
    wm.delta("s3a://lake/results", mergeSchema="true").write(df, 7, "id/results")
    writer = df.write.format.return_value.mode.return_value
    df.write.format.assert_called_once_with("delta")
    df.write.format.return_value.mode.assert_called_once_with("append")
    assert options(writer) == {"mergeSchema": "true", "txnAppId": "id/results", "txnVersion": "7"}
    writer.save.assert_called_once_with("s3a://lake/results")


@pytest.mark.parametrize(("last", "appended"), [(None, 1), (6, 1), (7, 0), (8, 0)])
def test_iceberg_appends_a_batch_that_is_not_there(last: int | None, appended: int) -> None:
    df = rows(last=last)
    wm.iceberg("lake.shop.results").write(df, 7, "id/results")
    df.sparkSession.table.assert_called_once_with("lake.shop.results.snapshots")
    df.sparkSession.table.return_value.where.assert_called_once_with("summary['watersmeet-writer'] = 'id/results'")
    writer = df.writeTo.return_value
    assert writer.append.call_count == appended
    if appended:
        assert options(writer) == {
            "snapshot-property.watersmeet-writer": "id/results",
            "snapshot-property.watersmeet-batch": "7",
        }


def test_iceberg_creates_a_table_that_is_not_there() -> None:
    df = rows(exists=False)
    wm.iceberg("lake.shop.results").write(df, 0, "id/results")
    df.where.assert_called_once_with("false")
    df.where.return_value.writeTo.return_value.using.assert_called_once_with("iceberg")
    df.where.return_value.writeTo.return_value.using.return_value.create.assert_called_once_with()


@pytest.mark.parametrize("table", [wm.delta("t"), wm.iceberg("lake.t")])
def test_an_empty_batch_makes_no_version(table: Any) -> None:
    df = rows(empty=True)
    table.write(df, 0, "id/results")
    assert not df.write.method_calls
    assert not df.writeTo.called


def test_a_pipeline_names_them_as_formats() -> None:
    assert sinks.writer(Sink("results", "delta", "/lake/results", {"mergeSchema": "true"})) == wm.delta(
        "/lake/results", mergeSchema="true"
    )
    assert sinks.writer(Sink("late", "iceberg", "lake.shop.late")) == wm.iceberg("lake.shop.late")
