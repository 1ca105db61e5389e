"""From Kafka to Kafka with the live page open, and a picture of it: ``python -m lab.kafka.live_page``."""

from __future__ import annotations

import json
import re
import subprocess
import tempfile
import time
from pathlib import Path
from threading import Thread

from playwright.sync_api import sync_playwright

from examples.kafka_messages import make_topics
from lab.dashboard.browser import CHROMIUM, FLAGS
from lab.dashboard.screenshots import IMAGES
from lab.kafka.artifacts import connector
from lab.kafka.auction_house import PIPELINE, SCHEMA, House, running
from lab.kafka.broker import Broker

SECONDS, RATE = 75, 200  # of auctions in a second
OPEN_FOR = 12  # seconds from an auction's opening to its closing


def write(house: House) -> None:
    """Auctions, three bids for most of them, and punctuations, as time passes."""
    began = time.monotonic()
    for second in range(SECONDS):
        for n in range(RATE):
            item = second * RATE + n
            house.auction(item, second + n / RATE)
            for bid in range(0 if item % 9 == 0 else 3):
                house.bid(item, second + n / RATE + bid, 10.0 + bid)
        for item in range((second - OPEN_FOR) * RATE, (second - OPEN_FOR + 1) * RATE):
            if item >= 0:
                house.close(item, second + 1)
        house.tick(second)
        time.sleep(max(0.0, began + second + 1 - time.monotonic()))


def address(run: subprocess.Popen[str]) -> str:
    """The address of the page, from the output of the run."""
    assert run.stdout is not None, "it is a pipe"
    for line in run.stdout:
        if found := re.search(r"http://127\.0\.0\.1:\S+", line):
            return found[0]
    raise RuntimeError("the run ended before it printed the address of its page")


def take(url: str, picture: Path) -> str:
    """Take a screenshot of the page during the run; returns the number of tuples that it shows."""
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile, sync_playwright() as playwright:
        size = {"width": 1240, "height": 1080}
        context = playwright.chromium.launch_persistent_context(
            profile, executable_path=CHROMIUM, args=list(FLAGS), viewport=size, color_scheme="light", timezone_id="UTC"
        )
        page = context.pages[0]
        page.goto(url)
        page.wait_for_selector("#tile-tuples")
        page.screenshot(path=picture)
        shown = page.locator("#tile-tuples").inner_text()
        context.close()
    return shown


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        broker = Broker(place / "broker")
        broker.start()
        try:
            make_topics(broker.servers, ("auctions", "bids", "results", "late", "closed"))
            (place / "pipeline.toml").write_text(PIPELINE)
            (place / "bid.avsc").write_text(json.dumps(SCHEMA))
            writer = Thread(target=write, args=(House(broker.servers),))
            with running(place, broker.servers, connector()) as run:
                url = address(run)
                writer.start()
                writer.join()
                print("shown:", " ".join(take(url, IMAGES / "page-kafka.png").split()))
            print("printed:", run.printed.splitlines()[-1])  # type: ignore[attr-defined]
        finally:
            broker.stop()


if __name__ == "__main__":
    main()
