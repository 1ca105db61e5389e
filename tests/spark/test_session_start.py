"""What a session does beside the user's first lines: it loads what the first batch needs, and never fails by that."""

from __future__ import annotations

import logging

import pytest
from pyspark import SparkContext
from pyspark.sql import SparkSession

from watersmeet.spark import session as sessions


@pytest.mark.spark
def test_the_state_store_is_loaded_into_the_jvm(spark: SparkSession, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, "watersmeet")
    sessions._load_state_store()
    assert caplog.messages == []


def test_a_jvm_that_has_gone_is_no_error(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    monkeypatch.setattr(SparkContext, "_jvm", None)
    caplog.set_level(logging.DEBUG, "watersmeet")
    sessions._load_state_store()
    assert [message.partition(":")[0] for message in caplog.messages] == ["the state store was not loaded"]
