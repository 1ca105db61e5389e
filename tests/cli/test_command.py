"""The command: its help, its exit codes, and what a user sees of an error. No Spark."""

from __future__ import annotations

import logging
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("typer")

from lab.pages.commands import called
from watersmeet.cli import app, checkout, doctor, failures, spark_log
from watersmeet.cli.failures import Exit
from watersmeet.errors import MissingExtraError, QueryError, StateError

SUBCOMMANDS = ("demo", "run", "explain", "bench", "experiment", "state", "dashboard", "doctor")


def test_help_names_all_subcommands_and_the_exit_codes(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = called(capsys, "--help")
    assert code == Exit.DONE
    assert all(f" {name} " in out for name in SUBCOMMANDS)
    assert "Exit codes" in out
    assert all(str(int(code)) in app.CODES for code in Exit)


@pytest.mark.parametrize("name", [s for s in SUBCOMMANDS if s not in ("doctor", "experiment")])
def test_help_of_a_subcommand_shows_how_to_call_it(capsys: pytest.CaptureFixture[str], name: str) -> None:
    code, out, _ = called(capsys, name, "--help")
    assert code == Exit.DONE
    assert f"watersmeet {name}" in out.partition("Usage")[2]


def test_help_and_version_load_neither_spark_nor_numba() -> None:
    heavy = {"pyspark", "numba", "matplotlib", "pandas", "pyarrow", "numpy", "sqlglot"}
    code = "import sys\ntry:\n app.run(sys.argv[1:])\nexcept SystemExit:\n print(*sys.modules)"
    for argument in ("--help", "--version"):
        script = f"from watersmeet.cli import app\n{code}"
        ran = subprocess.run([sys.executable, "-c", script, argument], capture_output=True, text=True, check=True)
        assert not heavy & {name.partition(".")[0] for name in ran.stdout.split()}


def test_the_version(capsys: pytest.CaptureFixture[str]) -> None:
    import watersmeet

    assert called(capsys, "--version") == (Exit.DONE, f"watersmeet {watersmeet.__version__}\n", "")


def test_the_shell_completes_subcommands() -> None:
    requested = {"_WATERSMEET_COMPLETE": "complete_bash", "COMP_WORDS": "watersmeet ex", "COMP_CWORD": "1"}
    ran = subprocess.run(
        [sys.executable, "-m", "watersmeet.cli"], capture_output=True, text=True, env=os.environ | requested, check=True
    )
    assert ran.stdout.split() == ["explain", "experiment"]


def test_an_unknown_subcommand_is_called_wrongly(capsys: pytest.CaptureFixture[str]) -> None:
    code, _, err = called(capsys, "joyn")
    assert code == Exit.USAGE
    assert "No such command" in err


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (QueryError("no"), Exit.MISTAKE),
        (MissingExtraError("no"), Exit.MISSING),
        (StateError("no"), Exit.FAILED),
        (ZeroDivisionError("no"), Exit.FAILED),
        (KeyboardInterrupt(), Exit.INTERRUPTED),
    ],
)
def test_every_error_has_its_exit_code(error: BaseException, code: Exit) -> None:
    assert failures.code_of(error) == code


def _raised(error: Exception) -> Exception:
    try:
        raise error
    except Exception as caught:
        return caught


def test_an_error_is_reported_without_a_traceback_unless_requested(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.argv", ["watersmeet", "run", "join.toml"])
    failures.report(_raised(QueryError("`on` is empty.", hint="name a column.")), verbose=False)
    assert capsys.readouterr().err == "error: `on` is empty.\nHint: name a column.\n"
    failures.report(_raised(ValueError("first\nsecond")), verbose=False)
    err = capsys.readouterr().err
    assert err.startswith("error: ValueError: first\nHint: `watersmeet -v run join.toml` ")
    assert "Traceback" not in err
    failures.report(_raised(ValueError("first\nsecond")), verbose=True)
    assert "Traceback" in capsys.readouterr().err


def test_of_an_error_of_spark_what_is_ours_is_reported() -> None:
    worker = (
        "[STREAM_FAILED] Query [id = 1] terminated with exception: Job aborted\n"
        "org.apache.spark.api.python.PythonException: Traceback (most recent call last):\n"
        '  File "worker.py", line 1, in main\n'
        "watersmeet.errors.ViolationError: stream `bid` broke its word.\nHint: say on_violation=drop.\n\n"
        "\tat org.apache.spark.api.python.BasePythonRunner\n"
    )
    assert failures.summary(RuntimeError(worker)) == "stream `bid` broke its word.\nHint: say on_violation=drop."
    raised = "[STREAM_FAILED] terminated: [USER_RAISED_EXCEPTION] stream `bid`: the message at bids SQLSTATE: P0001"
    assert failures.summary(RuntimeError(raised)) == "stream `bid`: the message at bids"
    assert failures.summary(RuntimeError("")) == "RuntimeError"
    slow = failures.summary(RuntimeError("[STREAM_FAILED] … Python worker failed to connect back.\n\tat org.apache"))
    assert slow.startswith("Spark waits 10 s for a Python process that it starts")
    assert "Hint: run it again when less is going on" in slow


def test_sparks_log_is_aside_and_named_if_something_fails(capfd: pytest.CaptureFixture[str]) -> None:
    with spark_log.aside() as log, spark_log.redirected(log):
        subprocess.run([sys.executable, "-c", "import sys; print('noise', file=sys.stderr)"], check=True)
        assert log is not None
        assert log.read_text() == "noise\n"
    assert not log.exists()
    with pytest.raises(ValueError, match="no") as raised, spark_log.aside() as log:
        raise ValueError("no")
    assert log is not None
    failures.report(raised.value, verbose=False)
    assert f"Spark's own log: {log}" in capfd.readouterr().err
    log.unlink()
    logging.getLogger().setLevel(logging.INFO)
    try:
        with spark_log.aside() as log:
            assert log is None
    finally:
        logging.getLogger().setLevel(logging.WARNING)


def test_verbose_is_the_commands_own_only_before_the_subcommand() -> None:
    assert app._verbose(["-v", "run", "x"])
    assert not app._verbose(["bench", "spark", "-v"])


def test_benchmarks_are_listed_and_a_wrong_name_is_reported(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = called(capsys, "bench")
    assert code == Exit.DONE
    assert "multiway" in out.split()
    code, _, err = called(capsys, "bench", "multivay", "--quick")
    assert code == Exit.MISTAKE
    assert "did you mean `multiway`?" in err


def test_a_benchmark_gets_what_follows_its_name() -> None:
    script = "from watersmeet.cli import app; app.run(['bench', 'spark', '--help'])"
    ran = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=120, check=False)
    assert ran.returncode == 0, ran.stderr
    assert "benchmark" in ran.stdout.lower()
    assert "arguments after its name" not in ran.stdout


def test_experiments_are_handed_all_arguments() -> None:
    script = "from watersmeet.cli import app; app.run(['experiment', '--help'])"
    ran = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=120, check=False)
    assert ran.returncode == 0, ran.stderr
    assert "--redraw" in ran.stdout


def test_outside_a_checkout_it_is_refused_by_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(checkout, "__file__", str(tmp_path / "a" / "b" / "c" / "checkout.py"))
    with pytest.raises(failures.MissingError, match="there is no checkout of watersmeet around"):
        checkout.find()


def test_the_doctor_finds_what_is_here_and_says_what_to_do(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    assert doctor.java().remedy
    code, out, _ = called(capsys, "doctor")
    assert code == Exit.MISSING
    assert "missing Java" in " ".join(out.split())
    assert "set JAVA_HOME" in " ".join(out.split())


@pytest.mark.parametrize(("have", "fits"), [("3.5.9", 0), ("4.0.1", 0), ("4.0.2", 1), ("4.3.1.dev0", 1), ("4.4.0", 0)])
def test_the_doctor_knows_the_supported_versions_of_spark(
    monkeypatch: pytest.MonkeyPatch, have: str, fits: bool
) -> None:
    monkeypatch.setattr(doctor, "version", lambda package: have)
    monkeypatch.setattr(doctor, "requires", lambda package: ["numpy<3", "pyspark<4.4,>=4.0.2", "sqlglot"])
    assert doctor.spark().remedy == (None if fits else 'pip install "pyspark<4.4,>=4.0.2"')


def test_the_doctor_fetches_the_connectors_and_says_why_it_cannot(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    from watersmeet.spark.pipelines import maven, packages

    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(maven, "by_ivy", lambda modules, folder: "unknown host.")
    monkeypatch.setattr(maven, "by_client", lambda modules, folder: "there is no mvn.")
    found = doctor.avro()
    assert found.found.startswith(f"Maven does not give {packages.modules('avro')[0]}. Spark's Ivy: unknown host.")
    assert "put them in Spark's folder of jars" in (found.remedy or "")
    assert not found.needed
    packages.folder().mkdir(parents=True, exist_ok=True)
    for module in packages.modules("kafka"):
        (packages.folder() / maven.jar(module)).touch()
    assert doctor.kafka() == doctor.Finding("Kafka jars", f"{packages.described('kafka')}, in {packages.folder()}")


def test_without_its_extra_the_command_says_how_to_get_it(tmp_path: Path) -> None:
    (tmp_path / "typer.py").write_text("raise ImportError('no', name='typer')")
    path = os.pathsep.join([str(tmp_path), *sys.path])
    ran = subprocess.run(
        [sys.executable, "-m", "watersmeet.cli"],
        capture_output=True,
        text=True,
        env=os.environ | {"PYTHONPATH": path},
        check=False,
    )
    assert ran.returncode == Exit.MISSING
    assert 'pip install "watersmeet[cli]"' in ran.stderr
