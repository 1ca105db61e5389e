"""`watersmeet`, and `python -m watersmeet.cli`."""

from __future__ import annotations

import sys


def main() -> None:
    """The command of `[project.scripts]`; without the extra `cli` it prints how to install it."""
    try:
        import rich  # noqa: F401  # imported here for one message if it is missing
        import typer  # noqa: F401
    except ImportError as error:
        print(f'watersmeet: the command needs {error.name}.\nHint: pip install "watersmeet[cli]"', file=sys.stderr)
        sys.exit(4)
    from watersmeet.cli.app import run

    run()


if __name__ == "__main__":
    main()
