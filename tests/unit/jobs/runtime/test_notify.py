"""Notifications of how jobs ended, sent to a real server of this process and to real commands.

They are signed and hold no secret. Whatever their receivers do, a job ends as it would without them.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import re
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from tests.support.command_line import Commands
from tests.support.given_snapshots import FileContent, GivenSnapshots
from tests.support.private import private_file
from tests.support.rows import filled

from lakebackup.config import NotifyOptions, load
from lakebackup.errors import EnvironmentProblem, NotFound, UsageProblem
from lakebackup.rows.upkeep import Policy
from lakebackup_jobs.runtime import notify
from lakebackup_jobs.runtime.masking import without_secrets
from lakebackup_jobs.runtime.notify import Event, send

KEY = b"shared key"
PAGE = Path(__file__).parents[4] / "docs/monitoring/README.md"


class Hook(ThreadingHTTPServer):
    """A webhook that keeps the requests that it got. It answers with `answers` in order, and then with 204.

    For None in place of a status it closes the connection without an answer. A function is called with the
    handler.
    """

    daemon_threads = True

    def __init__(self, port: int = 0) -> None:
        self.requests: list[tuple[dict[str, str], bytes]] = []
        self.answers: list[Any] = []
        super().__init__(("127.0.0.1", port), _Handler)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}/hook-with-a-token"

    def events(self) -> list[dict[str, Any]]:
        return [json.loads(body) for _, body in self.requests]

    def handle_error(self, *_: Any) -> None:
        """Ignore a client that closed the connection."""


class _Handler(BaseHTTPRequestHandler):
    server: Hook

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.server.requests.append((dict(self.headers), body))
        answer = self.server.answers.pop(0) if self.server.answers else 204
        if answer is None:
            self.connection.close()
        elif callable(answer):
            answer(self)
        else:
            self.send_response(answer)
            self.send_header("Location", "/elsewhere")
            self.end_headers()

    def log_message(self, *_: Any) -> None:
        """Log nothing."""


@pytest.fixture
def hook() -> Iterator[Hook]:
    with Hook() as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield server
        server.shutdown()


@pytest.fixture
def snapshots(tmp_path: Path) -> GivenSnapshots:
    snapshots = GivenSnapshots(tmp_path / "backups")
    snapshots.backup([FileContent(name="1.sst", data=b"1")])
    return snapshots


@pytest.fixture
def settings(
    tmp_path: Path, snapshots: GivenSnapshots, monkeypatch: pytest.MonkeyPatch
) -> Callable[[str], Path]:
    """A function that writes lakebackup.toml with these lines below [notify]."""
    monkeypatch.delenv("LAKEBACKUP_CONFIG", raising=False)
    private_file(tmp_path / "key", KEY + b"\n")

    def write_settings(lines: str) -> Path:
        file = tmp_path / "lakebackup.toml"
        file.write_text(
            f'repo = "{snapshots.folder}"\n[kafka]\nsasl.password = "hunter2!"\n[notify]\n{lines}\n'
        )
        return file

    return write_settings


def an_event(**changes: Any) -> Event:
    fields: dict[str, Any] = {
        "event": "failure", "verb": "backup topics", "source": "prod", "destination": "/b",
        "outcome": "Damaged", "exit_code": 7, "error": "torn", "started": 1.0, "finished": 2.0,
    }  # fmt: skip
    return Event(**fields | changes)


def test_a_webhook_hears_of_a_failure_in_a_signed_body(
    hook: Hook, settings: Callable[[str], Path], snapshots: GivenSnapshots, capsys: pytest.CaptureFixture[str]
) -> None:
    file = settings(f'webhook = "{hook.url}"\nkey_file = "{snapshots.folder.parent / "key"}"')
    start = time.time()
    next(snapshots.folder.rglob("*1.sst*")).write_bytes(b"2")
    assert Commands(capsys).run("verify", "--config", file)[0] == 7
    ((headers, body),) = hook.requests
    expected = hmac.new(KEY, body, hashlib.sha256).hexdigest()
    assert headers[notify.SIGNATURE] == f"sha256={expected}"
    event = json.loads(body)
    assert {name: event[name] for name in ("v", "event", "verb", "outcome", "exit_code", "destination")} == {
        "v": 1, "event": "failure", "verb": "verify", "outcome": "Damaged", "exit_code": 7,
        "destination": str(snapshots.folder),
    }  # fmt: skip
    assert (event["counts"]["changed"], event["host"]) == (1, socket.gethostname())
    assert event["error"].startswith("Stored files are not intact")
    assert start - 1 <= event["started"] <= event["finished"] <= event["sent"] + 1 <= time.time() + 1
    # It hears neither of a job that ends well nor of a command that is no job.
    assert Commands(capsys).run("list", "--config", file)[0] == 0
    assert Commands(capsys).run("drill", "--dry-run", "--config", file)[0] == 0
    assert Commands(capsys).run("prune", "--config", file)[0] == 0
    assert len(hook.requests) == 1


def test_a_webhook_for_all_hears_of_a_success_too(
    hook: Hook, settings: Callable[[str], Path], capsys: pytest.CaptureFixture[str]
) -> None:
    file = settings(f'webhook = "{hook.url}"\nwebhook_on = "always"')
    Commands(capsys).output("verify", "--config", file)
    (event,) = hook.events()
    assert (event["event"], event["outcome"], event["exit_code"], event["error"]) == (
        "success",
        "ok",
        0,
        None,
    )
    assert notify.SIGNATURE not in hook.requests[0][0]


def test_the_example_of_the_documentation_accepts_only_signed_events(hook: Hook, tmp_path: Path) -> None:
    private_file(tmp_path / "key", KEY)
    send(NotifyOptions(webhook=hook.url, key_file=str(tmp_path / "key")), an_event())
    ((headers, body),) = hook.requests
    (example,) = re.findall(r"```python\n(.*?def verified.*?)```", PAGE.read_text("utf-8"), re.DOTALL)
    namespace: dict[str, Any] = {}
    exec(example, namespace)
    signature = headers[notify.SIGNATURE]
    assert namespace["verified"](KEY, signature, body)["verb"] == "backup topics"
    old = re.sub(rb'"sent": \d+', b'"sent": 1000', body)
    for key, signed, sent_body in (
        (b"other", signature, body),
        (KEY, signature, body + b" "),
        (KEY, notify.sign(KEY, old), old),
    ):
        with pytest.raises(ValueError, match=r"signature|old"):
            namespace["verified"](key, signed, sent_body)


def test_a_temporary_failure_is_tried_again(hook: Hook) -> None:
    hook.answers = [500, None, 429, 503]
    assert send(NotifyOptions(webhook=hook.url), an_event()) == {"webhook": None}
    assert len({body for _, body in hook.requests}) == 1
    assert len(hook.requests) == 5


def test_a_server_that_starts_late_is_tried_again() -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    results: dict[str, str | None] = {}
    options = NotifyOptions(webhook=f"http://127.0.0.1:{port}/")
    refused = threading.Event()
    may_pass = notify._may_pass

    def record_error(error: BaseException) -> bool:
        refused.set()
        return may_pass(error)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(notify, "_may_pass", record_error)
        patch.setattr(notify, "_LAST_TRY_S", 30.0)  # on a busy machine the server starts later
        patch.setattr(notify, "WEBHOOK_S", 60.0)
        sender = threading.Thread(target=lambda: results.update(send(options, an_event())))
        sender.start()
        assert refused.wait(30)
    with Hook(port) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        sender.join(60)
        server.shutdown()
    assert results == {"webhook": None}
    assert len(server.requests) == 1


@pytest.mark.parametrize(
    ("status", "text"), [(404, "the server answers 404"), (302, "the server answers 302")]
)
def test_a_permanent_failure_is_not_tried_again(hook: Hook, status: int, text: str) -> None:
    hook.answers = [status]
    assert send(NotifyOptions(webhook=hook.url), an_event()) == {"webhook": text}
    assert len(hook.requests) == 1


def test_slow_receivers_are_stopped_at_their_time_limit(hook: Hook, monkeypatch: pytest.MonkeyPatch) -> None:
    """The server answers a byte at a time, and the command does not end."""
    monkeypatch.setattr(notify, "WEBHOOK_S", 0.5)
    monkeypatch.setattr(notify, "_KILL_S", 0.25)
    stop = threading.Event()

    def drip(handler: BaseHTTPRequestHandler) -> None:
        while not stop.wait(0.05):
            handler.wfile.write(b"H")

    hook.answers = [drip]
    options = NotifyOptions(
        webhook=hook.url, on_failure=(sys.executable, "-c", "import time; time.sleep(60)")
    )
    start = time.monotonic()
    results = send(options, an_event())
    took = time.monotonic() - start
    stop.set()
    assert took < 5
    assert results["webhook"] == "not done after 0.5 s"
    assert "was ended after" in (results["on_failure"] or "")


def test_a_webhook_that_is_gone_keeps_a_command_for_seconds_only() -> None:
    """The constants say so without a clock: the last attempt ends within the time limit."""
    assert notify._LAST_TRY_S + notify._ATTEMPT_S <= notify.WEBHOOK_S <= 5
    (seconds,) = re.findall(r"All of it takes (\d+) seconds at most", PAGE.read_text("utf-8"))
    assert float(seconds) == notify.WEBHOOK_S


def test_no_event_is_sent_unsigned_where_a_key_is_named(hook: Hook, tmp_path: Path) -> None:
    private_file(tmp_path / "empty", b"\n")
    private_file(tmp_path / "read by others", b"key").chmod(0o644)
    for name, text in (("gone", "No such file"), ("empty", "is empty"), ("read by others", "may read")):
        options = NotifyOptions(webhook=hook.url, key_file=str(tmp_path / name))
        assert text in (send(options, an_event())["webhook"] or "")
    assert hook.requests == []


def test_commands_get_the_event_in_variables_and_on_standard_input(
    settings: Callable[[str], Path],
    tmp_path: Path,
    snapshots: GivenSnapshots,
    capsys: pytest.CaptureFixture[str],
) -> None:
    script = tmp_path / "hear it.py"
    script.write_text(
        "import json, os, sys\n"
        "own = {k: v for k, v in os.environ.items() if k.startswith('LAKEBACKUP_EVENT_')}\n"
        "print('not for the output of the job')\n"
        "with open(sys.argv[1], 'a') as out: print(json.dumps([own, json.load(sys.stdin)]), file=out)\n"
    )
    log_path = tmp_path / "heard"
    file = settings(
        f"on_failure = '{sys.executable} \"{script}\" {log_path}.failure'\n"
        f'on_success = ["{sys.executable}", "{script}", "{log_path}.success"]'
    )
    commands = Commands(capsys)
    assert "not for" not in commands.output("drill", "--config", file)
    commands.fails(
        NotFound.exit_code, "restore", "snapshot", "--backup", "2031", "--to", "x", "--config", file
    )
    (success,) = [json.loads(line) for line in Path(f"{log_path}.success").read_text().splitlines()]
    (failure,) = [json.loads(line) for line in Path(f"{log_path}.failure").read_text().splitlines()]
    assert (success[0]["LAKEBACKUP_EVENT_VERB"], success[1]["verb"], success[1]["event"]) == (
        "drill",
        "drill",
        "success",
    )
    assert failure[0] | {"LAKEBACKUP_EVENT_ERROR": ""} == failure[0] | {
        "LAKEBACKUP_EVENT_EVENT": "failure",
        "LAKEBACKUP_EVENT_VERB": "restore snapshot",
        "LAKEBACKUP_EVENT_OUTCOME": "NotFound",
        "LAKEBACKUP_EVENT_EXIT_CODE": "3",
        "LAKEBACKUP_EVENT_DESTINATION": str(snapshots.folder),
        "LAKEBACKUP_EVENT_ERROR": "",
    }
    assert failure[0]["LAKEBACKUP_EVENT_ERROR"] == failure[1]["error"]


@pytest.mark.parametrize(
    ("lines", "text"),
    [
        ('on_success = "false"', "[notify] on_success: false ended with 1"),
        ('on_success = "/no/such/command"', "[notify] on_success: /no/such/command: No such file"),
        ('webhook = "http://127.0.0.1:1/x-token"\nwebhook_on = "always"', "[notify] webhook: "),
    ],
)
def test_a_failure_to_notify_is_a_warning_and_changes_no_exit_code(
    settings: Callable[[str], Path],
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    lines: str,
    text: str,
) -> None:
    monkeypatch.setattr(notify, "_LAST_TRY_S", 0.1)
    file = settings(lines)
    code, _, err = Commands(capsys).run("verify", "--config", file)
    assert (code, err.startswith("warning: "), text in err) == (0, True, True), err
    assert "x-token" not in err
    code, output, err = Commands(capsys).run("verify", "--json", "--config", file)
    assert (code, json.loads(output.splitlines()[-1])["event"]) == (0, "result")
    warning = json.loads(err)
    assert (warning["event"], text in warning["message"]) == ("warning", True)


def test_no_event_has_a_secret(
    hook: Hook,
    settings: Callable[[str], Path],
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "wJalrXUtnFEMI")
    file = settings(f'webhook = "{hook.url}"')

    def failing(*_: Any, **__: Any) -> None:
        url = "https://me:word@host/x"
        raise EnvironmentProblem(f"Cannot log in with hunter2! or wJalrXUtnFEMI at {url} or {hook.url}.")

    monkeypatch.setattr("lakebackup_jobs.cli.keep.verify.run", failing)
    assert Commands(capsys).run("verify", "--config", file)[0] == 6
    ((_, body),) = hook.requests
    error = json.loads(body)["error"]
    assert error == "Cannot log in with **** or **** at https://****@host/x or ****."
    for secret in (b"hunter2!", b"wJalr", b"me:word", b"hook-with-a-token"):
        assert secret not in body
    config_text = Commands(capsys).output("config", "--config", file)
    assert "hook-with-a-token" not in config_text
    assert "hunter2!" not in config_text


def test_a_defect_is_heard_of_and_an_interruption_is_not(
    hook: Hook,
    settings: Callable[[str], Path],
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    file = settings(f'webhook = "{hook.url}"')
    raised: list[BaseException] = [KeyError("x"), KeyboardInterrupt()]

    def failing(*_: Any, **__: Any) -> None:
        raise raised.pop(0)

    monkeypatch.setattr("lakebackup_jobs.cli.keep.verify.run", failing)
    assert [Commands(capsys).run("verify", "--config", file)[0] for _ in range(2)] == [1, 130]
    assert [(event["outcome"], event["exit_code"]) for event in hook.events()] == [("KeyError", 1)]


def test_due_leaves_notifications_to_the_backups_that_it_runs(
    hook: Hook, settings: Callable[[str], Path], snapshots: GivenSnapshots, capsys: pytest.CaptureFixture[str]
) -> None:
    file = settings(f'webhook = "{hook.url}"\nwebhook_on = "always"')
    commands = Commands(capsys)
    commands.output("due", "--run", "--config", file)
    assert hook.requests == []
    missing_repo = ("--repo", snapshots.folder / "gone", "--config", file)
    commands.fails(NotFound.exit_code, "due", *missing_repo)
    assert hook.requests == []
    commands.fails(NotFound.exit_code, "due", "--run", *missing_repo)
    assert [(event["verb"], event["outcome"]) for event in hook.events()] == [("due", "NotFound")]
    schedules = {"full_schedule": "daily", "incremental_schedule": "hourly", "time_zone": "Mars"}
    snapshots.writer.record(filled(Policy, source="mars", at=1, **schedules))
    error = commands.fails(UsageProblem.exit_code, "due", "--run", "--config", file)
    assert error.count("The policy of mars cannot be read: --time-zone 'Mars' is not a time zone.") == 1
    assert "lakebackup policy set mars --time-zone ZONE" in error
    assert [(event["verb"], event["outcome"]) for event in hook.events()[1:]] == [("due", "UsageProblem")]


def test_a_test_event_goes_everywhere(
    hook: Hook, settings: Callable[[str], Path], capsys: pytest.CaptureFixture[str]
) -> None:
    commands = Commands(capsys)
    file = settings(f'on_failure = "true"\non_success = "true"\nwebhook = "{hook.url}"')
    result = commands.result("notify", "--config", file)
    assert (result["on_failure"], result["on_success"], result["webhook"]) == ("sent", "sent", "sent")
    assert [event["event"] for event in hook.events()] == ["test"]
    hook.answers = [403]
    code, output, _ = commands.run("notify", "--config", file)
    assert (code, "the server answers 403" in output) == (EnvironmentProblem.exit_code, True)
    assert "names nobody" in commands.fails(UsageProblem.exit_code, "notify", "--config", settings(""))


@pytest.mark.parametrize(
    ("lines", "text"),
    [
        ('webhook = "ftp://x/secret-path"', "notify.webhook"),
        ('on_failure = ""', "notify.on_failure"),
        ('webhook_on = "never"', "notify.webhook_on"),
        ('on_error = "x"', "notify.on_error"),
    ],
)
def test_wrong_settings_are_refused(settings: Callable[[str], Path], lines: str, text: str) -> None:
    with pytest.raises(UsageProblem, match=re.escape(text)) as raised:
        load({}, settings(lines))
    assert "secret-path" not in str(raised.value)


def test_settings_come_from_variables_too(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("LAKEBACKUP_NOTIFY__ON_FAILURE", "mail -s 'a backup failed' ops")
    monkeypatch.setenv("LAKEBACKUP_NOTIFY__ON_SUCCESS", '["touch", "a b"]')
    monkeypatch.setenv("LAKEBACKUP_NOTIFY__WEBHOOK", "https://hooks.example/x")
    options = load({}).notify
    assert (options.on_failure, options.on_success) == ("mail -s 'a backup failed' ops", ("touch", "a b"))
    assert load({}).masked()["notify"]["webhook"] == "https://hooks.example/****"


def test_words_of_a_message_are_no_secrets() -> None:
    assert without_secrets("a://b:c@d e@f", ["zzzz"]) == "a://****@d e@f"
