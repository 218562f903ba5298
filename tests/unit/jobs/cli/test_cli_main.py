"""What every command has in common: exit codes, the form of errors, help, quick starts, documents."""

from __future__ import annotations

import ast
import json
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from tests.support import kafka_truth as truth
from tests.support.kafka_truth import Record

from lakebackup import errors
from lakebackup.reference import marked
from lakebackup.store.writer import CatalogWriter
from lakebackup_jobs.cli import main, reference
from lakebackup_jobs.cli.interrupt import interruptible, stopped_by_signals
from lakebackup_jobs.cli.verb import Call
from lakebackup_jobs.runtime import session

if TYPE_CHECKING:
    from lakebackup_jobs.demo.broker import Broker

ROOT = Path(__file__).parents[4]
SECRET = "hunter2-do-not-show"


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working folder and environment of the test's own."""
    import os

    for name in [name for name in os.environ if name.startswith("LAKEBACKUP_")]:
        monkeypatch.delenv(name)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def fail_with(monkeypatch: pytest.MonkeyPatch, error: BaseException) -> None:
    def fail(*_: object, **__: object) -> None:
        raise error

    monkeypatch.setattr("lakebackup_jobs.cli.verb.load", fail)


KINDS = [
    kind
    for kind in vars(errors).values()
    if isinstance(kind, type) and issubclass(kind, errors.LakebackupError)
]


@pytest.mark.parametrize("kind", KINDS)
def test_an_error_ends_with_its_code_and_says_what_to_do(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], kind: type[errors.LakebackupError]
) -> None:
    fail_with(monkeypatch, kind("It is broken.", hint="Mend it."))
    assert main(["config"]) == kind.exit_code
    output = capsys.readouterr()
    assert (output.out, output.err) == ("", "error: It is broken.\nMend it.\n")


def test_an_error_for_machines(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    fail_with(monkeypatch, errors.Busy("Another run.", hint="Wait."))
    assert main(["config", "--json"]) == 8
    output = capsys.readouterr()
    assert output.out == ""
    error = {"error": "Busy", "message": "Another run.", "hint": "Wait.", "exit_code": 8}
    assert json.loads(output.err) == {"event": "error", "v": 1, **error}


def test_a_defect_is_reported_as_one(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    fail_with(monkeypatch, ZeroDivisionError("division by zero"))
    assert main(["config"]) == 1
    err = capsys.readouterr().err
    assert "ZeroDivisionError: division by zero" in err
    assert "report" in err
    assert "Traceback" not in err
    assert main(["config", "--debug"]) == 1
    assert "Traceback" in capsys.readouterr().err


def test_ctrl_c(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    fail_with(monkeypatch, KeyboardInterrupt())
    assert main(["config"]) == 130
    assert capsys.readouterr().err == "error: Interrupted.\n"
    assert main(["config", "--json"]) == 130
    assert json.loads(capsys.readouterr().err)["exit_code"] == 130


@pytest.fixture
def _own_signals(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The JVM of the test run is shared: neither our handler nor PySpark's cancels its jobs here."""
    monkeypatch.setattr(session, "cancel_jobs", lambda: None)
    handler = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, handler)


@pytest.mark.usefixtures("_own_signals")
def test_errors_that_follow_ctrl_c_are_the_interruption(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    handler = signal.getsignal(signal.SIGINT)

    def fail(*_: object, **__: object) -> None:
        try:
            signal.raise_signal(signal.SIGINT)
        except KeyboardInterrupt:
            assert signal.getsignal(signal.SIGINT) is signal.SIG_DFL  # another one ends the process
            raise RuntimeError("Answer from Java side is empty") from None

    monkeypatch.setattr("lakebackup_jobs.cli.verb.load", fail)
    assert main(["config"]) == 130
    assert capsys.readouterr().err == "error: Interrupted.\n"
    assert signal.getsignal(signal.SIGINT) is handler


@pytest.mark.usefixtures("_own_signals")
@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGHUP, 129)])
def test_other_signals_end_a_command_as_ctrl_c_does(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], number: signal.Signals, code: int
) -> None:
    monkeypatch.setattr("lakebackup_jobs.cli.end_spark", lambda: None)
    monkeypatch.setattr("lakebackup_jobs.cli.verb.load", lambda *_, **__: signal.raise_signal(number))
    handler = signal.signal(number, signal.SIG_DFL)
    try:
        assert main(["config"]) == code
        assert signal.getsignal(number) is signal.SIG_DFL
    finally:
        signal.signal(number, handler)
    assert capsys.readouterr().err == "error: Interrupted.\n"


@pytest.mark.usefixtures("_own_signals")
def test_a_signal_to_a_command_within_a_command_ends_both_with_its_code() -> None:
    with interruptible() as outer:
        with pytest.raises(KeyboardInterrupt), interruptible():
            signal.raise_signal(signal.SIGTERM)
        assert outer.exit_code == 143


@pytest.mark.usefixtures("_own_signals")
@pytest.mark.parametrize("second", [signal.SIGTERM, signal.SIGHUP])
def test_a_second_signal_of_a_manager_does_not_interrupt_the_clean_up(second: signal.Signals) -> None:
    with interruptible() as interrupted:
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGTERM)
        signal.raise_signal(second)
    assert interrupted.exit_code == 143


def test_a_signal_that_the_process_ignores_stays_ignored() -> None:
    handler = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with interruptible() as interrupted:
            signal.raise_signal(signal.SIGHUP)
        assert not interrupted
    finally:
        signal.signal(signal.SIGHUP, handler)


@pytest.mark.usefixtures("_own_signals")
def test_a_signal_lets_work_come_to_its_end_and_a_second_interrupts_it() -> None:
    stop = threading.Event()
    with stopped_by_signals(stop):
        signal.raise_signal(signal.SIGINT)
        assert stop.is_set()
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)


TOPICS = ["backup", "topics"]
RESTORE_TOPICS = ["restore", "topics", "--repo", "x", "--to", "dir:y"]
ENGINE = ["restore", "queue", "social", "--repo", "x", "--to", "kafka://h:1"]
FOLLOW = [*TOPICS, "a", "--repo", "x", "--bootstrap-server", "h:1", "--follow"]


@pytest.mark.parametrize(
    ("arguments", "message", "hint"),
    [
        (["lst"], "There is no command `lakebackup lst`.", "Did you mean list? See: lakebackup --help"),
        (["list", "--bogus"], "--bogus", "See: lakebackup list --help"),
        (["backup", "topics", "--on-gap", "ignore"], "ignore", "See: lakebackup backup topics --help"),
        (["show"], "ID", "See: lakebackup show --help"),
        (["diff", "latest"], "Missing argument NEW:", "See: lakebackup diff --help"),
        (["backup", "topics", "a"], "Missing --repo: where is the repository of the backups?", "--repo"),
        (["list"], "Missing --repo: where is the repository of the backups?", "--repo"),
        (
            [*TOPICS, "a", "--repo", "x"],
            "Missing --bootstrap-server: which Kafka cluster?",
            "--bootstrap-server",
        ),
        (
            [*TOPICS, "a", "-X", f"sasl.password={SECRET}"],
            "sasl.password is a secret",
            "LAKEBACKUP_KAFKA__SASL",
        ),
        ([*TOPICS, "--spark-conf", f"spark.ssl.keyPassword={SECRET}"], "secret", "lakebackup.toml"),
        (["backup", "topics", "--target-size", "huge"], "--target-size", ""),
        (["backup", "topics", "--lease-ttl", "soon"], "--lease-ttl", ""),
        (
            ["restore", "topics", "a", "--repo", "x"],
            "Missing --to: where do the records go?",
            "--to kafka://",
        ),
        (["restore", "topics", "a", "--repo", "x", "--to", "./out"], "'./out' is not a target", "dir:PATH"),
        (
            ["restore", "snapshot", "--repo", "x", "--to", "delta:y"],
            "--to 'delta:y' is not a folder",
            "FOLDER",
        ),
        (["restore", "snapshot", "--repo", "x", "--to", "dir:"], "--to 'dir:' is not a folder", "FOLDER"),
        ([*ENGINE, "--into", "kafka://h:1"], "--into 'kafka://h:1' is not a folder", "--into FOLDER"),
        (["drill", "--repo", "x", "--scratch", "delta:y"], "--scratch 'delta:y' is not a folder", ""),
        (["archive", "export", "--repo", "x", "--to", "delta:y"], "--to 'delta:y' is not a folder", ""),
        ([*RESTORE_TOPICS, "--to-time", "noon"], "--to-time 'noon' is not a time", "2026-"),
        (["list", "--repo", "x", "--as-of", "noon"], "--as-of 'noon' is not a time", "2026-"),
        (["report", "--repo", "x", "--as-of", "noon"], "--as-of 'noon' is not a time", "2026-"),
        (["sql", "SELECT 1", "--repo", "x", "--timeout", "soon"], "--timeout 'soon' is not a span", "7d"),
        ([*RESTORE_TOPICS, "--map", "a"], "OLD=NEW", "Example"),
        ([*RESTORE_TOPICS, "--to-time", "-2h", "--from-time", "-1h"], "nothing lies between", ""),
        (["backup", "topics", "a", "--follow", "--dry-run"], "--follow and --dry-run exclude each other", ""),
        ([*FOLLOW, "--mode", "full"], "cannot start elsewhere", "--mode full"),
        ([*FOLLOW[:-1], "--mode", "full", "--level", "1"], "level 0, not 1", "incr-diff"),
        ([*FOLLOW[:-1], "--mode", "accu", "--level", "0"], "Level 0 is not", "--mode full"),
        ([*FOLLOW[:-1], "--level", "1000001"], "--level must be at most 1000000.", ""),
        ([*FOLLOW, "--every", "soon"], "--every 'soon' is not a span of time", ""),
        ([*FOLLOW, "--remote", "sc://h:1"], "Spark Connect", "--master"),
        (["serve", "http", "--port", "99999"], "--port must be at most 65535.", ""),
        (["serve", "thrift", "--port", "0"], "--port must be at least 1.", ""),
        (["log", "run", "x", "--metrics-port", "99999"], "--metrics-port must be at most", ""),
        (["serve", "http", "--token-file", "empty"], "--token-file empty is empty.", "random word"),
        (["prune", "--keep-time", "soon"], "--keep-time 'soon' is not a span of time", "7d"),
        (["verify", "--decode", "--stat"], "--stat and --decode exclude each other", ""),
        (["config", "--config", "none.toml"], "none.toml", "--config"),
    ],
)
def test_invalid_flags_are_refused_with_a_hint(
    folder: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], message: str, hint: str
) -> None:
    (folder / "empty").touch(mode=0o600)
    code = main([*arguments, "--json"])
    output = capsys.readouterr()
    error = json.loads(output.err)
    assert code == error["exit_code"] == (3 if "none.toml" in arguments else 2)
    assert message in error["message"]
    assert hint in error["hint"]
    assert SECRET not in output.err + output.out


def test_without_a_verb_the_first_steps_are_shown(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 0
    assert "backup topics orders" in capsys.readouterr().out
    assert main(["backup"]) == 2
    output = capsys.readouterr()
    assert "topics" in output.out + output.err
    assert "error:" not in output.err


def test_the_session_of_a_caller_reaches_the_job(monkeypatch: pytest.MonkeyPatch) -> None:
    """A caller's session reaches the job; without one and without Spark settings the job makes its own."""
    sessions: list[Any] = []

    class Stop(errors.Refused):
        pass

    spark = Call.spark

    def capture(call: Call) -> None:
        sessions.append(spark(call))
        raise Stop("seen")

    monkeypatch.setattr(Call, "spark", capture)
    command = ["backup", "topics", "a", "--repo", "x", "--bootstrap-server", "127.0.0.1:1"]
    session: Any = object()
    assert main(command, spark=session) == Stop.exit_code
    assert main(command) == Stop.exit_code
    assert sessions == [session, None]


def test_config_shows_the_settings_in_force_and_no_secret(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    file = folder / "lakebackup.toml"
    file.write_text(
        f'codec = "snappy"\nschema_topics = ["_schemas", "\\"ü\\""]\n[kafka]\nsasl.password = "{SECRET}"\n',
        "utf-8",
    )
    monkeypatch.setenv("LAKEBACKUP_CODEC", "deflate")
    assert main(["config", "--json"]) == 0
    settings = json.loads(capsys.readouterr().out)
    assert (settings["codec"], settings["kafka"]) == ("deflate", {"sasl.password": "****"})
    assert main(["config"]) == 0
    file.write_text(capsys.readouterr().out, "utf-8")  # the output is itself a configuration file
    assert main(["config", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == settings


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *arguments], capture_output=True, text=True, check=False, timeout=60, cwd=ROOT
    )


def test_version() -> None:
    process = run("-m", "lakebackup_jobs", "--version")
    assert (process.returncode, process.stderr) == (0, "")
    assert re.fullmatch(r"lakebackup \d+\.\d+\.\d+\n", process.stdout)


HEAVY = {
    "boto3", "confluent_kafka", "duckdb", "numba", "numpy", "pandas", "pyarrow", "pydantic",
    "pydantic_settings", "pyspark", "rich.console", "sqlglot",
}  # fmt: skip
CATALOG = {"duckdb", "numpy", "pyarrow", "pydantic"}


@pytest.mark.parametrize(
    ("arguments", "allowed"),
    [
        (["--help"], set[str]()),
        (["restore", "--help"], {"pydantic"}),
        (["restore", "topics", "--help"], {"pydantic"}),
        (["config"], {"pydantic"}),
        (["list"], CATALOG),
        (["show", "--tree"], {*CATALOG, "rich.console"}),
        (["sql", "SELECT * FROM files"], {*CATALOG, "sqlglot"}),
    ],
)
def test_a_quick_command_loads_nothing_slow(folder: Path, arguments: list[str], allowed: set[str]) -> None:
    """Checks what is loaded and not the time, so it holds on every machine."""
    if allowed >= CATALOG:
        CatalogWriter(None, str(folder)).migrate()
        arguments = [*arguments, "--repo", str(folder)]
    assert loaded_by(*arguments) & HEAVY == allowed


def test_the_first_line_is_there_before_anything_slow_is_loaded(folder: Path) -> None:
    """It is there within 0.3 s. The test checks what is loaded, so it holds on every machine."""
    CatalogWriter(None, str(folder)).migrate()
    program = f"""
import io, os, sys
os.environ["TERM"] = "xterm"
class Terminal(io.StringIO):
    isatty = lambda self: True
    def write(self, text):
        if not self.getvalue():
            print(text, *({HEAVY - {"pydantic"}!r} & set(sys.modules)), file=sys.__stderr__)
        return super().write(text)
from lakebackup_jobs.cli import main
sys.stderr = Terminal()
main(sys.argv[1:])
print(ascii(sys.stderr.getvalue()), file=sys.__stderr__)
"""
    for words, message in ((["list"], "reading the catalog"), (["verify"], "planning")):
        first_line, terminal_text = run("-c", program, *words, "--repo", str(folder)).stderr.splitlines()
        assert first_line == f"\x1b[2m{message} …\x1b[0m"
        assert r"\x1b[0m\r\x1b[K" in terminal_text, "the line is erased"


@pytest.mark.kafka
def test_a_run_without_new_records_loads_no_compiled_code(
    folder: Path, broker: Broker, topic: Callable[..., str]
) -> None:
    """A backup of nothing new, a dry run and a `verify`, each in a process of its own: five seconds."""
    name = topic(partitions=2)
    truth.produce(broker.bootstrap, name, [Record(0, b"k", b"v", (("h", b"1"),), 1_700_000_000_000)])
    words = ["backup", "topics", name, "--bootstrap-server", broker.bootstrap, "--repo", str(folder)]
    words += ["--source", "s", "--groups", "none"]  # other tests commit offsets
    assert "numba" in loaded_by(*words, "--runner", "local")
    for flags in ([], ["--mode", "full", "--dry-run"]):
        assert loaded_by(*words, *flags) & HEAVY == {*CATALOG, "confluent_kafka"}
    assert loaded_by("verify", "--repo", str(folder)) & HEAVY == CATALOG


#: What verbs with a dry run import before they have a plan.
PLANNING = [
    "logs.restore.job", "query.record_diff", "snapshots.backup", "snapshots.restore", "topics.backup",
    "topics.compact", "topics.merge", "topics.restore", "upkeep.drill", "upkeep.policies", "upkeep.prune",
]  # fmt: skip


@pytest.mark.parametrize(
    ("modules", "forbidden"),
    [
        (PLANNING, {"pyspark", "py4j", "numba", "pandas", "pyarrow.dataset", "sqlglot"}),
        (["queues.backup.job", "queues.restore.job"], {"pyspark", "py4j", "pandas", "sqlglot"}),
    ],
)
def test_planning_a_job_loads_neither_spark_nor_compiled_code(
    modules: list[str], forbidden: set[str]
) -> None:
    """Without pyspark no JVM can start."""
    program = (
        "import importlib, sys; [importlib.import_module(name) for name in sys.argv[1:]]; print(*sys.modules)"
    )
    process = run("-c", program, *(f"lakebackup_jobs.{module}" for module in modules))
    assert process.returncode == 0, process.stderr
    assert set(process.stdout.split()) & forbidden == set()


def test_only_the_verb_that_runs_is_imported() -> None:
    files = {f"lakebackup_jobs.cli.{name}" for name in ("restore.topics", "restore.point", "keep.prune")}
    assert loaded_by("restore", "topics", "--help") & files == {"lakebackup_jobs.cli.restore.topics"}


def loaded_by(*arguments: str) -> set[str]:
    """The modules that a command has loaded when it ends."""
    program = (
        "import sys; from lakebackup_jobs.cli import main; code = main(sys.argv[1:]);"
        "print(*sys.modules, file=sys.stderr); sys.exit(code)"
    )
    process = run("-c", program, *arguments)
    assert process.returncode == 0, process.stderr
    return set(process.stderr.split())


def test_a_piped_process_is_quiet_and_carries_the_code(folder: Path) -> None:
    process = run("-m", "lakebackup_jobs", "config", "--config", str(folder / "none.toml"))
    assert process.returncode == 3
    assert process.stdout == ""
    assert process.stderr.startswith("error: There is no configuration file")
    assert "\x1b" not in process.stderr


@pytest.mark.parametrize("tracer", ["", "sys.settrace(lambda *_: None);"], ids=["", "traced"])
def test_a_process_that_exits_at_once_has_written_everything_and_run_its_exit_handlers(tracer: str) -> None:
    """A tracer writes its findings when the process ends, after the handlers that lakebackup registers."""
    program = (
        f"import atexit, sys; from lakebackup_jobs.cli import command; sys.argv[1:] = ['config', '--json'];"
        f"atexit.register(print, 'registered before', file=sys.stderr); {tracer} command()"
    )
    process = run("-c", program)
    assert process.returncode == 0
    assert json.loads(process.stdout)
    assert process.stderr == ("registered before\n" if tracer else "")


def test_exit_codes_are_documented() -> None:
    kinds = [k for k in errors.LakebackupError.__subclasses__() if k.__module__ == errors.__name__]
    own = {kind.exit_code: str(kind.__doc__) for kind in kinds}
    fixed = {0: "done", 1: "unexpected failure: a defect, please report it"}
    signals = {129: "SIGHUP", 130: "Ctrl-C (SIGINT)", 143: "SIGTERM"}
    codes = {**fixed, **own, **{code: f"interrupted by {name}" for code, name in signals.items()}}
    rows = "".join(f"| {code} | {meaning} |\n" for code, meaning in codes.items())
    assert f"| code | meaning |\n| --- | --- |\n{rows}\n" in (ROOT / "docs/exit-codes.md").read_text()


def test_settings_are_documented() -> None:
    from lakebackup.config import Settings

    rows = "".join(
        f"| `{name}` | `LAKEBACKUP_{name.upper()}` | {field.description} |\n"
        for name, field in Settings.model_fields.items()
    )
    assert (
        f"| setting | variable | what it is |\n| --- | --- | --- |\n{rows}\n"
        in (ROOT / "docs/configuration.md").read_text()
    )


def test_commands_are_documented() -> None:
    command = "python -m lakebackup_jobs.cli.reference docs/reference/cli"
    pages = {page.name: page.read_text("utf-8") for page in (ROOT / "docs/reference/cli").iterdir()}
    assert pages == {name: marked(text, command) for name, text in reference.pages().items()}, (
        f"the pages are not what --help says: {command}"
    )


def test_help_and_errors_name_no_page_that_a_wheel_lacks() -> None:
    assert [name for name, text in reference.pages().items() if "docs/" in text] == []
    for path in (ROOT / "sql").rglob("*.sql"):
        assert "docs/" not in path.read_text(), path
    for path in [*(ROOT / "catalog").rglob("*.py"), *(ROOT / "jobs").rglob("*.py")]:
        if path.name == "reference.py":  # writes the pages
            continue
        tree = ast.parse(path.read_text())
        docstrings = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
        texts = [
            node for node in ast.walk(tree) if isinstance(node, ast.Constant) and id(node) not in docstrings
        ]
        assert [text.lineno for text in texts if "docs/" in str(text.value)] == [], path


def test_a_flag_means_one_thing() -> None:
    verbs: dict[str, dict[reference.Option, list[str]]] = {}
    for option, verb in reference.options():
        for spelling in option.flag.split()[0].split("/"):
            verbs.setdefault(spelling, {}).setdefault(option, []).append(verb)
    assert {flag: meanings for flag, meanings in verbs.items() if len(meanings) > 1} == {}
    documented = reference.pages()["flags.md"]
    rows = re.findall(r"^\| `(\S+?)[ `]", documented, re.MULTILINE)
    assert set(verbs) == {spelling for row in rows for spelling in row.split("/")}
