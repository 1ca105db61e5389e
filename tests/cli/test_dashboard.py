"""`watersmeet dashboard`: the page of an event file is served until Ctrl-C."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
from functools import partial
from pathlib import Path
from urllib.request import urlopen

from lab.dashboard.run_events import run
from watersmeet.dashboard.event_files import EventFile

COMMAND = (sys.executable, "-m", "watersmeet.cli", "dashboard")


def test_the_page_of_a_run_is_served_until_it_is_interrupted(tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    with EventFile(path) as file:
        for event in run(2):
            file.write(event)
    # a shell's background job, such as a CI run, ignores Ctrl-C, and its children inherit that
    heed = partial(signal.signal, signal.SIGINT, signal.SIG_DFL)
    with subprocess.Popen([*COMMAND, str(path)], stdout=subprocess.PIPE, text=True, preexec_fn=heed) as process:
        try:
            assert process.stdout is not None
            url = re.search(r"http://127\.0\.0\.1:\d+/\S+/", process.stdout.readline())
            assert url
            with urlopen(url[0], timeout=10) as response:
                assert "Watersmeet" in response.read().decode()
            process.send_signal(signal.SIGINT)
            assert process.wait(20) == 0
        finally:
            process.kill()


def test_a_file_that_is_none_is_named(tmp_path: Path) -> None:
    path = tmp_path / "notes.txt"
    path.write_text("hello\n")
    done = subprocess.run([*COMMAND, str(path)], capture_output=True, text=True, check=False)
    assert done.returncode != 0
    assert "this is no event of Watersmeet" in done.stderr
    assert "Traceback" not in done.stderr
