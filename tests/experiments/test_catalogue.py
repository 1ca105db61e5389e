"""The list of experiments covers every figure, and a claim's verdict can go both ways."""

import copy
import json
import re

import pytest

from experiments import page, report, results
from experiments.catalogue import EXPERIMENTS, ROWS
from experiments.experiment import Run


@pytest.fixture(scope="module")
def occupancy():
    """A quick experiment, run."""
    return results.perform(EXPERIMENTS["windowed-8"], quick=True, seed=1, on_progress=lambda share: None)


def test_every_row_has_its_experiments():
    covered = {e.row for e in EXPERIMENTS.values()}
    assert set(ROWS) <= covered
    assert covered - set(ROWS) == {"On Spark"}
    for experiment in EXPERIMENTS.values():
        assert experiment.claims
        assert experiment.setup.endswith(".")
        assert re.fullmatch(r"[a-z]+-[a-z0-9]+", experiment.id)


def test_a_run_tells_how_far_it_is():
    found = []
    assert list(Run(on_progress=found.append).steps("abcd")) == list("abcd")
    assert found == [0.25, 0.5, 0.75, 1.0]
    assert (Run().size(10, 1), Run(quick=True).size(10, 1)) == (10, 1)


def test_results_are_plain_and_the_same_again(occupancy, tmp_path):
    results.store(tmp_path, occupancy)
    assert results.load(tmp_path) == {"windowed-8": occupancy}
    again = results.perform(EXPERIMENTS["windowed-8"], quick=True, seed=1, on_progress=lambda share: None)
    assert again["found"]["counts"] == occupancy["found"]["counts"]
    other = results.perform(EXPERIMENTS["windowed-8"], quick=True, seed=2, on_progress=lambda share: None)
    assert other["found"]["counts"] != occupancy["found"]["counts"]
    assert {"machine", "versions", "commit", "seed", "date", "seconds", "load_before"} < set(occupancy)


def test_the_report_has_figure_claims_and_numbers(occupancy, tmp_path):
    readme = tmp_path / "README.md"
    readme.write_text("before\n<!-- claims: begin -->\nold\n<!-- claims: end -->\nafter\n")
    report.write(tmp_path, {"windowed-8": occupancy}, readme)
    assert "\nold\n" in readme.read_text(), "a quick run is none for the README"
    judged = report.write(tmp_path, {"windowed-8": occupancy | {"quick": False}}, readme)
    assert [v.holds for _, v in judged[0].verdicts] == [True, True]
    text, whole = (tmp_path / "report.md").read_text(), (tmp_path / "one-page.html").read_text()
    for claim, verdict in judged[0].verdicts:
        assert claim.text in text
        assert verdict.numbers in text
    assert "2 of 2 claims hold." in text
    assert "Not run yet: pwjoin-8" in text
    assert "Some of these runs are quick ones" not in text
    assert "data:image/svg+xml;base64," in whole
    assert "<table>" in whole
    assert readme.read_text().startswith("before\n<!-- claims: begin -->\n\n2 of 2 of their claims hold: [")
    assert "\nold\n" not in readme.read_text()
    figure = (tmp_path / "figures" / "windowed-8.svg").read_bytes()
    assert len(figure) < 100_000
    report.write(tmp_path, {"windowed-8": occupancy})
    assert "Some of these runs are quick ones" in (tmp_path / "report.md").read_text()
    assert (tmp_path / "figures" / "windowed-8.svg").read_bytes() == figure


def test_a_claim_that_does_not_hold_is_reported_with_a_reason(occupancy, tmp_path):
    changed = copy.deepcopy(occupancy)
    data = changed["found"]["counts"]["probe_insert"]
    data["fast"] = [2 * n for n in data["fast"]]
    judged = report.write(tmp_path, {"windowed-8": changed})
    assert [v.holds for _, v in judged[0].verdicts] == [False, True]
    text = (tmp_path / "report.md").read_text()
    assert "- **does not hold**: probe_insert as small as all" in text
    assert "*Why not “probe_insert as small as all (within 2 %)”.* We have no explanation" in text
    plain = tmp_path / "plain.md"
    plain.write_text("nothing")
    with pytest.raises(ValueError, match="0 pairs of markers"):
        report.fill(plain, {"claims": report.summary(judged)})


def test_what_json_cannot_say_is_rounded_or_left_out():
    import numpy as np

    given = {1: np.int64(3), "x": [np.float64(1 / 3), float("inf"), True, None], "y": (np.arange(2)[1], 2.0)}
    assert results.plain(given) == {"1": 3, "x": [0.333333, None, True, None], "y": [1, 2.0]}
    assert type(results.plain(np.int64(3))) is int
    json.dumps(results.plain(given))


def test_html_of_the_little_markdown_there_is(tmp_path):
    paragraph, items = "some **bold** *thin* `code` [x](#y) a*b\nmore", "- one\n- two"
    text = f"# A\n\n{paragraph}\n\n| a | b |\n| --- | --- |\n| 1 < 2 | x \\| y |\n\n{items}"
    whole = page.html_of(text, "A", tmp_path)
    assert "<h1>A</h1>" in whole
    assert 'some <strong>bold</strong> <em>thin</em> <code>code</code> <a href="#y">x</a> a*b more' in whole
    assert "<td>1 &lt; 2</td><td>x | y</td>" in whole
    assert "<ul><li>one</li><li>two</li></ul>" in whole
