"""The shell of `lakebackup sql`: what it runs, its keys, its completion, and Ctrl-C, without Java."""

from __future__ import annotations

import io
import signal
import sys
import threading
import traceback
from collections.abc import Callable
from pathlib import Path

import pytest
from prompt_toolkit.application import create_app_session
from prompt_toolkit.completion import CompleteEvent
from prompt_toolkit.document import Document
from prompt_toolkit.input import create_pipe_input
from prompt_toolkit.output import DummyOutput
from tests.support.catalogs import backup_id
from tests.support.command_line import Commands
from tests.support.kafka_truth import until
from tests.support.made_backups import MadeBackups, Record
from tests.support.processes import TerminalRun

import lakebackup
from lakebackup.errors import EnvironmentProblem, NotFound, UsageProblem
from lakebackup_jobs.cli.shell.prompt import Names, interact
from lakebackup_jobs.cli.shell.shell import Shell
from lakebackup_jobs.cli.shell.statements import is_whole, split
from lakebackup_jobs.connection import Connection

LONG = (
    "SELECT count(*) AS n FROM "
    + ", ".join(f"backups AS b{n}" for n in range(40))
    + " WHERE ("
    + " + ".join(f"b{n}.number * {n + 3}" for n in range(40))
    + ") % 1000003 = 7"  # no statistics of a column show that no row is like that
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two backups of a topic."""
    backups = MadeBackups(tmp_path_factory.mktemp("backups"))
    for n in range(2):
        backups.backup([[Record(0, n, 1000 * n, b"k", b"v")]], end_ts=1000 * n + 1)
    backups.flush()
    return backups.folder


@pytest.fixture
def connection(folder: Path) -> Connection:
    return lakebackup.connect(str(folder))


@pytest.mark.parametrize(
    ("text", "statements", "remainder"),
    [
        ("", [], ""),
        (";;", [], ""),
        ("SELECT 1;", ["SELECT 1"], ""),
        ("SELECT 1; SELECT\n2 ;", ["SELECT 1", "SELECT\n2"], ""),
        ("SELECT 1; SELECT 2", ["SELECT 1"], " SELECT 2"),
        ("SELECT ';' AS a -- b; c\n", [], "SELECT ';' AS a -- b; c\n"),
        ("SELECT 1; -- done", ["SELECT 1"], ""),
        ("SELECT 'it", [], "SELECT 'it"),
    ],
)
def test_a_statement_ends_with_its_semicolon(text: str, statements: list[str], remainder: str) -> None:
    assert split(text) == (statements, remainder)
    assert is_whole(text) == (not remainder)


def test_standard_input_is_run_up_to_the_first_error(
    folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def run(text: str, *flags: str) -> tuple[int, str, str]:
        monkeypatch.setattr("sys.stdin", io.StringIO(text))
        return Commands(capsys).run("sql", "--repo", folder, *flags)

    script = "SELECT number AS n -- not; here\nFROM backups WHERE number = 1; .mode\nSELECT 2 AS n;"
    assert run(script)[0] == UsageProblem.exit_code
    script = "SELECT number AS n -- not; here\nFROM backups WHERE number = 1;\n.mode csv\nSELECT 2 AS n"
    assert run(script) == (0, "n\n1\nn\n2\n", "")
    assert run("SELECT 1 AS n;SELECT 2 AS n;", "--json") == (0, '{"n": 1}\n{"n": 2}\n', "")
    assert run("-- what follows\n.mode csv\n/* and\n; that */\n.timing off\nSELECT 1 AS n;") == (
        0,
        "n\n1\n",
        "",
    )
    assert run("DESCRIBE drills;", "--json")[1].startswith('{"name": "drill_id", "type": "STRING"}\n')
    assert run(".mode vertical\nSELECT 1 AS a, NULL AS bcd;") == (0, "-[ row 1 ]-\na   | 1\nbcd | \n", "")
    code, output, err = run("SELECT 1 AS n;\nSELECT bites FROM files;\nSELECT 3 AS n;")
    assert (code, output) == (UsageProblem.exit_code, "n\n1\n")
    assert "bites" in err
    assert run(".quit\nSELECT 1 AS n;") == (0, "", "")
    assert run("SELECT key FROM records('orders');", "--csv")[2].startswith("records('orders'): 2 of 2 files")
    assert ".mode: which mode?\nModes: table, " in run(".mode")[2]
    for wrong in (".nothing", ".mode loud", ".timing", ".quit now"):
        assert run(wrong)[0] == UsageProblem.exit_code, wrong


def test_help_and_leaving_need_no_dot(
    folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for word in ("quit", "exit", "QUIT;", " exit ; "):
        monkeypatch.setattr("sys.stdin", io.StringIO(f"{word}\nSELECT 1 AS n;"))
        assert Commands(capsys).run("sql", "--repo", folder) == (0, "", "")
    monkeypatch.setattr("sys.stdin", io.StringIO("help\nSELECT 1 AS help;\n"))
    _, output, _ = Commands(capsys).run("sql", "--repo", folder, "--csv")
    assert ".tables" in output
    assert output.endswith("help\n1\n")


def test_a_file_of_statements_is_read(
    connection: Connection, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "inner.sql").write_text("SELECT 2 AS n;")
    file = tmp_path / "some questions.sql"
    file.write_text(f"SELECT 1 AS n;\n.read {tmp_path}/inner.sql\nSELECT\n3 AS n")
    with Shell(connection, timeout="1m", mode="csv") as shell:
        shell.run(f".read '{file}'")
        assert capsys.readouterr().out == "n\n1\nn\n2\nn\n3\n"
        file.write_text("SELECT 1 AS n;\nSELECT bites FROM files;\nSELECT 3 AS n;")
        with pytest.raises(UsageProblem, match=r"questions\.sql, line 2: .*bites"):
            shell.run(f".read '{file}'")
        assert capsys.readouterr().out == "n\n1\n", "it ends at the first error"
        file.write_text(f".read '{file}'")
        with pytest.raises(UsageProblem, match="reads itself"):
            shell.run(f".read '{file}'")
        with pytest.raises(NotFound, match="No such file"):
            shell.run(".read nothing.sql")
        for wrong in (".read", ".read 'x"):
            with pytest.raises(UsageProblem):
                shell.run(wrong)


def test_results_go_to_a_file_until_output_alone(
    connection: Connection, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "numbers.csv"
    with Shell(connection, timeout="1m", mode="csv") as shell:
        shell.run(f".output {file}")
        shell.run("SELECT 1 AS n; SELECT 2 AS n;")
        shell.run(".output")
        shell.run("SELECT 3 AS n;")
        assert file.read_text() == "n\n1\nn\n2\n"
        assert capsys.readouterr().out == "n\n3\n"
        with pytest.raises(EnvironmentProblem, match="cannot be written"):
            shell.run(f".output {tmp_path}")
        shell.run(f".output {file}")
        shell.run("SELECT 4 AS n;")
    assert file.read_text() == "n\n4\n", "it is closed with the shell"


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="Linux only")
def test_a_full_disk_ends_only_the_statement(
    connection: Connection, capsys: pytest.CaptureFixture[str]
) -> None:
    with Shell(connection, timeout="1m", mode="csv") as shell:
        shell.run(".output /dev/full")
        with pytest.raises(EnvironmentProblem, match="/dev/full: No space left"):
            shell.run("SELECT 1 AS n;")
        shell.run("SELECT 2 AS n;")
    assert capsys.readouterr().out == "n\n2\n"


def test_tables_and_their_columns_are_described(
    connection: Connection, capsys: pytest.CaptureFixture[str]
) -> None:
    with Shell(connection, timeout="1m", mode="csv") as shell:
        shell.run(".tables")
        assert 'backups,"One row per committed backup' in capsys.readouterr().out
        shell.run(".schema rpo")
        output = capsys.readouterr().out
        assert "rpo,lag_ms,BIGINT," in output
        assert "rpo,scope,STRING," in output
        with pytest.raises(UsageProblem, match="no table nothing"):
            shell.run(".schema nothing")


@pytest.fixture
def keys(connection: Connection, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """A function that types keys into a shell until the shell is left; a newline is the Enter key."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))

    def type_keys(text: str) -> None:
        with create_pipe_input() as pipe, create_app_session(input=pipe, output=DummyOutput()):
            pipe.send_text(text.replace("\n", "\r"))
            with Shell(connection, timeout="1m", mode="csv") as shell:
                interact(shell)

    return type_keys


def test_a_person_types_over_several_lines(
    keys: Callable[[str], None], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    handler = signal.getsignal(signal.SIGINT)
    keys("SELECT count(*) AS n\nFROM backups;\nSELECT bites FROM files;\nSELECT 7 AS n;\n\x04")
    output, err = capsys.readouterr()
    greeting, _, results = output.partition("\n")
    assert greeting.startswith("SQL on the backups at ")
    assert results == "n\n2\nn\n7\n"  # an error ends its own statement
    assert "bites" in err
    history = tmp_path / "lakebackup" / "sql_history"
    assert "+FROM backups;" in history.read_text()
    assert history.stat().st_mode & 0o777 == 0o600
    keys("SELECT 1\x03SELECT 8 AS n;\n.quit\nSELECT 9 AS n;\n")
    output, _ = capsys.readouterr()
    assert output.partition("\n")[2] == "n\n8\n"  # Ctrl-C drops what was typed
    assert signal.getsignal(signal.SIGINT) is handler


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("SELECT * FROM back", "backups"),
        ("SELECT * FROM rec", "records("),
        ("SELECT coun", "count"),
        ("SEL", "select"),
        ("SELECT backup_id FROM backups WHERE num", "number"),
        (f"SELECT * FROM files WHERE backup_id = '{backup_id(2)[:6]}", backup_id(2)),
        ("SELECT * FROM records('ord", "orders"),
        (".sch", ".schema"),
        (".schema rp", "rpo"),
        (".timing o", "off"),
        (".out", ".output"),
        (".read pypro", "ject.toml"),
    ],
)
def test_names_are_completed(
    connection: Connection, text: str, expected: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(Path(__file__).parents[4])
    completions = Names(connection).get_completions(Document(text), CompleteEvent())
    assert expected in [completion.text for completion in completions]
    assert not list(Names(connection).get_completions(Document(f"{text}zzz"), CompleteEvent()))


def test_ctrl_c_stops_the_statement(connection: Connection, monkeypatch: pytest.MonkeyPatch) -> None:
    """The signal goes to the statement's thread and does not wake the main thread. A Ctrl-C that comes just
    before the main thread waits does not either."""
    stopped = threading.Event()
    main_thread = threading.get_ident()

    def main_thread_waits() -> bool:
        names = [call.name for call in traceback.extract_stack(sys._current_frames()[main_thread])]
        return names[-1] == "wait" and "submit" not in names

    def run_until_interrupted(*_: object, **__: object) -> None:
        until(main_thread_waits, "the main thread waits")
        signal.pthread_kill(threading.get_ident(), signal.SIGINT)
        stopped.wait(20)

    monkeypatch.setattr(connection, "sql", run_until_interrupted)
    monkeypatch.setattr(connection, "interrupt", stopped.set)
    handler = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with Shell(connection, timeout="1m") as shell, pytest.raises(KeyboardInterrupt):
            shell.run("SELECT 1;")
    finally:
        signal.signal(signal.SIGINT, handler)
    assert stopped.is_set()


def test_on_a_real_terminal(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Three seconds: only here a terminal's own Ctrl-C interrupts DuckDB's code, and the shell goes on."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    monkeypatch.setenv("PAGER", "cat")
    monkeypatch.setenv("PROMPT_TOOLKIT_NO_CPR", "1")
    with TerminalRun("sql", "--repo", str(folder)) as run:
        run.until(lambda: b"lakebackup>" in run.output, "the prompt")
        run.until(lambda: run.is_raw, "it reads keys")
        run.type(f"{LONG};\r")
        run.until(lambda: not run.is_raw, "the statement runs")
        run.press_ctrl_c()
        run.until(lambda: b"Cancelled." in run.output, "the statement is stopped")
        run.until(lambda: run.is_raw, "it reads keys again")
        run.type("SELECT 6 * 7 AS n;\r")
        run.until(lambda: b"42" in run.output and run.is_raw, "the next answer")
        run.type("\x04")
        assert run.exit_code() == 0
