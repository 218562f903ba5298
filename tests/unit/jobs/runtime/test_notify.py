"""Notifications: a real server of this process and real commands hear how jobs ended, signed and without
secrets, and whatever they do the job ends as it would without them."""

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
from tests.support.given_snapshots import Given, GivenSnapshots
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
    """A webhook that keeps what it got, and answers with `answers` in their order, then with 204.

    None in place of a status: the connection is closed without an answer. A function is called with the
    handler.
    """

    daemon_threads = True

    def __init__(self, port: int = 0) -> None:
        self.got: list[tuple[dict[str, str], bytes]] = []
        self.answers: list[Any] = []
        super().__init__(("127.0.0.1", port), _Handler)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}/hook-with-a-token"

    def events(self) -> list[dict[str, Any]]:
        return [json.loads(body) for _, body in self.got]

    def handle_error(self, *_: Any) -> None:
        """A client that left."""


class _Handler(BaseHTTPRequestHandler):
    server: Hook

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.server.got.append((dict(self.headers), body))
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
        """Nothing."""


@pytest.fixture
def hook() -> Iterator[Hook]:
    with Hook() as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield server
        server.shutdown()


@pytest.fixture
def made(tmp_path: Path) -> GivenSnapshots:
    made = GivenSnapshots(tmp_path / "backups")
    made.backup([Given(name="1.sst", data=b"1")])
    return made


@pytest.fixture
def settings(tmp_path: Path, made: GivenSnapshots, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], Path]:
    """Writes lakebackup.toml with a [notify] of these lines."""
    monkeypatch.delenv("LAKEBACKUP_CONFIG", raising=False)
    private_file(tmp_path / "key", KEY + b"\n")

    def written(lines: str) -> Path:
        file = tmp_path / "lakebackup.toml"
        file.write_text(f'repo = "{made.folder}"\n[kafka]\nsasl.password = "hunter2!"\n[notify]\n{lines}\n')
        return file

    return written


def an_event(**more: Any) -> Event:
    own: dict[str, Any] = {
        "event": "failure", "verb": "backup topics", "source": "prod", "destination": "/b",
        "outcome": "Damaged", "exit_code": 7, "error": "torn", "started": 1.0, "finished": 2.0,
    }  # fmt: skip
    return Event(**own | more)


def test_a_webhook_hears_of_a_failure_in_a_signed_body(
    hook: Hook, settings: Callable[[str], Path], made: GivenSnapshots, capsys: pytest.CaptureFixture[str]
) -> None:
    file = settings(f'webhook = "{hook.url}"\nkey_file = "{made.folder.parent / "key"}"')
    began = time.time()
    next(made.folder.rglob("*1.sst*")).write_bytes(b"2")
    assert Commands(capsys).run("verify", "--config", file)[0] == 7
    ((headers, body),) = hook.got
    expected = hmac.new(KEY, body, hashlib.sha256).hexdigest()
    assert headers[notify.SIGNATURE] == f"sha256={expected}"
    event = json.loads(body)
    assert {name: event[name] for name in ("v", "event", "verb", "outcome", "exit_code", "destination")} == {
        "v": 1, "event": "failure", "verb": "verify", "outcome": "Damaged", "exit_code": 7,
        "destination": str(made.folder),
    }  # fmt: skip
    assert (event["counts"]["changed"], event["host"]) == (1, socket.gethostname())
    assert event["error"].startswith("Stored files are not intact")
    assert began - 1 <= event["started"] <= event["finished"] <= event["sent"] + 1 <= time.time() + 1
    # A job that ends well is not what it wants to hear of, nor what is no job.
    assert Commands(capsys).run("list", "--config", file)[0] == 0
    assert Commands(capsys).run("drill", "--dry-run", "--config", file)[0] == 0
    assert Commands(capsys).run("prune", "--config", file)[0] == 0
    assert len(hook.got) == 1


def test_a_webhook_for_all_hears_of_a_success_too(
    hook: Hook, settings: Callable[[str], Path], capsys: pytest.CaptureFixture[str]
) -> None:
    file = settings(f'webhook = "{hook.url}"\nwebhook_on = "always"')
    Commands(capsys).out("verify", "--config", file)
    (event,) = hook.events()
    assert (event["event"], event["outcome"], event["exit_code"], event["error"]) == (
        "success",
        "ok",
        0,
        None,
    )
    assert notify.SIGNATURE not in hook.got[0][0]


def test_the_example_of_the_documentation_takes_what_is_sent_and_nothing_else(
    hook: Hook, tmp_path: Path
) -> None:
    private_file(tmp_path / "key", KEY)
    send(NotifyOptions(webhook=hook.url, key_file=str(tmp_path / "key")), an_event())
    ((headers, body),) = hook.got
    (example,) = re.findall(r"```python\n(.*?def verified.*?)```", PAGE.read_text("utf-8"), re.DOTALL)
    own: dict[str, Any] = {}
    exec(example, own)
    signature = headers[notify.SIGNATURE]
    assert own["verified"](KEY, signature, body)["verb"] == "backup topics"
    old = re.sub(rb'"sent": \d+', b'"sent": 1000', body)
    for key, signed, sent in (
        (b"other", signature, body),
        (KEY, signature, body + b" "),
        (KEY, notify.sign(KEY, old), old),
    ):
        with pytest.raises(ValueError, match=r"signature|old"):
            own["verified"](key, signed, sent)


def test_what_may_pass_is_tried_again(hook: Hook) -> None:
    hook.answers = [500, None, 429, 503]
    assert send(NotifyOptions(webhook=hook.url), an_event()) == {"webhook": None}
    assert len({body for _, body in hook.got}) == 1
    assert len(hook.got) == 5


def test_a_server_that_comes_late_is_tried_again() -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    sent: dict[str, str | None] = {}
    options = NotifyOptions(webhook=f"http://127.0.0.1:{port}/")
    refused = threading.Event()
    before = notify._may_pass

    def seen(error: BaseException) -> bool:
        refused.set()
        return before(error)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(notify, "_may_pass", seen)
        patch.setattr(notify, "_LAST_TRY_S", 30.0)  # on a busy machine the server comes later
        patch.setattr(notify, "WEBHOOK_S", 60.0)
        sender = threading.Thread(target=lambda: sent.update(send(options, an_event())))
        sender.start()
        assert refused.wait(30)
    with Hook(port) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        sender.join(60)
        server.shutdown()
    assert sent == {"webhook": None}
    assert len(server.got) == 1


@pytest.mark.parametrize(
    ("status", "text"), [(404, "the server answers 404"), (302, "the server answers 302")]
)
def test_what_does_not_pass_is_not_tried_again(hook: Hook, status: int, text: str) -> None:
    hook.answers = [status]
    assert send(NotifyOptions(webhook=hook.url), an_event()) == {"webhook": text}
    assert len(hook.got) == 1


def test_nothing_takes_longer_than_its_time(hook: Hook, monkeypatch: pytest.MonkeyPatch) -> None:
    """A server that answers a byte at a time, and a command that does not end."""
    monkeypatch.setattr(notify, "WEBHOOK_S", 0.5)
    monkeypatch.setattr(notify, "_KILL_S", 0.25)
    left = threading.Event()

    def drip(handler: BaseHTTPRequestHandler) -> None:
        while not left.wait(0.05):
            handler.wfile.write(b"H")

    hook.answers = [drip]
    options = NotifyOptions(
        webhook=hook.url, on_failure=(sys.executable, "-c", "import time; time.sleep(60)")
    )
    began = time.monotonic()
    sent = send(options, an_event())
    took = time.monotonic() - began
    left.set()
    assert took < 5
    assert sent["webhook"] == "not done after 0.5 s"
    assert "was ended after" in (sent["on_failure"] or "")


def test_a_webhook_that_is_gone_keeps_a_command_for_seconds_only() -> None:
    """By what is set, no clock is needed: the last attempt ends with the time that there is."""
    assert notify._LAST_TRY_S + notify._ATTEMPT_S <= notify.WEBHOOK_S <= 5
    (words,) = re.findall(r"All of it takes (\d+) seconds at most", PAGE.read_text("utf-8"))
    assert float(words) == notify.WEBHOOK_S


def test_it_is_not_sent_unsigned_where_a_key_is_named(hook: Hook, tmp_path: Path) -> None:
    private_file(tmp_path / "empty", b"\n")
    private_file(tmp_path / "read by others", b"key").chmod(0o644)
    for name, text in (("gone", "No such file"), ("empty", "is empty"), ("read by others", "may read")):
        options = NotifyOptions(webhook=hook.url, key_file=str(tmp_path / name))
        assert text in (send(options, an_event())["webhook"] or "")
    assert hook.got == []


def test_commands_get_the_event_in_variables_and_on_standard_input(
    settings: Callable[[str], Path], tmp_path: Path, made: GivenSnapshots, capsys: pytest.CaptureFixture[str]
) -> None:
    script = tmp_path / "hear it.py"
    script.write_text(
        "import json, os, sys\n"
        "own = {k: v for k, v in os.environ.items() if k.startswith('LAKEBACKUP_EVENT_')}\n"
        "print('not for the output of the job')\n"
        "with open(sys.argv[1], 'a') as out: print(json.dumps([own, json.load(sys.stdin)]), file=out)\n"
    )
    heard = tmp_path / "heard"
    file = settings(
        f"on_failure = '{sys.executable} \"{script}\" {heard}.failure'\n"
        f'on_success = ["{sys.executable}", "{script}", "{heard}.success"]'
    )
    commands = Commands(capsys)
    assert "not for" not in commands.out("drill", "--config", file)
    commands.fails(
        NotFound.exit_code, "restore", "snapshot", "--backup", "2031", "--to", "x", "--config", file
    )
    (good,) = [json.loads(line) for line in Path(f"{heard}.success").read_text().splitlines()]
    (bad,) = [json.loads(line) for line in Path(f"{heard}.failure").read_text().splitlines()]
    assert (good[0]["LAKEBACKUP_EVENT_VERB"], good[1]["verb"], good[1]["event"]) == (
        "drill",
        "drill",
        "success",
    )
    assert bad[0] | {"LAKEBACKUP_EVENT_ERROR": ""} == bad[0] | {
        "LAKEBACKUP_EVENT_EVENT": "failure",
        "LAKEBACKUP_EVENT_VERB": "restore snapshot",
        "LAKEBACKUP_EVENT_OUTCOME": "NotFound",
        "LAKEBACKUP_EVENT_EXIT_CODE": "3",
        "LAKEBACKUP_EVENT_DESTINATION": str(made.folder),
        "LAKEBACKUP_EVENT_ERROR": "",
    }
    assert bad[0]["LAKEBACKUP_EVENT_ERROR"] == bad[1]["error"]


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
    code, out, err = Commands(capsys).run("verify", "--json", "--config", file)
    assert (code, json.loads(out.splitlines()[-1])["event"]) == (0, "result")
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

    monkeypatch.setattr("lakebackup_jobs.upkeep.verify.run", failing)
    assert Commands(capsys).run("verify", "--config", file)[0] == 6
    ((_, body),) = hook.got
    error = json.loads(body)["error"]
    assert error == "Cannot log in with **** or **** at https://****@host/x or ****."
    for secret in (b"hunter2!", b"wJalr", b"me:word", b"hook-with-a-token"):
        assert secret not in body
    shown = Commands(capsys).out("config", "--config", file)
    assert "hook-with-a-token" not in shown
    assert "hunter2!" not in shown


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

    monkeypatch.setattr("lakebackup_jobs.upkeep.verify.run", failing)
    assert [Commands(capsys).run("verify", "--config", file)[0] for _ in range(2)] == [1, 130]
    assert [(event["outcome"], event["exit_code"]) for event in hook.events()] == [("KeyError", 1)]


def test_due_leaves_it_to_the_backups_that_it_takes(
    hook: Hook, settings: Callable[[str], Path], made: GivenSnapshots, capsys: pytest.CaptureFixture[str]
) -> None:
    file = settings(f'webhook = "{hook.url}"\nwebhook_on = "always"')
    commands = Commands(capsys)
    commands.out("due", "--run", "--config", file)
    assert hook.got == []
    gone = ("--repo", made.folder / "gone", "--config", file)
    commands.fails(NotFound.exit_code, "due", *gone)
    assert hook.got == []
    commands.fails(NotFound.exit_code, "due", "--run", *gone)
    assert [(event["verb"], event["outcome"]) for event in hook.events()] == [("due", "NotFound")]
    schedules = {"full_schedule": "daily", "incremental_schedule": "hourly", "time_zone": "Mars"}
    made.writer.record(filled(Policy, source="mars", at=1, **schedules))
    said = commands.fails(UsageProblem.exit_code, "due", "--run", "--config", file)
    assert said.count("The policy of mars cannot be read: --time-zone 'Mars' is not a time zone.") == 1
    assert "lakebackup policy set mars --time-zone ZONE" in said
    assert [(event["verb"], event["outcome"]) for event in hook.events()[1:]] == [("due", "UsageProblem")]


def test_a_test_event_goes_everywhere(
    hook: Hook, settings: Callable[[str], Path], capsys: pytest.CaptureFixture[str]
) -> None:
    commands = Commands(capsys)
    file = settings(f'on_failure = "true"\non_success = "true"\nwebhook = "{hook.url}"')
    told = commands.told("notify", "--config", file)
    assert (told["on_failure"], told["on_success"], told["webhook"]) == ("sent", "sent", "sent")
    assert [event["event"] for event in hook.events()] == ["test"]
    hook.answers = [403]
    code, out, _ = commands.run("notify", "--config", file)
    assert (code, "the server answers 403" in out) == (EnvironmentProblem.exit_code, True)
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
def test_settings_that_are_wrong(settings: Callable[[str], Path], lines: str, text: str) -> None:
    with pytest.raises(UsageProblem, match=re.escape(text)) as raised:
        load({}, settings(lines))
    assert "secret-path" not in str(raised.value)


def test_settings_come_from_variables_too(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("LAKEBACKUP_NOTIFY__ON_FAILURE", "mail -s 'a backup failed' ops")
    monkeypatch.setenv("LAKEBACKUP_NOTIFY__ON_SUCCESS", '["touch", "a b"]')
    monkeypatch.setenv("LAKEBACKUP_NOTIFY__WEBHOOK", "https://hooks.example/x")
    found = load({}).notify
    assert (found.on_failure, found.on_success) == ("mail -s 'a backup failed' ops", ("touch", "a b"))
    assert load({}).shown()["notify"]["webhook"] == "https://hooks.example/****"


def test_words_of_a_message_are_no_secrets() -> None:
    assert without_secrets("a://b:c@d e@f", ["zzzz"]) == "a://****@d e@f"
