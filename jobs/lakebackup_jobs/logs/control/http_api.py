"""Log tasks over HTTP: the verbs of `lakebackup log` as JSON, and Prometheus metrics."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import uvicorn
from fastapi import APIRouter, Depends, FastAPI, Response
from fastapi.security import HTTPBearer
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest
from pydantic import BaseModel, ConfigDict, Field, with_config
from starlette.types import ASGIApp
from uvicorn.protocols.http.h11_impl import H11Protocol, RequestResponseCycle

from lakebackup.errors import EnvironmentProblem, UsageProblem
from lakebackup.storage import open_storage
from lakebackup_jobs.logs.control import verbs as control
from lakebackup_jobs.logs.control.http_gate import Gate, answer_errors
from lakebackup_jobs.logs.control.metrics import of_destination, url_of
from lakebackup_jobs.logs.control.status import statuses
from lakebackup_jobs.logs.control.verbs import LogTasks
from lakebackup_jobs.logs.task import TaskSettings

# The seconds within which a request must have arrived. Requests are short, so this is ample.
_REQUEST_S = 10.0
_MOST_CONNECTIONS = 100


@with_config(ConfigDict(extra="forbid"))
@dataclass(frozen=True, slots=True)
class StartSettings(TaskSettings):
    """Settings in a request, where an unknown one is an error."""


class Start(BaseModel, extra="forbid"):
    """A task to start: its name and its settings, as `lakebackup log start` takes them."""

    name: str = Field(description="name of the task")
    settings: StartSettings


class Resume(BaseModel, extra="forbid"):
    """How a task is resumed."""

    skip: list[str] = Field([], description="messages that are left out for good, as TOPIC:PARTITION:OFFSET")


def app_of(log_tasks: LogTasks, token: str | None) -> FastAPI:
    """Return the API for log tasks. `token` is the bearer token that requests must send; None: no token.

    An error is answered with {"error", "message", "hint"}. If the state of a task is the reason, the answer
    also has its status, as `task`.
    """
    app = FastAPI(title="lakebackup", docs_url=None, redoc_url=None)
    # The dependency only describes the token in OpenAPI. Gate checks it.
    app.include_router(_tasks(log_tasks), dependencies=[Depends(HTTPBearer(auto_error=False))])
    app.add_middleware(Gate, token=token)
    answer_errors(app)
    return app


def _tasks(log_tasks: LogTasks) -> APIRouter:
    routes = APIRouter()

    @routes.get("/log/tasks")
    def tasks() -> list[dict[str, Any]]:
        """Every task, as `lakebackup log status --json` shows it."""
        return statuses(log_tasks.reader(), open_storage(log_tasks.destination))

    @routes.post("/log/tasks", status_code=201)
    def start(request: Start) -> dict[str, Any]:
        """Start a task, or resume one that was stopped; its job is started on this machine."""
        _check_servers(log_tasks, request.settings)
        return control.start(log_tasks, request.name, request.settings)

    @routes.get("/log/tasks/{name}")
    def task(name: str) -> dict[str, Any]:
        """One task."""
        return log_tasks.status(name)

    @routes.post("/log/tasks/{name}/pause")
    def pause(name: str) -> dict[str, Any]:
        """Flush what has arrived, then sleep."""
        return control.pause(log_tasks, name)

    @routes.post("/log/tasks/{name}/resume")
    def resume(name: str, options: Resume | None = None) -> dict[str, Any]:
        """Continue where it ended."""
        return control.resume(log_tasks, name, options.skip if options else ())

    @routes.post("/log/tasks/{name}/stop")
    def stop(name: str) -> dict[str, Any]:
        """Stop the task; `lost`: events of each topic that are not flushed."""
        return control.stop(log_tasks, name)

    registry = of_destination(log_tasks.destination, log_tasks.catalog)

    @routes.get("/metrics")
    def metrics() -> Response:
        """Every task and every source, for Prometheus."""
        return Response(generate_latest(registry), media_type=CONTENT_TYPE_LATEST)

    return routes


def _check_servers(log_tasks: LogTasks, settings: TaskSettings) -> None:
    """Raise UsageProblem if a task would send the passwords of this server's settings to other brokers."""
    own_servers = log_tasks.kafka.get("bootstrap.servers")
    other_settings = log_tasks.kafka.keys() - {"bootstrap.servers"}
    if settings.bootstrap != own_servers and other_settings:
        raise UsageProblem(
            f"The Kafka settings of this server are not for {settings.bootstrap}.",
            hint=f"Over HTTP tasks read from {own_servers}."
            if own_servers
            else "Set bootstrap.servers beside them.",
        )


class _BoundedProtocol(H11Protocol):
    """HTTP for clients that may be hostile: limits the connections, and the time for a request to arrive."""

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        self._deadline = self.loop.call_later(_REQUEST_S, self._end_unfinished)
        if len(self.connections) > _MOST_CONNECTIONS:
            transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        self._deadline.cancel()
        super().connection_lost(exc)

    def _end_unfinished(self) -> None:
        """Close the connection unless a request is being answered; in that case look again later."""
        cycle: RequestResponseCycle | None = self.cycle
        if cycle is None or cycle.response_complete:
            self.transport.abort()
        else:
            self._deadline = self.loop.call_later(_REQUEST_S, self._end_unfinished)


@contextmanager
def serving(app: ASGIApp, host: str, port: int) -> Iterator[tuple[str, Callable[[], bool]]]:
    """Serve an app while the block runs. Yield its URL, and a function that tells if the server still runs.

    Raises EnvironmentProblem when the server cannot listen at the host and port.
    """
    try:
        listener = socket.create_server(
            (host, port), family=socket.AF_INET6 if ":" in host else socket.AF_INET
        )
    except OSError as error:
        raise EnvironmentProblem(
            f"Cannot listen at {host}:{port}: {error.strerror or error}.", hint="Give another --port."
        ) from None
    with listener:
        config = uvicorn.Config(app, http=_BoundedProtocol, log_level="warning", access_log=False)
        server = uvicorn.Server(config)
        thread = threading.Thread(target=server.run, args=([listener],), name="http", daemon=True)
        thread.start()
        try:
            yield url_of(host, listener.getsockname()[1]), thread.is_alive
        finally:
            server.should_exit = True
            thread.join()
