"""`watersmeet dashboard`: the live page of a run, from its event file."""

from __future__ import annotations

from pathlib import Path

from rich.console import Console

from watersmeet.dashboard import serve


def show(events: Path, port: int) -> None:
    """Serve the page of a run on 127.0.0.1 until Ctrl-C, which is not an error."""
    console = Console(highlight=False, soft_wrap=True)
    with serve(events, port=port) as page:
        console.print(f"{events} is shown at {page.url} until Ctrl-C.", markup=False)
        try:
            page.wait()
        except KeyboardInterrupt:
            console.print()
