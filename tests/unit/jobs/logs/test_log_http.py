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
from lakebackup_jobs.logs.control.verbs import Place
from lakebackup_jobs.logs.task import TaskSettings
from lakebackup_jobs.runtime.child import free_port

KAFKA = {"bootstrap.servers": "127.0.0.1:1", "sasl.password": "s3cret"}


@pytest.fixture
def place(tmp_path: Path) -> Place:
    MadeBackups(tmp_path).flush()
    return Place(str(tmp_path), None, KAFKA)


@pytest.fixture
def api(place: Place) -> Iterator[httpx.Client]:
    with serving(app_of(place, None), "127.0.0.1", 0) as (url, _), httpx.Client(base_url=url) as client:
        yield client


def start(api: httpx.Client, settings: dict[str, Any], **more: Any) -> httpx.Response:
    given = {"feed": "br", "bootstrap": "127.0.0.1:1", "topics": ["t"], **settings}
    return api.post("/log/tasks", json={"name": "lab", "settings": given, **more}, timeout=60)


def test_settings_that_are_unknown_are_refused(api: httpx.Client) -> None:
    for unknown in ({"filter": ["!mysql.*"]}, {"endTs": 5}):
        found = start(api, unknown)
        assert found.status_code == 422
        assert found.json()["message"].startswith(f"settings.{next(iter(unknown))}: ")
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
    port = free_port()  # where nobody listens: it would be told as unreachable
    found = start(api, {"bootstrap": f"127.0.0.1:{port}"})
    assert (found.status_code, found.json()["error"]) == (422, "UsageProblem")
    assert f"not for 127.0.0.1:{port}" in found.json()["message"]


def test_a_name_that_was_pointed_here_is_no_name_of_this_machine(api: httpx.Client) -> None:
    assert api.get("/log/tasks", headers={"Host": "evil.example"}).status_code == 403
    for host in ("localhost:8088", "[::1]:8088", "127.0.0.1"):
        assert api.get("/log/tasks", headers={"Host": host}).status_code == 200


def body(megabytes: int) -> Iterator[bytes]:
    """A chunked body."""
    for _ in range(megabytes):
        yield b" " * (1 << 20)


def test_who_may_not_ask_is_answered_before_the_body_is_read(place: Place) -> None:
    """The gate alone, so that nothing between it and this test reads ahead."""
    read: list[str] = []

    async def receive() -> Any:
        read.append("body")
        return {"type": "http.request", "body": b"x", "more_body": True}

    sent: list[Any] = []

    async def send(message: Any) -> None:
        sent.append(message)

    headers = [(b"host", b"127.0.0.1"), (b"authorization", b"Bearer wrong")]
    scope = {"type": "http", "method": "POST", "path": "/log/tasks", "query_string": b"", "headers": headers}
    asyncio.run(app_of(place, "s3cret")(scope, receive, send))
    assert (sent[0]["status"], read) == (401, [])


def test_large_bodies_are_refused(api: httpx.Client) -> None:
    """Also without a Content-Length."""
    for content in (b" " * (1 << 21), body(2)):
        found = api.post("/log/tasks", content=content)
        assert (found.status_code, found.json()["error"]) == (413, "TooLarge")
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
    found = api.request(method, path, content=content)
    assert (found.status_code, found.json()["error"]) == (status, error)
    assert set(found.json()) == {"error", "message", "hint"}


def test_a_defect_has_that_form_too(api: httpx.Client, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr(Place, "status", fail)
    found = api.get("/log/tasks/lab")
    assert (found.status_code, found.json()["error"]) == (500, "Unexpected")
    assert "ZeroDivisionError" in found.json()["message"]


def test_a_job_that_cannot_encrypt_is_not_started(place: Place) -> None:
    settings = TaskSettings("br", "127.0.0.1:1", ("t",), encrypt=True)
    with pytest.raises(UsageProblem, match="task lab is encrypted, and no key file is set"):
        control.start(Place(place.destination, None, {}, []), "lab", settings)


def test_a_place_shows_no_secrets(place: Place) -> None:
    assert "s3cret" not in repr(place)
