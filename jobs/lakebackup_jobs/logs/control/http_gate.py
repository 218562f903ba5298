"""Access control of the HTTP service, the largest size of a request, and the form of its errors."""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from typing import Any

from fastapi import FastAPI
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from fastapi.security.utils import get_authorization_scheme_param
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from lakebackup.errors import (
    Busy,
    Damaged,
    EnvironmentProblem,
    LakebackupError,
    NotFound,
    Refused,
    UsageProblem,
)
from lakebackup_jobs.logs.control.verbs import Failed

#: The most bytes of a request's body.
MOST_BYTES = 1 << 20
LOOPBACK = ("127.0.0.1", "::1", "localhost")

# Refused and Busy are conflicts with the state of the task.
_STATUS: Mapping[type[LakebackupError], int] = {
    UsageProblem: 422,
    NotFound: 404,
    Refused: 409,
    Busy: 409,
    EnvironmentProblem: 503,
    Damaged: 500,
}


class Gate:
    """Checks a request before its body is read, and caps the size of the body.

    `token`: the bearer token that requests must send. Without a token, only programs of this machine get an
    answer. The gate refuses pages in a browser, which send their origin, and foreign host names that resolve
    to this machine.
    """

    def __init__(self, app: ASGIApp, token: str | None) -> None:
        self._app, self._token = app, token

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        refusal = self._refusal(Request(scope))
        if refusal is None:
            await self._app(scope, _capped(receive), send)
        else:
            await refusal(scope, receive, send)

    def _refusal(self, request: Request) -> Response | None:
        """Return the response that refuses a request; None if the request is allowed."""
        if self._token is None:
            if "origin" not in request.headers and _host(request) in LOOPBACK:
                return None
            hint = (
                "Ask for http://127.0.0.1, not from a web page; or start the service with --token-file FILE."
            )
            return answer(
                403, "Forbidden", "Without a token only programs of this machine are answered.", hint
            )
        scheme, token = get_authorization_scheme_param(request.headers.get("authorization"))
        if scheme.lower() == "bearer" and secrets.compare_digest(token.encode(), self._token.encode()):
            return None
        response = answer(
            401, "Unauthorized", "The token is missing or wrong.", "Send: Authorization: Bearer TOKEN"
        )
        response.headers["WWW-Authenticate"] = "Bearer"
        return response


def _host(request: Request) -> str | None:
    try:
        return request.url.hostname
    except ValueError:  # The Host header is not a valid name.
        return None


def _capped(receive: Receive) -> Receive:
    """Return a `receive` that raises HTTPException 413 once a request's body is larger than MOST_BYTES."""
    received = 0

    async def capped() -> Message:
        nonlocal received
        message = await receive()
        received += len(message.get("body", b""))
        if received > MOST_BYTES:
            raise HTTPException(413)
        return message

    return capped


def answer(status: int, error: str, message: str, hint: str = "", **fields: Any) -> JSONResponse:
    """Return the response to an error, as JSON with `error`, `message`, `hint` and `fields`."""
    return JSONResponse({"error": error, "message": message, "hint": hint, **fields}, status)


def answer_errors(app: FastAPI) -> None:
    """Make an app answer all errors in the form of `answer`, those of the framework too."""

    @app.exception_handler(LakebackupError)
    def expected(_request: Request, error: LakebackupError) -> Response:
        code = next((code for kind, code in _STATUS.items() if isinstance(error, kind)), 500)
        extra = {"task": dict(error.status)} if isinstance(error, Failed) else {}
        return answer(code, type(error).__name__, error.message, error.hint, **extra)

    @app.exception_handler(RequestValidationError)
    def not_understood(_request: Request, error: RequestValidationError) -> Response:
        problems = [
            f"{'.'.join(map(str, detail['loc'][1:])) or 'body'}: {detail['msg']}" for detail in error.errors()
        ]
        hint = "GET /openapi.json describes what a request may hold."
        return answer(422, UsageProblem.__name__, "; ".join(problems), hint)

    @app.exception_handler(HTTPException)
    def of_http(_request: Request, error: HTTPException) -> Response:
        if error.status_code == 413:
            text = f"A request may have {MOST_BYTES:,} bytes."
            return answer(413, "TooLarge", text, "Send the settings of one task.")
        kind = error.detail.title().replace(" ", "")  # NotFound, MethodNotAllowed
        response = answer(error.status_code, kind, f"{error.detail}.", "GET /openapi.json lists the paths.")
        response.headers.update(error.headers or {})
        return response

    @app.exception_handler(Exception)
    def defect(_request: Request, error: Exception) -> Response:
        text = f"Unexpected failure: {type(error).__name__}."
        return answer(500, "Unexpected", text, "The server's log has the traceback.")
