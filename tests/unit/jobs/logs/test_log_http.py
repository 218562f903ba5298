"""What the HTTP API of log tasks refuses before any task or broker is asked."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from tests.support.made_backups import MadeBackups

from lakebackup.errors import UsageProblem
from lakebackup_jobs.logs.control import verbs as control
from lakebackup_jobs.logs.control.http_api import app_of, serving
from lakebackup_jobs.logs.control.verbs import LogTasks
from lakebackup_jobs.logs.task import TaskSettings
from lakebackup_jobs.runtime.child import free_port

KAFKA = {"bootstrap.servers": "127.0.0.1:1", "sasl.password": "s3cret"}


@pytest.fixture
def repository(tmp_path: Path) -> LogTasks:
    MadeBackups(tmp_path).flush()
    return LogTasks(str(tmp_path), None, KAFKA)


@pytest.fixture
def api(repository: LogTasks) -> Iterator[httpx.Client]:
    with serving(app_of(repository, None), "127.0.0.1", 0) as (url, _), httpx.Client(base_url=url) as client:
        yield client


def start(api: httpx.Client, settings: dict[str, Any], **fields: Any) -> httpx.Response:
    task_settings = {"feed": "br", "bootstrap": "127.0.0.1:1", "topics": ["t"], **settings}
    return api.post("/log/tasks", json={"name": "lab", "settings": task_settings, **fields}, timeout=60)


def test_settings_that_are_unknown_are_refused(api: httpx.Client) -> None:
    for unknown in ({"filter": ["!mysql.*"]}, {"endTs": 5}):
        response = start(api, unknown)
        assert response.status_code == 422
        assert response.json()["message"].startswith(f"settings.{next(iter(unknown))}: ")
    assert start(api, {}, filters=[]).status_code == 422
    assert api.get("/log/tasks").json() == []


def test_a_resume_says_which_messages_to_skip(api: httpx.Client, monkeypatch: pytest.MonkeyPatch) -> None:
    resumed: list[tuple[str, list[str]]] = []
    monkeypatch.setattr(control, "resume", lambda _, name, skip: resumed.append((name, list(skip))) or {})
    assert api.post("/log/tasks/lab/resume").status_code == 200
    assert api.post("/log/tasks/lab/resume", json={"skip": ["t:0:7"]}).status_code == 200
    assert api.post("/log/tasks/lab/resume", json={"other": 1}).status_code == 422
    assert resumed == [("lab", []), ("lab", ["t:0:7"])]


def test_passwords_go_to_no_servers_but_their_own(api: httpx.Client) -> None:
    port = free_port()  # nobody listens there: if it were asked, the error would be that it is unreachable
    response = start(api, {"bootstrap": f"127.0.0.1:{port}"})
    assert (response.status_code, response.json()["error"]) == (422, "UsageProblem")
    assert f"not for 127.0.0.1:{port}" in response.json()["message"]


def test_requests_for_a_foreign_host_name_are_refused(api: httpx.Client) -> None:
    assert api.get("/log/tasks", headers={"Host": "evil.example"}).status_code == 403
    for host in ("localhost:8088", "[::1]:8088", "127.0.0.1"):
        assert api.get("/log/tasks", headers={"Host": host}).status_code == 200


def body(megabytes: int) -> Iterator[bytes]:
    """A chunked body."""
    for _ in range(megabytes):
        yield b" " * (1 << 20)


def test_an_unauthorized_request_is_answered_before_its_body_is_read(repository: LogTasks) -> None:
    """The app is called directly, so that no server reads ahead."""
    read: list[str] = []

    async def receive() -> Any:
        read.append("body")
        return {"type": "http.request", "body": b"x", "more_body": True}

    responses: list[Any] = []

    async def send(message: Any) -> None:
        responses.append(message)

    headers = [(b"host", b"127.0.0.1"), (b"authorization", b"Bearer wrong")]
    scope = {"type": "http", "method": "POST", "path": "/log/tasks", "query_string": b"", "headers": headers}
    asyncio.run(app_of(repository, "s3cret")(scope, receive, send))
    assert (responses[0]["status"], read) == (401, [])


def test_large_bodies_are_refused(api: httpx.Client) -> None:
    """A body without a Content-Length is refused too."""
    for content in (b" " * (1 << 21), body(2)):
        response = api.post("/log/tasks", content=content)
        assert (response.status_code, response.json()["error"]) == (413, "TooLarge")
    assert start(api, {"unknown": "x" * 900_000}).status_code == 422


@pytest.mark.parametrize(
    ("method", "path", "content", "status", "error"),
    [
        ("GET", "/nothing", None, 404, "NotFound"),
        ("GET", "/log/tasks/nobody", None, 404, "NotFound"),
        ("DELETE", "/log/tasks", None, 405, "MethodNotAllowed"),
        ("POST", "/log/tasks", b"{", 422, "UsageProblem"),
        ("POST", "/log/tasks", b"[]", 422, "UsageProblem"),
        ("POST", "/log/tasks", b"\xff", 422, "UsageProblem"),
    ],
)
def test_every_error_has_one_form(
    api: httpx.Client, method: str, path: str, content: bytes | None, status: int, error: str
) -> None:
    response = api.request(method, path, content=content)
    assert (response.status_code, response.json()["error"]) == (status, error)
    assert set(response.json()) == {"error", "message", "hint"}


def test_a_defect_has_the_form_of_other_errors(api: httpx.Client, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr(LogTasks, "status", fail)
    response = api.get("/log/tasks/lab")
    assert (response.status_code, response.json()["error"]) == (500, "Unexpected")
    assert "ZeroDivisionError" in response.json()["message"]


def test_a_job_that_cannot_encrypt_is_not_started(repository: LogTasks) -> None:
    settings = TaskSettings("br", "127.0.0.1:1", ("t",), encrypt=True)
    with pytest.raises(UsageProblem, match="task lab is encrypted, and no key file is set"):
        control.start(LogTasks(repository.destination, None, {}, []), "lab", settings)


def test_the_repr_of_a_repository_shows_no_secrets(repository: LogTasks) -> None:
    assert "s3cret" not in repr(repository)
