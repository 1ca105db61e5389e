"""Nothing that is read from a state, a pipeline or an event can run: no pickle, no code, no shell."""

from __future__ import annotations

import ast
import base64
import json
import pickle
import re
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import watersmeet
from watersmeet.checkpoints.reopen import reopen
from watersmeet.errors import PipelineError, QueryError, StateCorruptError, StateError
from watersmeet.joins import plan
from watersmeet.joins.hash_join import HashJoin
from watersmeet.model.batches import Batch, no_rows
from watersmeet.model.queries import JoinQuery, StreamSpec
from watersmeet.model.windows import TimeWindow
from watersmeet.pipelines.loader import from_text
from watersmeet.query import parser, predicate_parser
from watersmeet.query.expressions import parse_expression
from watersmeet.state import segments
from watersmeet.state.durable import log
from watersmeet.state.punctuations.constraints import unpacked

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


def test_a_segment_whose_texts_lie_elsewhere_is_refused_though_its_checksum_fits() -> None:
    """Kernels follow offsets: these would lead them out of the memory of the process."""
    rows = pa.record_batch({"x": ["one", "two", "three"]})
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, rows.schema) as writer:
        writer.write_batch(rows)
    ends = np.array([0, 3, 6, 11], np.int32).tobytes()
    data = sink.getvalue().to_pybytes()
    assert segments.unpack(7, data, zlib.crc32(data)).rows == rows
    assert data.count(ends) == 1
    data = data.replace(ends, np.array([0, 2_000_000_000, 6, 11], np.int32).tobytes())
    with pytest.raises(StateCorruptError, match="segment 7 of the state is not an Arrow stream"):
        segments.unpack(7, data, zlib.crc32(data))
    with pytest.raises(ValueError, match="Offset invariant failure"):
        unpacked(base64.b64encode(data).decode())


def test_a_type_that_was_once_unpickled_is_not(tmp_path: Path) -> None:
    mark = tmp_path / "mark"
    names = {"ARROW:extension:name": "arrow.py_extension_type", "ARROW:extension:metadata": pickle.dumps(Bomb(mark))}
    schema = pa.schema([pa.field("x", pa.int64(), metadata=names)], {"pandas": pickle.dumps(Bomb(mark))})
    data = segments.pack(pa.record_batch([[1, 2]], schema=schema))
    assert segments.unpack(7, data, zlib.crc32(data)).rows.column(0).to_pylist() == [1, 2]
    assert not mark.exists()


@pytest.mark.parametrize(
    ("part", "wrong"),
    [
        ("query", {"how": "sideways"}),
        ("query", {"streams": []}),
        ("query", {"streams": [7, 8]}),
        ("operator", {"name": "os.system"}),
        ("operator", {"name": ["pwjoin"]}),
        ("operator", {"options": "x"}),
    ],
    ids=str,
)
def test_a_header_that_describes_what_there_is_not_is_not_reopened(part: str, wrong: dict[str, Any]) -> None:
    join, store = plan(query(), "pwjoin").start(), log.MemoryStore()
    list(join.step([Batch.of(no_rows(spec.schema), spec.time) for spec in query().streams]))
    log.commit(join, log.begin(query()), store)
    stored = json.loads((store.header or b"").partition(b"\n")[2])
    stored[part] |= wrong
    with pytest.raises(StateError, match=r"in a way that this version does not know|is not one of this format"):
        reopen(log.Header.unpack(sealed(stored)), store)


# ---------------------------------------------------------------- texts without a bottom


@pytest.mark.parametrize("deep", ["(" * 5000 + "{}" + ")" * 5000, "NOT " * 5000 + "{}"], ids=["brackets", "NOT"])
def test_what_is_nested_too_deeply_is_refused_by_name(deep: str) -> None:
    text = "`{}` is nested too deeply to be read.\nHint: leave out parentheses, or compute parts of it as columns"
    with pytest.raises(QueryError, match=re.escape(text.format("where"))):
        predicate_parser.parse(deep.format("k = 1"), pa.schema([("k", pa.int64())]))
    with pytest.raises(QueryError, match=re.escape(text.format("query"))):
        parser.read(f"SELECT x FROM a, b WHERE {deep.format('a.k = b.k')}", {"a": ["k", "x"], "b": ["k", "y"]})
    assert parse_expression(deep.format("k = 1")) is None


@pytest.mark.parametrize(
    ("value", "what"),
    [
        ("[" * 31 + "]" * 31, "values nested too deeply"),
        ("[" * 50_000, "values nested too deeply"),
        ("{a=" * 5000, "values nested too deeply"),
        ("9" * 5000, "a number of too many digits"),
    ],
    ids=["31 deep", "50000 open", "tables", "digits"],
)
def test_a_pipeline_without_a_bottom_is_refused(value: str, what: str) -> None:
    with pytest.raises(PipelineError) as refused:
        from_text(f"x = {value}", "p.toml", Path(), {})
    assert str(refused.value) == f"p.toml has {what}.\nHint: docs/pipelines.md has all keys and their values."


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


@pytest.mark.parametrize("token", ["../elsewhere", "/elsewhere", "", ".", "0" * 31, "0" * 32 + "/../x", "G" * 32])
def test_a_token_that_would_be_another_folder_is_refused(token: str) -> None:
    """Working states are folders of these names, which are renamed and removed."""
    for wrong in ({"token": token}, {"versions": [{"token": token, "added": []}]}):
        with pytest.raises(StateError, match="32 hexadecimal digits"):
            log.Header.unpack(sealed(header(**wrong)))


def test_a_header_that_goes_too_deep_is_refused() -> None:
    with pytest.raises(StateError, match="is not one of this format"):
        log.Header.unpack(sealed(b"[" * 100_000))


def test_rows_with_code_in_them_are_rows() -> None:
    """What looks like code in a row comes out as it went in."""
    texts = ["__import__('os').system('true')", "{{7*7}}", "${jndi:ldap://x}", "'; DROP TABLE a; --", "<script>"]
    rows = pa.record_batch([pa.array([1] * 5), pa.array([1] * 5), pa.array(texts)], schema=query().streams[0].schema)
    other = pa.record_batch([pa.array([2]), pa.array([1]), pa.array(["b"])], schema=query().streams[1].schema)
    join, store = HashJoin().start(query()), log.MemoryStore()
    first = [Batch.of(rows, "a_ts"), Batch.of(no_rows(other.schema), "b_ts")]
    assert not list(join.step(first))
    log.commit(join, log.begin(query()), store)
    assert store.header is not None
    join = HashJoin().start(query())
    log.rebuild(join, log.Header.unpack(store.header), store)
    second = [Batch.of(no_rows(rows.schema), "a_ts"), Batch.of(other, "b_ts")]
    (found,) = join.step(second)
    assert sorted(found.column("a_n").to_pylist()) == sorted(texts)
