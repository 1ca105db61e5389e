"""Event files: what is written is read, whatever a crash left; what is no event file is refused."""

from __future__ import annotations

import json
import stat
from pathlib import Path
from threading import Event as Flag

import pytest

from lab.dashboard.run_events import batch, run
from watersmeet.dashboard.event_files import EventFile, follow, read_events
from watersmeet.errors import EventError
from watersmeet.model.events import VERSION


def write(path: Path, events: list[dict]) -> Path:
    with EventFile(path) as file:
        for event in events:
            file.write(event)
    return path


def test_what_is_written_is_read(tmp_path: Path) -> None:
    path = write(tmp_path / "run.jsonl", run(3))
    assert read_events(path) == [{"v": VERSION, **event} for event in run(3)]
    assert len(path.read_text().splitlines()) == 6
    assert all(json.loads(line)["v"] == 1 for line in path.read_text().splitlines())


def test_only_the_owner_may_read_it(tmp_path: Path) -> None:
    path = write(tmp_path / "run.jsonl", run(1))
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_a_later_run_goes_behind_an_earlier_one_even_if_that_was_killed(tmp_path: Path) -> None:
    path = write(tmp_path / "run.jsonl", run(2)[:-1])
    with path.open("a") as file:
        file.write('{"v":1,"kind":"batch","ru')
    write(path, run(1, run="run-2"))
    events = read_events(path)
    assert [e["kind"] for e in events] == ["plan", "started", "batch", "batch", "plan", "started", "batch", "ended"]


def test_a_file_is_followed_while_it_grows(tmp_path: Path) -> None:
    path, stop = write(tmp_path / "run.jsonl", run(1)[:-1]), Flag()
    following = follow(path, stop)
    assert [next(following)["kind"] for _ in range(3)] == ["plan", "started", "batch"]
    write(path, [batch(1)])
    with path.open("a") as file:
        file.write('{"v":1,"kind":"ended",')  # the other half of the line has yet to come
        file.flush()
        assert next(following)["batch"] == 1
        file.write('"run":"run-1","at":"","error":null}\n')
    assert next(following)["kind"] == "ended"
    stop.set()
    assert list(following) == []


@pytest.mark.parametrize(
    "text", ["no json\n", "[1]\n", '{"kind":"batch"}\n', '{"v":1,"kind":"other"}\n', '{"v":"1"}\n']
)
def test_another_file_is_neither_read_nor_written_to(tmp_path: Path, text: str) -> None:
    path = tmp_path / "notes.txt"
    path.write_text(text)
    for use in (read_events, EventFile):
        with pytest.raises(EventError, match=r"this is no event of Watersmeet: .*\nHint: event files are written by"):
            use(path)
    assert path.read_text() == text


def test_another_version_is_refused_wherever_it_stands(tmp_path: Path) -> None:
    path = write(tmp_path / "run.jsonl", run(1))
    with path.open("a") as file:
        file.write('{"v":2,"kind":"batch"}\n')
    with pytest.raises(EventError, match="the event has version 2; this Watersmeet reads version 1"):
        read_events(path)


#: No event, though some are JSON to Python, and one speaks of a version.
NO_EVENTS = (
    '{"v":1,"kind":"batch","x":NaN}',
    '{"v":1,"kind":"batch","x":-Infinity}',
    '{"v":1,"kind":"batch","x":1e999}',
    '{"v":1,"kind":"batch","x":' + "9" * 5000 + "}",
    '{"v":1,"kind":"batch","x":' + "[" * 100_000 + "]" * 100_000 + "}",
    '{"v":1,"kind":["batch"]}',
    '{"v":true,"kind":"batch"}',
    '{"version":',
    "\0" * 100,
    "\ud800".encode("utf-8", "surrogatepass").decode("latin-1"),
)


@pytest.mark.parametrize("line", NO_EVENTS, ids=range(len(NO_EVENTS)))
def test_a_line_that_could_not_be_handed_on_is_no_event(tmp_path: Path, line: str) -> None:
    path = tmp_path / "other.jsonl"
    path.write_text(f"{line}\n")
    with pytest.raises(EventError, match="this is no event of Watersmeet"):
        read_events(path)
    path = write(tmp_path / "run.jsonl", run(1)[:-1])
    with path.open("a") as file:
        file.write(f"{line}\n")
    write(path, run(1)[-1:])
    assert [e["kind"] for e in read_events(path)] == ["plan", "started", "batch", "ended"]


def test_a_number_that_json_has_not_is_not_written(tmp_path: Path) -> None:
    with EventFile(tmp_path / "run.jsonl") as file, pytest.raises(ValueError, match="not JSON compliant"):
        file.write({"kind": "ended", "run": "r", "at": "", "error": float("nan")})


def test_a_place_where_nothing_can_be_written_is_named(tmp_path: Path) -> None:
    for path in (tmp_path, tmp_path / "nowhere" / "run.jsonl"):
        with pytest.raises(EventError, match=rf"events cannot be written to {path}: .*\nHint: give a file in a folder"):
            EventFile(path)
