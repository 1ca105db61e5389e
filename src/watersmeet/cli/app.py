"""The subcommands with their arguments and options."""

from __future__ import annotations

import logging
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

import watersmeet
from watersmeet.cli import failures

CODES = (
    "Exit codes: 0 done · 1 failed while running · 2 called wrongly · 3 a mistake in the pipeline or query, nothing "
    "was started · 4 something is missing on this machine · 130 interrupted."
)

app = typer.Typer(
    name="watersmeet",
    no_args_is_help=True,
    pretty_exceptions_enable=False,  # a user sees messages; `-v` shows the traceback
    rich_markup_mode="rich",
    epilog=CODES,
    context_settings={"help_option_names": ["-h", "--help"]},
)
#: For a subcommand that passes all its arguments, `--help` included, to another program.
HANDED_ON = {"allow_extra_args": True, "ignore_unknown_options": True, "help_option_names": []}
#: The same for the arguments after a name; those before it belong to the subcommand.
NAMED = {"allow_extra_args": True, "ignore_unknown_options": True, "allow_interspersed_args": False}

Pipeline = Annotated[
    Path, typer.Argument(metavar="PIPELINE.toml", help="The pipeline; see docs/pipelines.md for its keys.")
]
Master = Annotated[
    str | None, typer.Option(metavar="URL", help='Where Spark runs: "local[4]", "spark://host:7077", "yarn" …')
]


def run(arguments: Sequence[str] | None = None) -> None:
    """Run the command and end with its exit code."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    try:
        app(given, prog_name="watersmeet")
    except (Exception, KeyboardInterrupt) as error:
        sys.exit(failures.report(error, verbose=_verbose(given)))


def _verbose(arguments: Sequence[str]) -> bool:
    """Whether `-v` comes before the subcommand; after it, it belongs to the subcommand."""
    own = next((n for n, argument in enumerate(arguments) if not argument.startswith("-")), len(arguments))
    return bool({"-v", "--verbose"} & set(arguments[:own]))


def _version(show: bool) -> None:
    if show:
        typer.echo(f"watersmeet {watersmeet.__version__}")
        raise typer.Exit


@app.callback()
def main(
    verbose: Annotated[
        bool, typer.Option("-v", "--verbose", help="Show log messages, and tracebacks of errors.")
    ] = False,
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    """Exact stream joins on Spark Structured Streaming whose state stays small.

    [bold]watersmeet demo[/]                     two live streams, joined on this machine; about a minute
    [bold]watersmeet run --check join.toml[/]    check this pipeline
    [bold]watersmeet run join.toml --ui[/]       run it, and watch it in the browser
    [bold]watersmeet doctor[/]                   check that everything it needs is installed
    """
    logging.basicConfig(level=logging.INFO if verbose else logging.WARNING, format="%(name)s: %(message)s")
    logging.getLogger("py4j").setLevel(logging.WARNING if verbose else logging.CRITICAL)  # it logs tracebacks


@app.command(context_settings=HANDED_ON, epilog=CODES)
def demo(context: typer.Context) -> None:
    """Join live streams of auctions and bids, and check the result against a batch join."""
    from watersmeet.demo.__main__ import app as demo_app

    demo_app(context.args, prog_name="watersmeet demo")


@app.command(name="run", epilog=CODES)
def run_pipeline(
    pipeline: Pipeline,
    check: Annotated[bool, typer.Option("--check", help="Only check the pipeline; needs no Spark.")] = False,
    once: Annotated[
        bool, typer.Option("--once", "--available-now", help="Process the data that is available now, then exit.")
    ] = False,
    ui: Annotated[bool, typer.Option("--ui", help="Serve the live page on 127.0.0.1.")] = False,
    events: Annotated[Path | None, typer.Option(help="Append a JSON line for each batch to this file.")] = None,
    prometheus: Annotated[
        str | None, typer.Option(metavar="[ADDRESS:]PORT", help="Serve /metrics on this port, of 127.0.0.1 by default.")
    ] = None,
    master: Master = None,
) -> None:
    """Run a pipeline: streams in, a join or a query, results out. Ctrl-C stops it after the current batch.

    [bold]watersmeet run --check examples/pipelines/folders.toml[/]
    [bold]watersmeet run --once examples/pipelines/folders.toml[/]
    [bold]BROKERS=127.0.0.1:9092 watersmeet run examples/pipelines/kafka.toml --master 'local\\[4]'[/]
    """
    from watersmeet.cli import run_command as running

    if check:
        raise typer.Exit(running.check(pipeline))
    monitoring = running.Monitoring(ui, events, prometheus)
    raise typer.Exit(running.run(pipeline, once=once, monitoring=monitoring, master=master))


@app.command(epilog=CODES)
def explain(
    target: Annotated[str, typer.Argument(metavar="PIPELINE.toml | QUERY", help="A pipeline, or a query in CQL.")],
    verbose: Annotated[
        bool, typer.Option("--verbose", help="With statistics, costs, rejected alternatives, and Spark's settings.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the plan as JSON.")] = False,
    svg: Annotated[
        Path | None, typer.Option(help="Write a picture of the plan to this file (only for a pipeline).")
    ] = None,
    master: Master = None,
) -> None:
    """Show the plan, how long rows are kept and when results come, without starting the query.

    [bold]watersmeet explain join.toml[/]
    [bold]watersmeet explain --verbose join.toml[/]
    [bold]watersmeet explain "SELECT * FROM a \\[RANGE 1 HOUR], b \\[RANGE 1 HOUR] WHERE a.id = b.id"[/]
    """
    from watersmeet.cli import explain_command as explaining

    explaining.explain(target, as_json=as_json, svg=svg, master=master, verbose=verbose)


@app.command(context_settings=NAMED, epilog=CODES)
def bench(
    context: typer.Context,
    name: Annotated[str | None, typer.Argument(help="The benchmark; without it, all are listed.")] = None,
) -> None:
    """Run a benchmark of the checkout; arguments after its name are passed to it.

    [bold]watersmeet bench[/]                 list the benchmarks
    [bold]watersmeet bench operators --help[/]
    """
    from watersmeet.cli import checkout

    if name is not None:
        raise typer.Exit(checkout.start("benchmarks", name, context.args))
    for program in checkout.programs(checkout.find(), "benchmarks"):
        typer.echo(program)


@app.command(context_settings=HANDED_ON, epilog=CODES)
def experiment(context: typer.Context) -> None:
    """Redraw figures of the papers and check their claims, in a checkout."""
    from watersmeet.cli import checkout

    raise typer.Exit(checkout.start("experiments", None, context.args))


@app.command(epilog=CODES)
def state(
    checkpoint: Annotated[str, typer.Argument(metavar="CHECKPOINT", help="The checkpoint folder of a query.")],
    rows: Annotated[
        str | None, typer.Option(metavar="STREAM", help="Print the stored tuples of a stream, as JSON.")
    ] = None,
    limit: Annotated[int, typer.Option(help="The most tuples to print with --rows.")] = 20,
    keys: Annotated[bool, typer.Option("--keys", help="Print the keys with the most tuples.")] = False,
    diff: Annotated[
        tuple[int, int] | None, typer.Option(metavar="A B", help="Print the changes between two batches.")
    ] = None,
    rescale: Annotated[
        tuple[int, str] | None,
        typer.Option(metavar="N NEW", help="Write the checkpoint NEW with N shards; the query must have stopped."),
    ] = None,
    tasks: Annotated[
        int | None,
        typer.Option(metavar="N", help="With --rescale: tasks that share the shards; default: one for each."),
    ] = None,
    master: Master = None,
) -> None:
    """Show what a checkpoint holds: tuples, bytes, oldest and newest per stream and shard. The query may be running.

    [bold]watersmeet state out/checkpoint[/]
    [bold]watersmeet state out/checkpoint --rows bids --limit 5[/]
    [bold]watersmeet state out/checkpoint --keys[/]
    [bold]watersmeet state out/checkpoint --diff 10 12[/]
    [bold]watersmeet state out/checkpoint --rescale 8 out/checkpoint-8[/]
    """
    from watersmeet.cli import state_command as states

    states.show(checkpoint, rows=rows, limit=limit, keys=keys, diff=diff, rescale=rescale, tasks=tasks, master=master)


@app.command(epilog=CODES)
def dashboard(
    events: Annotated[Path, typer.Argument(metavar="EVENTS", help="The event file of a run, finished or not.")],
    port: Annotated[int, typer.Option(help="Port on 127.0.0.1; 0 takes a free one.")] = 0,
) -> None:
    """Show the live page of a run from its event file.

    [bold]watersmeet dashboard out/events.jsonl[/]
    """
    from watersmeet.cli import dashboard_command as pages

    pages.show(events, port)


@app.command(epilog=CODES)
def doctor() -> None:
    """Check what Watersmeet needs on this machine, and how to get what is missing."""
    from watersmeet.cli import doctor as doctors

    raise typer.Exit(doctors.examine())
