"""Errors travel between processes, and are found again in what Spark says of them."""

from __future__ import annotations

import pickle

import pytest

from watersmeet import errors
from watersmeet.errors import QueryError, StateError, StateMismatchError, WatersmeetError, found_in

ALL = [kind for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, WatersmeetError)]


@pytest.mark.parametrize("kind", ALL)
@pytest.mark.parametrize("hint", [None, "do this."])
def test_an_error_keeps_its_text_and_its_hint_when_pickled(kind: type[WatersmeetError], hint: str | None) -> None:
    error = kind("what is wrong.", hint=hint)
    for _ in range(2):
        error = pickle.loads(pickle.dumps(error))
    assert type(error) is kind
    assert error.hint == hint
    assert str(error) == ("what is wrong." if hint is None else "what is wrong.\nHint: do this.")


TRACE = "[STREAM_FAILED] terminated with exception:\n  File worker.py\nwatersmeet.errors."


@pytest.mark.parametrize(
    ("text", "kind", "message", "hint"),
    [
        (
            "StateMismatchError: another query.\nHint: undo it.\n SQLSTATE: 39000",
            StateMismatchError,
            "another query.",
            "undo it.",
        ),
        (
            "StateMismatchError: another query.\nHint: undo it.\n\n\tat org.apache",
            StateMismatchError,
            "another query.",
            "undo it.",
        ),
        ("QueryError: one\n  and two\n\tat org.apache", QueryError, "one\n  and two", None),
        ("QueryError: one. SQLSTATE: 39000", QueryError, "one.", None),
        ("QueryError: one.\n=== Streaming Query ===", QueryError, "one.", None),
        ("QueryError: one.", QueryError, "one.", None),
    ],
    ids=["in a batch", "in a worker", "several lines", "no hint", "before the plan", "at the end"],
)
def test_an_error_of_ours_is_found_in_one_of_spark(
    text: str, kind: type[WatersmeetError], message: str, hint: str
) -> None:
    found = found_in(TRACE + text)
    assert type(found) is kind
    assert found.hint == hint
    assert str(found) == (message if hint is None else f"{message}\nHint: {hint}")


def test_what_is_not_ours_is_not_found() -> None:
    assert found_in("java.io.IOException: the disk is full") is None
    assert found_in(f"{TRACE}NoSuchError: what") is None
    assert found_in(f"{TRACE}re: what") is None


def test_a_batch_that_was_not_read_to_its_end_is_recognised() -> None:
    found = found_in("terminated with exception: assertion failed: CheckpointInfo length: 0, numPartitions: 2 SQLSTATE")
    assert isinstance(found, StateError)
    assert str(found).startswith("a batch was not read to its end")
    assert found.hint == (
        "use wm.write, whose sinks may read what they like, or call batch.persist() and batch.count() first."
    )
