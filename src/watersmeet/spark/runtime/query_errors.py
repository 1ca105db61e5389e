"""Errors of a running query: an error of Watersmeet's where that is the cause, with Spark's as its `__cause__`."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from pyspark.errors import StreamingQueryException
from pyspark.sql.streaming.query import StreamingQuery

from watersmeet.errors import found_in


class _OwnErrors:
    """Methods of a query that raise or return its error."""

    def awaitTermination(self, timeout: int | None = None) -> bool | None:
        with _own():
            ended: bool | None = super().awaitTermination(timeout)  # type: ignore[misc]  # Spark's
            return ended

    def processAllAvailable(self) -> None:
        with _own():
            super().processAllAvailable()  # type: ignore[misc]  # Spark's

    def exception(self) -> Exception | None:
        error: Exception | None = super().exception()  # type: ignore[misc]  # Spark's
        ours = None if error is None else found_in(str(error))
        if ours is None:
            return error
        ours.__cause__ = error
        return ours


@contextmanager
def _own() -> Iterator[None]:
    try:
        yield
    except StreamingQueryException as error:
        ours = found_in(str(error))
        if ours is None:
            raise
        raise ours from error


def with_own_errors(query: StreamingQuery) -> StreamingQuery:
    """The query, of Spark or of Spark Connect; it raises errors of Watersmeet's where these are the cause."""
    kind: Any = type(query)
    query.__class__ = type(kind.__name__, (_OwnErrors, kind), {})
    return query
