"""The live page in a real Chromium: its numbers are those of the event file, and it can be used and read."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("playwright")
from playwright.sync_api import BrowserContext, Page, expect, sync_playwright

from lab.dashboard.browser import CHROMIUM, FLAGS
from lab.dashboard.run_events import batch, run
from watersmeet import dashboard
from watersmeet.dashboard.event_files import EventFile

pytestmark = [
    pytest.mark.more,
    pytest.mark.skipif(CHROMIUM is None, reason="no chromium on PATH (Debian: apt-get install chromium)"),
]

EVIL = "<img src=x onerror=\"document.title='owned'\">"
Open = Callable[..., AbstractContextManager[Page]]


@pytest.fixture
def events(tmp_path: Path) -> Path:
    path = tmp_path / "run.jsonl"
    with EventFile(path) as file:
        for event in run(12):
            file.write(event)
    return path


@pytest.fixture(scope="module")
def browser_open(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[..., BrowserContext]]:
    with sync_playwright() as playwright:

        def opened(**how: Any) -> BrowserContext:
            folder = tmp_path_factory.mktemp("chromium")
            return playwright.chromium.launch_persistent_context(
                str(folder), executable_path=CHROMIUM, headless=True, args=list(FLAGS), **how
            )

        yield opened


@pytest.fixture
def look(browser_open: Callable[..., BrowserContext], events: Path) -> Open:
    """Open the page of the event file; nothing may be wrong with it, and it may ask nobody else."""

    @contextmanager
    def look(path: Path = events, **how: Any) -> Iterator[Page]:
        with dashboard.serve(path) as served:
            context = browser_open(**how)
            page, wrong, requested = context.pages[0], [], []
            page.on("pageerror", lambda error: wrong.append(str(error)))
            page.on("console", lambda message: wrong.append(message.text) if message.type == "error" else None)
            page.on("request", lambda request: requested.append(request.url))
            page.goto(served.url)
            page.wait_for_selector("body[data-ready=yes]", state="attached")
            page.wait_for_selector("#tile-tuples")
            yield page
            context.close()
            assert wrong == []
            assert all(url.startswith(served.url) for url in requested)

    return look


def number(text: str) -> int:
    return int(text.replace(",", ""))


def tile(page: Page, name: str) -> str:
    return page.locator(f"#tile-{name} .value").inner_text()


def legend(page: Page, chart: str) -> dict[str, str]:
    """Names and values under a chart's title."""
    entries = page.locator(f"[data-chart={chart}] .legend li").all()
    values = [(entry.inner_text(), entry.locator("b").inner_text()) for entry in entries]
    return {text.removesuffix(value).strip(): value for text, value in values if not text.startswith("predicted")}


def test_its_numbers_are_those_of_the_file(look: Open) -> None:
    batches = [batch(n) for n in range(12)]
    last = batches[-1]
    with look() as page:
        expect(page.locator("h1")).to_have_text("auctions ⋈ bids")
        expect(page.locator("#status")).to_contain_text("finished")
        assert number(tile(page, "tuples")) == last["state"]["tuples"]
        assert number(tile(page, "unjoined")) == last["late"] + last["violations"]
        more = page.locator("#tile-rows-in .more").inner_text()
        assert number(more.removesuffix(" so far")) == sum(b["rows_in"] for b in batches)
        more = page.locator("#tile-rows-out .more").inner_text()
        assert number(more.removesuffix(" so far")) == sum(b["rows_out"] for b in batches)
        more = page.locator("#tile-tuples .more").inner_text()
        assert number(more.removesuffix(" predicted")) == sum(s["predicted"] for s in last["streams"])
        assert legend(page, "left") == {"window passed": "110", "punctuation": "77", "dead key": "11"}
        assert page.locator("[data-chart]:visible").count() == 9, "the scrambling factor is not measured here"
        cells = page.locator("#streams tbody tr").all()
        for row, stream in zip(cells, last["streams"], strict=True):
            texts = row.locator("th, td").all_inner_texts()
            assert texts[0] == stream["name"]
            assert [number(t) for t in texts[1:4]] == [stream["rows_in"], stream["stored"], stream["predicted"]]
        assert page.locator("#hot .key").first.inner_text() == "item 0"
        assert legend(page, "skew") == {"skew": str(round(last["skew"], 2))}
        assert page.locator("#batches tbody tr").count() == 12


def test_pointing_shows_a_batch_everywhere_and_a_click_keeps_it(look: Open) -> None:
    with look(viewport={"width": 1280, "height": 900}) as page:
        chart = page.locator("[data-chart=tuples] svg")
        chart.scroll_into_view_if_needed()
        box = chart.bounding_box()
        assert box
        middle = box["x"] + 52 + (box["width"] - 62) * 5 / 11, box["y"] + 80
        page.mouse.move(*middle)
        expect(page.locator("#batch-label")).to_contain_text("5 of 11")
        assert number(tile(page, "tuples")) == batch(5)["state"]["tuples"]
        assert legend(page, "left")["window passed"] == "50"
        assert page.locator(".chart .cursor").count() == 9
        page.mouse.move(2, 2)
        expect(page.locator("#batch-label")).to_contain_text("11 of 11")
        page.mouse.click(*middle)
        page.mouse.move(2, 2)
        expect(page.locator("#batch-label")).to_contain_text("5 of 11")
        expect(page.locator("#latest")).to_have_attribute("aria-pressed", "false")
        page.locator("#batch").focus()
        page.keyboard.press("ArrowLeft")
        expect(page.locator("#batch-label")).to_contain_text("4 of 11")
        page.locator("#latest").click()
        expect(page.locator("#batch-label")).to_contain_text("11 of 11")


def test_new_batches_come_by_themselves_and_a_kept_one_stays(look: Open, events: Path) -> None:
    with look() as page:
        with EventFile(events) as file:
            file.write(batch(12))
        expect(page.locator("#batch-label")).to_contain_text("12 of 12")
        page.locator("#batch").fill("3")
        with EventFile(events) as file:
            file.write(batch(13))
        expect(page.locator("#batch-label")).to_contain_text("3 of 13")
        assert number(tile(page, "tuples")) == batch(3)["state"]["tuples"]


@pytest.mark.parametrize("width", [360, 768, 1280])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_it_fits_and_can_be_read(look: Open, width: int, scheme: str) -> None:
    """Nothing reaches over the edge, and all text has the contrast that small text needs (4.5 to 1)."""
    with look(viewport={"width": width, "height": 800}, color_scheme=scheme) as page:
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        plan = page.locator("#plan svg").bounding_box()
        assert plan
        assert plan["x"] >= 0
        assert plan["x"] + plan["width"] <= width
        ground = page.evaluate("getComputedStyle(document.body).backgroundColor")
        assert (sum(channels(ground)) < 200) == (scheme == "dark")
        for ink, paper in page.evaluate(CONTRASTS):
            assert contrast(channels(ink), channels(paper)) >= 4.5, (ink, paper)


#: Colour of each text, and of the nearest ground behind it.
CONTRASTS = """() => [...document.querySelectorAll(
    "h1, h2, p, th, td, dt, dd, summary, a, b, li, .tile div, .amount, .key, button, text")]
  .filter((e) => e.checkVisibility() && !e.disabled && e.textContent.trim())
  .map((e) => {
    const style = getComputedStyle(e), ink = e instanceof SVGElement ? style.fill : style.color;
    let behind = e;
    const ground = (x) => getComputedStyle(x).backgroundColor;
    while (behind.parentElement && ground(behind) === "rgba(0, 0, 0, 0)") behind = behind.parentElement;
    return [ink, ground(behind)];
  })"""


def channels(colour: str) -> list[float]:
    return [float(part) for part in colour.partition("(")[2].rstrip(")").split(",")[:3]]


def contrast(a: list[float], b: list[float]) -> float:
    """Of two colours, as the Web Content Accessibility Guidelines define it."""

    def luminance(colour: list[float]) -> float:
        parts = [c / 255 for c in colour]
        linear = [c / 12.92 if c <= 0.03928 else ((c + 0.055) / 1.055) ** 2.4 for c in parts]
        return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]

    dark, light = sorted((luminance(a), luminance(b)))
    return (light + 0.05) / (dark + 0.05)


def test_names_and_keys_are_text_and_nothing_else(look: Open, tmp_path: Path) -> None:
    path = tmp_path / "evil.jsonl"
    events = run(3, names=(EVIL, "b"))
    for event in events:
        for stream in event.get("streams", ()):
            stream["hot"] = [{"key": EVIL, "rows": 5, "share": 0.1}]
    events[-1]["error"] = EVIL
    events[0]["svg"] = "<svg xmlns='http://www.w3.org/2000/svg'><script>document.title='owned'</script></svg>"
    with EventFile(path) as file:
        for event in events:
            file.write(event)
    with look(path) as page:
        expect(page.locator("h1")).to_have_text(f"{EVIL} ⋈ b")
        expect(page.locator("#error")).to_have_text(EVIL)
        assert page.locator("#hot .key").first.inner_text() == EVIL
        assert page.locator("img").count() == 0
        assert page.title() != "owned"
        expect(page.locator("#status")).to_contain_text("failed")
        picture = page.context.new_page()  # also if somebody opens the picture by itself
        picture.goto(f"{page.url}plan.svg")
        assert picture.title() != "owned"


def test_it_is_named_for_those_who_do_not_see_it(look: Open) -> None:
    with look() as page:
        for chart in page.locator("[data-chart]:visible svg").all():
            assert "batch 11" in (chart.get_attribute("aria-label") or "")
        assert "auctions; window 10 seconds" in (page.locator("#plan svg").get_attribute("aria-label") or "")
        assert page.locator("#batch").get_attribute("aria-valuetext", timeout=1000) == page.evaluate(
            "`batch 11 at ${new Date('2026-03-01T12:00:22Z').toLocaleTimeString('en-GB')}`"
        )
        nameless = page.locator("button, select, input").evaluate_all(
            "all => all.filter(e => e.checkVisibility() && !(e.labels?.length || e.textContent.trim())).length"
        )
        assert nameless == 0
