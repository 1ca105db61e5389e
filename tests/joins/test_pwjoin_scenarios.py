"""PWJoin as scripts: what comes, what comes out, and exactly who survives.

`x3` is a tuple with key x at time 3, `!x4` says at time 4 that no more x will come, `[b,d)5` closes a range of keys,
`~7` is a heartbeat, `.` the end of the stream, `-2` a tuple at time 2 whose key is NULL.
"""

from __future__ import annotations

import re
from typing import Any

import pytest

from lab.joins.oracle import step, stored
from lab.joins.scripts import Script, engine_batch
from watersmeet.joins.pwjoin import PWJoin
from watersmeet.joins.reference.definition import Tuple
from watersmeet.joins.reference.stream_rules import Elements
from watersmeet.model.punctuations import (
    Clustered,
    Constraint,
    End,
    Heartbeat,
    Ordered,
    Pattern,
    Punctuation,
    Range,
    Unique,
    Value,
)
from watersmeet.model.windows import TimeWindow, Unbounded, Window


def _finished(pattern: Pattern) -> list[Any]:
    match pattern:
        case Value(key):
            return [key[0]]
        case Range(low, high):
            ends = {"low": low, "high" if pattern.high_closed else "below": high}
            return [{name: end for name, end in ends.items() if end is not None}]
    return []


def elements_of(text: str) -> Elements:
    """Elements from words such as those above."""
    tuples: list[Tuple] = []
    punctuations: list[Punctuation] = []
    for word in text.split():
        if ranged := re.fullmatch(r"([\[(])(\w*),(\w*)([\])])(\d+)", word):
            left, low, high, right, time = ranged.groups()
            punctuations.append(Punctuation(Range(low or None, high or None, left == "[", right == "]"), int(time)))
        elif word == ".":
            punctuations.append(Punctuation(End(), 0))
        elif word[0] == "~":
            punctuations.append(Punctuation(Heartbeat(int(word[1:])), int(word[1:])))
        elif word[0] == "!":
            punctuations.append(Punctuation(Value((word[1],)), int(word[2:])))
        else:
            tuples.append(Tuple(int(word[1:]), (None if word[0] == "-" else word[0],), len(tuples)))
    return Elements(tuple(tuples), tuple(punctuations))


class Scene:
    """A join of text keys, and what it did in the last batch."""

    def __init__(
        self,
        how: str = "inner",
        *,
        windows: tuple[Window, Window] | int = 10,
        delays: tuple[int, int] = (0, 0),
        a: tuple[Constraint, ...] = (),
        b: tuple[Constraint, ...] = (),
        idle_after: tuple[int | None, int | None] = (None, None),
    ) -> None:
        both = (TimeWindow(windows), TimeWindow(windows)) if isinstance(windows, int) else windows
        self.script = Script("string", how, both, delays, (a, b), (), idle_after=idle_after)
        self.join = PWJoin().start(self.script.query())

    def batch(self, a: str = "", b: str = "") -> list[str]:
        """Results in short: `x3 x5` is a pair, `x3 -` an unmatched row of a, `- x5` one of b."""
        batches = [engine_batch(self.script.spec(i), elements_of(text)) for i, text in enumerate((a, b))]
        out = []
        for key, *times in step(self.join, batches):
            name = key if key is not None else "-"
            sides = [times[0], times[2]] if len(times) == 4 else [times[0]]
            out.append(" ".join("-" if ts is None else f"{name}{ts}" for ts in sides))
        return sorted(out)

    @property
    def a(self) -> str:
        return self.held(0)

    @property
    def b(self) -> str:
        return self.held(1)

    def held(self, i: int) -> str:
        return " ".join(f"{key}{ts}" for ts, key, _ in sorted(stored(self.join, i)))

    @property
    def finished(self) -> list[Any]:
        """Keys and ranges that the output announces."""
        return [x for p in self.join.output_punctuations() for x in _finished(p)]

    @property
    def violations(self) -> list[str]:
        return [f"{'ab'[i]}.{r[1]}{r[0]}" for i in (0, 1) for r in map(_row, self.join.violations[i].to_pylist())]


def _row(row: dict[str, Any]) -> tuple[Any, ...]:
    return tuple(row.values())


# ---------------------------------------------------------------- purge, discard, announcement


def test_a_punctuation_purges_the_other_stream_before_its_window_would() -> None:
    scene = Scene(windows=100)
    assert scene.batch(a="x1 y1 x2", b="x3") == ["x1 x3", "x2 x3"]
    assert (scene.a, scene.b) == ("x1 y1 x2", "x3")
    assert scene.batch(b="!x4") == []
    assert (scene.a, scene.b) == ("y1", "x3")
    assert scene.finished == [], "b still holds an x that one of a may match"
    assert scene.batch(a="x5") == ["x5 x3"]
    assert (scene.a, scene.b) == ("y1", "x3"), "joined, and never stored"
    assert scene.batch(a="!x6") == []
    assert (scene.a, scene.b) == ("y1", "")
    assert scene.finished == ["x"]


def test_a_key_closed_with_nothing_stored_is_propagated_at_once() -> None:
    """The paper waits for a stored tuple to leave, and never announces this one."""
    scene = Scene()
    scene.batch(a="x1 !y1")
    assert scene.finished == ["y"]
    scene.batch(b="!x2")
    assert (scene.a, scene.finished) == ("", ["x"])
    scene.batch(a="!x3", b="!y3")
    assert scene.finished == [], "once is enough"


def test_a_closed_key_is_propagated_when_its_last_tuple_leaves_the_window() -> None:
    scene = Scene(windows=10)
    scene.batch(a="x1 x5 !x5", b="y1")
    assert scene.finished == []
    scene.batch(b="y12")
    assert (scene.a, scene.finished) == ("x5", [])
    scene.batch(b="y15")
    assert (scene.a, scene.finished) == ("x5", []), "a closed window holds its edge"
    scene.batch(b="y16")
    assert (scene.a, scene.finished) == ("", ["x"])


def test_a_pause_of_the_other_stream_does_not_keep_the_state() -> None:
    """The paper expires when a tuple of the other stream comes; here a heartbeat is enough."""
    scene = Scene("left", windows=10)
    scene.batch(a="x1 y5 !x5")
    assert scene.batch(b="~12") == ["x1 -"]
    assert (scene.a, scene.finished) == ("y5", ["x"])
    assert scene.batch(b="~16") == ["y5 -"]
    assert scene.a == ""


def test_windows_are_closed_or_half_open() -> None:
    for closed, survivors, results in ((True, "x1", ["x1 x11"]), (False, "", [])):
        scene = Scene(windows=(TimeWindow(10, closed=closed), TimeWindow(0)))
        scene.batch(a="x1", b="y11")
        assert scene.a == survivors
        assert scene.batch(b="x11") == results


def test_the_end_of_a_stream_frees_the_other() -> None:
    scene = Scene("full", windows=(Unbounded(), Unbounded()))
    scene.batch(a="x1 y2", b="z1")
    assert scene.batch(b=".") == ["x1 -", "y2 -"]
    assert (scene.a, scene.b) == ("", "z1")
    assert scene.batch(a="x9") == ["x9 -"]
    assert scene.batch(a=".") == ["- z1"]
    assert scene.join.output_punctuations()[-1] == End()


# ---------------------------------------------------------------- ranges


def test_a_range_closes_what_lies_in_it() -> None:
    scene = Scene(windows=100)
    scene.batch(a="a1 b1 c1 d1 e1", b="c1")
    scene.batch(b="(a,d]2")
    assert (scene.a, scene.b) == ("a1 e1", "c1")
    assert scene.finished == [{"low": "a\0", "below": "c"}, {"low": "c\0", "below": "d\0"}]
    assert scene.batch(a="c3") == ["c3 c1"]
    assert (scene.a, scene.b) == ("a1 e1", "c1")
    scene.batch(a="!c4")
    assert (scene.a, scene.b, scene.finished) == ("a1 e1", "", ["c"])
    scene.batch(b="[d,)5")
    assert (scene.a, scene.finished) == ("a1", [{"low": "d\0"}]), "d itself was closed before"
    scene.batch(b="[,)6")
    assert (scene.a, scene.finished) == ("", [{"below": "a\0"}])


@pytest.mark.parametrize("text", ["(b,b)1", "[b,b)1", "(b,b]1", "[c,a]1"])
def test_an_empty_range_says_nothing(text: str) -> None:
    scene = Scene()
    scene.batch(a="a1 b1 c1", b=text)
    assert (scene.a, scene.finished) == ("a1 b1 c1", [])


def test_a_range_that_is_closed_again_is_not_propagated_again() -> None:
    scene = Scene()
    scene.batch(b="[a,c]1")
    assert scene.finished == [{"low": "a", "below": "c\0"}]
    scene.batch(b="[a,c]2")
    assert scene.finished == []
    scene.batch(b="[a,d]3")
    assert scene.finished == [{"low": "c\0", "below": "d\0"}]


# ---------------------------------------------------------------- when a promise takes effect


def test_in_order_a_punctuation_holds_with_its_batch_and_ties_go_before_it() -> None:
    scene = Scene(windows=100)
    assert scene.batch(a="x5 !x5 x6", b="x1") == ["x5 x1"]
    assert scene.violations == ["a.x6"]
    assert (scene.a, scene.b) == ("x5", "")
    scene.batch(a="x7")
    assert scene.violations == ["a.x7"]


def test_with_a_delay_a_punctuation_waits_for_what_may_still_come() -> None:
    scene = Scene(windows=100, delays=(0, 3))
    scene.batch(a="x1", b="!x5")
    assert scene.a == "x1", "the watermark of b is 2: an x at 5 may come"
    assert scene.batch(b="x4 x6") == ["x1 x4"]
    assert scene.violations == ["b.x6"]
    scene.batch(b="y8")
    assert scene.a == "x1", "the watermark is 5, and so may still be an x"
    assert scene.batch(b="x5 y9") == ["x1 x5"]
    assert scene.a == "", "the watermark is 6"


def test_a_punctuation_that_comes_after_a_tuple_against_it_is_counted() -> None:
    scene = Scene(windows=100)
    scene.batch(a="x5 y5 z1")
    scene.batch(a="!x3 !z3 [y,y]4")
    assert scene.join.punctuation_sets[0].keys.contradicted == 2
    assert scene.a == "z1 x5 y5", "what is in stays in"
    assert scene.batch(b="x5") == ["x5 x5"]


# ---------------------------------------------------------------- unmatched rows


@pytest.mark.parametrize(
    ("how", "at_once", "by_punctuation", "by_window"),
    [
        ("inner", ["x1 x2"], [], []),
        ("left", ["- -", "x1 x2"], ["y1 -"], ["z1 -"]),
        ("right", ["- -", "x1 x2"], [], ["- w2"]),
        ("full", ["- -", "- -", "x1 x2"], ["y1 -"], ["- w2", "z1 -"]),
        ("semi", ["x1"], [], []),
        ("anti", ["-1"], ["y1"], ["z1"]),
    ],
)
def test_unmatched_rows_come_out_when_they_leave(
    how: str, at_once: list[str], by_punctuation: list[str], by_window: list[str]
) -> None:
    scene = Scene(how, windows=10)
    first = scene.batch(a="x1 y1 z1 -1", b="x2 w2 -2")
    assert [re.sub(r"-\d", "-", r) if len(at_once) > 1 else r for r in first] == at_once
    assert scene.batch(b="!y3") == by_punctuation
    assert scene.batch(a="~30", b="~30") == by_window
    assert (scene.a, scene.b) == ("", "")


def test_where_unmatched_rows_are_results_both_streams_must_close_a_key() -> None:
    scene = Scene("left", windows=100)
    scene.batch(b="!x1 [y,z]1")
    assert scene.finished == [], "an x of a would come out unmatched"
    assert scene.batch(a="x2") == ["x2 -"]
    scene.batch(a="!x3")
    assert scene.finished == ["x"]
    scene.batch(a="[a,y]4")
    assert scene.finished == [{"low": "a", "below": "y\0"}], "x once more does no harm"


# ---------------------------------------------------------------- what is known of a stream


def test_unique_tuples_close_their_keys() -> None:
    scene = Scene(a=(Unique(),), windows=100)
    assert scene.batch(a="x1 y2 x3", b="x1 x2") == ["x1 x1", "x1 x2"]
    assert scene.violations == ["a.x3"]
    assert (scene.a, scene.b) == ("x1 y2", ""), "nothing will match b's any more"
    assert scene.batch(a="y3", b="y3") == ["y2 y3"]
    assert scene.violations == ["a.y3"]


def test_a_cluster_ends_with_another_key_of_a_larger_time() -> None:
    scene = Scene(b=(Clustered(),), windows=100)
    scene.batch(a="x1 y1 z1", b="x1 x2")
    assert scene.a == "x1 y1 z1"
    scene.batch(b="y2")
    assert scene.a == "x1 y1 z1", "no larger time"
    scene.batch(b="y3")
    assert scene.a == "y1 z1"
    scene.batch(b="-4 !w5 ~6")
    assert scene.a == "y1 z1", "neither NULL nor a promise ends a cluster"
    scene.batch(b="y7")
    assert scene.violations == []
    scene.batch(b="z8")
    assert scene.a == "z1"
    scene.batch(b="x9")
    assert (scene.violations, scene.a) == (["b.x9"], ""), "and shows, all the same, that z is over"


def test_a_cluster_of_a_stream_with_a_delay_may_still_be_filled() -> None:
    scene = Scene(b=(Clustered(),), windows=100, delays=(0, 3))
    scene.batch(a="x1", b="x1 y5")
    assert scene.batch(b="x4") == ["x1 x4"]
    scene.batch(b="y8")
    assert scene.a == "x1"
    scene.batch(b="y9")
    assert scene.a == ""


def test_an_ordered_stream_closes_what_it_has_passed() -> None:
    scene = Scene(b=(Ordered(),), windows=100)
    scene.batch(a="a1 c1 e1", b="c2")
    assert (scene.a, scene.finished) == ("c1 e1", [{"below": "c"}])
    scene.batch(b="d1 -3")
    assert scene.a == "c1 e1", "late rows promise nothing"
    scene.batch(b="d4 c5 c4")
    assert scene.violations == ["b.c5"]
    assert scene.a == "e1"
    scene.batch(b="c6")
    assert scene.violations == ["b.c6"]


def test_the_output_watermark_waits_for_unmatched_rows() -> None:
    inner, left = Scene(windows=10), Scene("left", windows=10)
    for scene, beat in ((inner, 8), (left, 3)):
        scene.batch(a="x3 y9", b="z8")
        assert scene.join.output_punctuations()[-1] == Heartbeat(beat)


def test_time_of_the_violation() -> None:
    scene = Scene(windows=100, delays=(5, 0))
    scene.batch(a="!x3 [y,y]4")
    scene.batch(a="x6")
    assert scene.join.violated_at(0) == 3
    scene.batch(a="y6")
    assert scene.join.violated_at(0) == 4
    scene.batch(a="w20")
    scene.batch(a="y21")
    assert scene.join.violated_at(0) == 4


# ---------------------------------------------------------------- ends and silence


def test_the_end_of_one_stream_closes_all_keys() -> None:
    scene = Scene(windows=10)
    scene.batch(a="x1 y5", b="z1")
    scene.batch(a=".")
    assert (scene.a, scene.b) == ("x1 y5", ""), "nothing of a will come that z could match"
    assert scene.finished == [{"below": "x"}, {"low": "x\0", "below": "y"}, {"low": "y\0"}], "all but what a holds"
    assert scene.batch(b="x11 y11 z11") == ["x1 x11", "y5 y11"]
    assert (scene.finished, scene.join.output_watermark()) == ([], 11)
    scene.batch(b="x12")
    assert (scene.a, scene.finished) == ("y5", ["x"])
    scene.batch(b="x16")
    assert (scene.a, scene.finished) == ("", ["y"])
    assert scene.join.output_punctuations()[-1] == End(), "a has ended and holds nothing"
    assert scene.join.streams[0].lists.bytes == 0, "one range says it all"


def test_where_the_other_stream_is_padded_it_must_end_as_well() -> None:
    scene = Scene("right", windows=10)
    scene.batch(a="x1", b="!z1")
    assert scene.finished == ["z"]
    scene.batch(a=".")
    assert scene.finished == [], "rows of b still come out"
    assert scene.batch(b="y30") == ["- y30"]
    assert scene.join.output_watermark() == 30
    scene.batch(b=".")
    assert scene.join.output_punctuations() == [End()]


def test_a_silent_stream_is_taken_to_be_some_way_behind_the_other() -> None:
    scene = Scene("left", windows=10, idle_after=(None, 20))
    scene.batch(a="x1", b="y2")
    scene.batch(a="x22")  # 21 after the last row of b, which was when a stood at 1
    assert (scene.join.watermarks, scene.join.counters.idle) == ([22, 2], 1), "but never back from where it was"
    assert scene.batch(a="x32") == ["x1 -"], "b is taken to be at 12, past the window of x1"
    assert (scene.join.watermarks, scene.join.counters.idle) == ([32, 12], 1)
    assert scene.batch(b="x11 x13 x24") == ["x22 x13", "x22 x24", "x32 x24"]
    assert [t.num_rows for t in scene.join.late] == [0, 1], "11 is older than was assumed"
    assert (scene.join.watermarks, scene.join.counters.idle) == ([32, 24], 0)
    scene.batch(a="x52")
    assert scene.join.counters.idle == 0, "20 later is not more than 20 later"
    scene.batch(a="x53")
    assert (scene.join.watermarks, scene.join.counters.idle) == ([53, 33], 1)


def test_silence_counts_from_the_first_watermark_of_the_other_and_not_after_its_end() -> None:
    scene = Scene(windows=10, idle_after=(None, 5))
    scene.batch(a="x100")
    assert scene.join.counters.idle == 0, "nobody knows how long ago it began"
    scene.batch(a="x106")
    assert (scene.join.watermarks[1], scene.join.counters.idle) == (101, 1)
    scene.batch(b="~102")
    assert (scene.join.watermarks[1], scene.join.counters.idle) == (102, 0), "a heartbeat is a sign of life"
    scene.batch(a=".")
    assert (scene.join.watermarks[1], scene.join.counters.idle) == (102, 0), "the clock has stopped"


@pytest.mark.parametrize("more", ["", "w3 v3"])
def test_why_tuples_leave_is_counted_apart(more: str) -> None:
    """x goes with its window, y with a closing, z comes when it is closed; whichever stream brings more rows."""
    scene = Scene()
    scene.batch(a="x1 y2", b="!z2")
    scene.batch(a=f"z3 {more}", b="!y3 v3")
    counters = scene.join.counters
    assert (counters.expired, counters.purged, counters.dead) == (0, 1, 1)
    scene.batch(b="v12")
    counters = scene.join.counters
    assert (counters.expired, counters.purged, counters.dead) == (1, 0, 0)


def test_rows_of_a_semi_join_leave_at_their_first_match() -> None:
    scene = Scene("semi")
    scene.batch(a="x1 y2")
    assert scene.batch(b="x3 x4") == ["x1"]
    assert (scene.join.counters.matched, scene.join.counters.purged) == (1, 0)
    assert scene.join.counters.stored == 3
