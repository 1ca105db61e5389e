"""Nothing that is read from a state, a pipeline or an event can run: no pickle, no code, no shell."""

from __future__ import annotations

import ast
import json
import pickle
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import watersmeet
from watersmeet.errors import StateCorruptError, StateError
from watersmeet.joins import plan
from watersmeet.joins.hash_join import HashJoin
from watersmeet.model.queries import JoinQuery, StreamSpec
from watersmeet.model.windows import TimeWindow
from watersmeet.state import segments
from watersmeet.state.durable import log

SOURCE = Path(watersmeet.__file__).parent
#: Modules that turn bytes or text into code or objects of any kind.
CALLS = {"eval", "exec", "compile", "__import__"}
DANGEROUS = {"pickle", "cloudpickle", "dill", "marshal", "shelve", "jsonpickle", "joblib", "code", "codeop"}
DANGEROUS |= CALLS | {"os.system", "os.popen", "shell=", "allow_pickle="}
#: What Spark itself would pickle with the plan, folded; it is never part of a state.
ALLOWED = {"spark/runtime/lazy_processor.py": {"pickle"}}


def modules() -> Iterator[tuple[str, ast.Module]]:
    for path in sorted(SOURCE.rglob("*.py")):
        yield path.relative_to(SOURCE).as_posix(), ast.parse(path.read_text())


def dangers(tree: ast.Module) -> Iterator[str]:
    """Names of dangerous modules and functions that a module uses."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name.partition(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.module.partition(".")[0]
        elif isinstance(node, ast.Call):
            called = node.func
            if isinstance(called, ast.Name) and called.id in CALLS:
                yield called.id
            if isinstance(called, ast.Attribute) and called.attr in ("system", "popen"):
                yield f"os.{called.attr}"
            for word in node.keywords:
                if word.arg == "shell" and not (isinstance(word.value, ast.Constant) and word.value.value is False):
                    yield "shell="
                if word.arg == "allow_pickle" and not (isinstance(word.value, ast.Constant) and not word.value.value):
                    yield "allow_pickle="


def test_no_module_loads_code_or_objects() -> None:
    used = {name: set(dangers(tree)) & DANGEROUS for name, tree in modules()}
    found = {name: bad - ALLOWED.get(name, set()) for name, bad in used.items() if bad - ALLOWED.get(name, set())}
    assert not found


def test_the_check_finds_what_it_looks_for() -> None:
    text = "import pickle as p\nfrom marshal import loads\neval('1')\nos.system('x')\nrun('x', shell=True)"
    assert set(dangers(ast.parse(text))) >= {"pickle", "marshal", "eval", "os.system", "shell="}


# ---------------------------------------------------------------- a state that tries


class Bomb:
    """Unpickled, it would leave a mark."""

    def __init__(self, mark: Path) -> None:
        self.mark = mark

    def __reduce__(self) -> tuple[Any, ...]:
        return (Path.touch, (self.mark,))


def query() -> JoinQuery:
    def spec(name: str) -> StreamSpec:
        schema = pa.schema([(f"{name}_ts", pa.int64()), ("k", pa.int64()), (f"{name}_n", pa.string())])
        return StreamSpec(name, schema, f"{name}_ts", ("k",), TimeWindow(10), 0)

    return JoinQuery((spec("a"), spec("b")))


def sealed(given: dict[str, Any] | bytes) -> bytes:
    """A header that says so, with a checksum that fits."""
    body = given if isinstance(given, bytes) else json.dumps(given).encode()
    return f"watersmeet-state {log.FORMAT} {zlib.crc32(body):08x}\n".encode() + body


def header(**more: Any) -> dict[str, Any]:
    packed = log.begin(query()).pack()
    return json.loads(packed.partition(b"\n")[2]) | more


def test_a_pickle_is_no_header(tmp_path: Path) -> None:
    mark = tmp_path / "mark"
    with pytest.raises(StateCorruptError, match="does not begin as one"):
        log.Header.unpack(pickle.dumps(Bomb(mark)))
    assert not mark.exists()


@pytest.mark.parametrize("data", [b"", b"no Arrow", pickle.dumps({"a": 1})])
def test_a_segment_that_is_not_arrow_is_refused_though_its_checksum_fits(data: bytes) -> None:
    with pytest.raises(StateCorruptError) as caught:
        segments.unpack(7, data, zlib.crc32(data))
    assert str(caught.value) == (
        "segment 7 of the state is not an Arrow stream.\nHint: restore the checkpoint from a copy; nothing was changed."
    )


@pytest.mark.parametrize(
    "wrong",
    [
        {"segments": [{"id": 1}]},
        {"versions": [3]},
        {"surprise": 1},
        {"segments": None},
        {"segments": [{"id": {}, "stream": 0, "size": 1, "checksum": 1}]},
        {"versions": [{"token": "x", "added": [[]]}]},
        {"watermarks": "soon"},
        {"watermarks": [1 << 70, 0.5]},
        {"metadata": [7]},
    ],
    ids=str,
)
def test_a_header_of_another_shape_is_refused_though_its_checksum_fits(wrong: dict[str, Any]) -> None:
    with pytest.raises(StateError, match="header is not one of this format"):
        log.Header.unpack(sealed(header(**wrong)))


@pytest.mark.parametrize(
    "wrong",
    [
        {"watermarks": [1]},
        {"segments": [{"id": 1, "stream": 7, "size": 1, "checksum": 1}]},
    ],
    ids=str,
)
def test_a_state_that_makes_no_sense_is_refused_though_its_checksums_fit(wrong: dict[str, Any]) -> None:
    (rows,) = pa.table({"x": ["of another join"]}).to_batches()
    store = log.MemoryStore()
    store.write_segment(1, segments.pack(rows))
    for entry in wrong.get("segments", ()):
        entry["checksum"] = zlib.crc32(store.segments[1])
    found = log.Header.unpack(sealed(header(**wrong)))
    with pytest.raises(StateError, match="is not one of this format"):
        log.rebuild(plan(query(), "pwjoin").start(), found, store)


def test_a_header_that_goes_too_deep_is_refused() -> None:
    with pytest.raises(StateError, match="is not one of this format"):
        log.Header.unpack(sealed(b"[" * 100_000))


def test_rows_with_code_in_them_are_rows() -> None:
    """What looks like code in a row comes out as it went in."""
    texts = ["__import__('os').system('true')", "{{7*7}}", "${jndi:ldap://x}", "'; DROP TABLE a; --", "<script>"]
    rows = pa.record_batch([pa.array([1] * 5), pa.array([1] * 5), pa.array(texts)], schema=query().streams[0].schema)
    other = pa.record_batch([pa.array([2]), pa.array([1]), pa.array(["b"])], schema=query().streams[1].schema)
    join, store = HashJoin().start(query()), log.MemoryStore()
    from watersmeet.model.batches import Batch, no_rows

    first = [Batch.of(rows, "a_ts"), Batch.of(no_rows(other.schema), "b_ts")]
    assert not list(join.step(first))
    log.commit(join, log.begin(query()), store)
    assert store.header is not None
    join = HashJoin().start(query())
    log.rebuild(join, log.Header.unpack(store.header), store)
    second = [Batch.of(no_rows(rows.schema), "a_ts"), Batch.of(other, "b_ts")]
    (found,) = join.step(second)
    assert sorted(found.column("a_n").to_pylist()) == sorted(texts)
