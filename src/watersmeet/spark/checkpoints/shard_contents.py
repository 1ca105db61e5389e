"""Shards of a stored state, opened where Spark reads them: each worker takes the shards of its partition."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from watersmeet import errors
from watersmeet.checkpoints.contents import Part, parts
from watersmeet.checkpoints.reopen import reopen
from watersmeet.joins.base import RunningJoin
from watersmeet.model.json_values import plain_rows
from watersmeet.state.durable.log import Header, MemoryStore

#: The column with the shard of a tuple; no column of a user has this name.
SHARD = "watersmeet shard"
SUMMARY = pa.schema(
    [
        ("shard", pa.int32()),
        ("part", pa.int32()),
        ("stream", pa.string()),
        *((name, pa.int64()) for name in ("tuples", "bytes", "oldest", "newest", "closed_keys", "ranges", "watermark")),
    ]
)
KEYS = pa.schema([("shard", pa.int32()), ("stream", pa.string()), ("key", pa.string()), ("tuples", pa.int64())])
#: Rows that leave a worker together.
CHUNK = 10_000

Read = Callable[[int, RunningJoin[Any]], Iterator[pa.RecordBatch]]


@dataclass(frozen=True)
class ShardReader:
    """Opens every shard of a partition, and yields what `read` yields for it. A function for `mapInArrow`."""

    headers: dict[int, bytes]
    read: Read

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        stores: dict[int, MemoryStore] = {}
        for batch in batches:
            for shard, id, data in zip(*(c.to_pylist() for c in batch.columns), strict=True):
                stores.setdefault(shard, MemoryStore()).segments[id] = data
        for shard in sorted(stores):
            header = Header.unpack(self.headers[shard])
            yield from self.read(header.index, reopen(header, stores.pop(shard)))


def summary(shard: int, join: RunningJoin[Any]) -> Iterator[pa.RecordBatch]:
    """One row for each part."""
    rows = []
    for n, part in enumerate(parts(join)):
        oldest, newest = part.ends()
        values = {name: getattr(part, name) for name in ("tuples", "bytes", "closed_keys", "ranges", "watermark")}
        rows.append({"shard": shard, "part": n, "stream": part.name, "oldest": oldest, "newest": newest, **values})
    yield pa.RecordBatch.from_pylist(rows, schema=SUMMARY)


def keys(most: int, shard: int, join: RunningJoin[Any]) -> Iterator[pa.RecordBatch]:
    """The keys of a shard that hold most; no other shard has any of them."""
    rows = []
    for part in parts(join):
        for key, tuples in part.largest_keys(most):
            rows.append({"shard": shard, "stream": part.name, "key": key, "tuples": tuples})
    yield pa.RecordBatch.from_pylist(rows, schema=KEYS)


def rows_schema(schema: pa.Schema) -> pa.Schema:
    return schema.append(pa.field(SHARD, pa.int32()))


def rows(name: str, schema: pa.Schema, shard: int, join: RunningJoin[Any]) -> Iterator[pa.RecordBatch]:
    """All rows of a part."""
    for batch in _batches(name, join):
        columns = [*batch.columns, pa.repeat(pa.scalar(shard, pa.int32()), batch.num_rows)]
        yield pa.record_batch([c.cast(f.type) for c, f in zip(columns, schema, strict=True)], schema=schema)


def texts(name: str, shard: int, join: RunningJoin[Any]) -> Iterator[pa.RecordBatch]:
    """All rows of a part, as JSON."""
    for batch in _batches(name, join):
        yield pa.record_batch([pa.array(plain_rows(batch), pa.string())], names=["row"])


def _batches(name: str, join: RunningJoin[Any]) -> Iterator[pa.RecordBatch]:
    found: Part = next(part for part in parts(join) if part.name == name)
    yield from found.rows().to_batches(max_chunksize=CHUNK)


def named(error: Exception, what: str) -> errors.StateError:
    """An error of a worker, or of Spark's reader, as one of ours."""
    text = str(error)
    ours = errors.found_in(text)
    if isinstance(ours, errors.StateError):
        return ours
    return errors.StateError(
        f"{what} cannot be read as the checkpoint of a streaming query: {text.splitlines()[0] if text else error!r}",
        hint="give the folder that was given as checkpoint location; batches older than Spark keeps are gone.",
    )
