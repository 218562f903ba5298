"""Notifies commands of this machine, and a webhook, of how a job ended. None of them changes how it ends.

A webhook's body is signed with a key that both sides share, and contains the time at which it was signed.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import os
import shlex
import socket
import subprocess
import threading
import time
import uuid
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import Any, Literal
from urllib.error import HTTPError
from urllib.request import HTTPRedirectHandler, Request, build_opener

from tenacity import Retrying, retry_if_exception, stop_before_delay, wait_random_exponential

from lakebackup.config import NotifyOptions
from lakebackup.errors import Refused
from lakebackup.storage.private import require_own

#: The most seconds that a webhook may take in all: the job's command waits for it.
WEBHOOK_S = 5.0
_LAST_TRY_S = 3.0  # no attempt starts later
_ATTEMPT_S = 2.0
#: The most seconds that `send` waits for a command. The command is killed before that, after `_KILL_S`.
COMMAND_S = 30.0
_KILL_S = 28.0
#: The header of a webhook's signature: `sha256=` and the HMAC-SHA256 of the body in lower hex.
SIGNATURE = "X-Lakebackup-Signature"
VARIABLE = "LAKEBACKUP_EVENT_"
_TOO_MANY_REQUESTS = 429


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """How a job ended. `event` is success, failure or test; `outcome` is ok or the kind of error.

    `counts`: the numbers of the job's result. Times are seconds since 1970 UTC.
    """

    event: Literal["success", "failure", "test"]
    verb: str
    source: str | None
    destination: str | None
    outcome: str
    exit_code: int
    error: str | None
    started: float
    finished: float
    counts: Mapping[str, int | float] = field(default_factory=dict)
    host: str = field(default_factory=socket.gethostname)
    version: str = field(default_factory=lambda: version("lakebackup"))
    id: str = field(default_factory=lambda: uuid.uuid4().hex)

    def body(self) -> bytes:
        """Return the event as JSON to send. `sent` in it is the present time (seconds since 1970 UTC)."""
        return json.dumps({"v": 1, **asdict(self), "sent": int(time.time())}, ensure_ascii=False).encode()


def sign(key: bytes, body: bytes) -> str:
    """Return the value of the header SIGNATURE for a body."""
    return f"sha256={hmac.new(key, body, hashlib.sha256).hexdigest()}"


def send(options: NotifyOptions, event: Event) -> dict[str, str | None]:
    """Send an event to all recipients that the options name for it.

    Returns the recipients' names, each with its problem or None. A webhook takes at most WEBHOOK_S, a command
    COMMAND_S; they run concurrently. Raises nothing.
    """
    recipients = dict(_recipients(options, event))
    limits = {name: WEBHOOK_S if name == "webhook" else COMMAND_S for name in recipients}
    problems: dict[str, str | None] = {name: f"not done after {s:g} s" for name, s in limits.items()}

    def attempt(name: str, deliver: Callable[[], None]) -> None:
        try:
            deliver()
        except Exception as error:  # noqa: BLE001 - whatever it is, the job has ended
            problems[name] = str(error) or type(error).__name__
        else:
            problems[name] = None

    # The process can end before these threads do: a server may send its answer byte by byte.
    threads = [
        threading.Thread(target=attempt, args=recipient, name=recipient[0], daemon=True)
        for recipient in recipients.items()
    ]
    start_s = time.monotonic()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(max(0.0, start_s + limits[thread.name] - time.monotonic()))
    return dict(problems)


def _recipients(options: NotifyOptions, event: Event) -> Iterable[tuple[str, Callable[[], None]]]:
    """Yield the name of each recipient of an event, and the function that sends it."""
    test, failed = event.event == "test", event.event == "failure"
    if options.on_failure and (test or failed):
        yield "on_failure", lambda: _run(options.on_failure or (), event)
    if options.on_success and (test or not failed):
        yield "on_success", lambda: _run(options.on_success or (), event)
    if options.webhook and (test or failed or options.webhook_on == "always"):
        yield "webhook", lambda: _post(options, event)


def _run(command: str | tuple[str, ...], event: Event) -> None:
    """Run a command without a shell. It gets the event on its standard input and in environment variables."""
    words = shlex.split(command) if isinstance(command, str) else list(command)
    values = {name: value for name, value in asdict(event).items() if not isinstance(value, dict)}
    variables = {
        f"{VARIABLE}{name.upper()}": "" if value is None else str(value) for name, value in values.items()
    }
    try:
        process = subprocess.run(
            words,
            input=event.body(),
            env={**os.environ, **variables},
            stdout=subprocess.DEVNULL,
            timeout=_KILL_S,
            check=False,
        )
    except OSError as error:
        raise RuntimeError(f"{words[0]}: {error.strerror}") from None
    except subprocess.TimeoutExpired:
        raise RuntimeError(f"{words[0]} was ended after {_KILL_S:.0f} s") from None
    if process.returncode:
        raise RuntimeError(f"{words[0]} ended with {process.returncode}")


class _NoRedirect(HTTPRedirectHandler):
    """Follows no redirects: they would send the event, without its body, to another server."""

    def redirect_request(self, *_: Any) -> None:
        return None


def _post(options: NotifyOptions, event: Event) -> None:
    """Send the event to the webhook. Tries again after errors that may pass."""
    url, body = options.webhook or "", event.body()
    headers = {"Content-Type": "application/json", "User-Agent": f"lakebackup/{event.version}"}
    if options.key_file:
        try:
            require_own(options.key_file, "The key file", secret=True)
            key = Path(options.key_file).read_bytes().strip()
        except Refused as refusal:
            raise RuntimeError(f"not sent: {refusal.message}") from None
        except OSError as error:
            raise RuntimeError(f"not sent: key_file {options.key_file}: {error.strerror}") from None
        if not key:
            raise RuntimeError(f"not sent: key_file {options.key_file} is empty")
        headers[SIGNATURE] = sign(key, body)
    opener = build_opener(_NoRedirect)
    retrying = Retrying(
        stop=stop_before_delay(_LAST_TRY_S),
        wait=wait_random_exponential(multiplier=0.1, max=1),
        retry=retry_if_exception(_may_pass),
        reraise=True,
    )

    def attempt() -> None:
        # The URL's scheme was checked with the settings.
        request = Request(url, body, headers, method="POST")  # noqa: S310
        try:
            opener.open(request, timeout=_ATTEMPT_S).close()
        except HTTPError as error:
            error.close()
            raise

    try:
        retrying(attempt)
    except HTTPError as error:
        raise RuntimeError(f"the server answers {error.code}") from None
    except OSError as error:
        raise RuntimeError(str(getattr(error, "reason", error))) from None


def _may_pass(error: BaseException) -> bool:
    if isinstance(error, HTTPError):
        return error.code >= 500 or error.code == _TOO_MANY_REQUESTS
    return isinstance(error, OSError)
