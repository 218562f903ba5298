"""A proxy before an S3 server that injects faults and records the requests."""

from __future__ import annotations

import http.client
import threading
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from email.message import Message
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Literal, Self

Kind = Literal[
    "503",
    "409",
    "403",
    "lost",
    "done but 500",
    "reset",
    "cut",
    "silent",
    "flipped",
    "not implemented",
    "unconditional",
    "nothing listed",
    "slow",
    "ExpiredToken",
    "InvalidAccessKeyId",
    "InvalidToken",
    "NoSuchBucket",
    "PermanentRedirect",
    "RequestTimeTooSkewed",
    "SignatureDoesNotMatch",
]
_ERROR_CODES = {
    "403": "AccessDenied",
    "503": "SlowDown",
    "409": "ConditionalRequestConflict",
    "500": "InternalError",
    "501": "NotImplemented",
}
# The status of an answer with one of S3's other error codes, as Amazon sends it.
STATUS_OF = {
    "ExpiredToken": 400,
    "InvalidAccessKeyId": 403,
    "InvalidToken": 400,
    "NoSuchBucket": 404,
    "PermanentRedirect": 301,
    "RequestTimeTooSkewed": 403,
    "SignatureDoesNotMatch": 403,
}


@dataclass
class Fault:
    """A fault of the next `times` requests of a method whose path and query contain `part`.

    503, 409, 403: the proxy answers so without the server. lost: the server handles the request, then the
    connection is closed without an answer. done but 500: the server handles it and the answer says it failed.
    reset: the connection is closed before the server gets the request. cut: the answer ends half way. silent:
    no answer ever comes. flipped: one bit of the body is flipped, in both directions. unconditional: the
    server (one without signatures) does not get If-None-Match. not implemented: 501 to requests that have
    it. nothing listed: an empty listing, whatever exists. slow: the answer's body stops half way and the
    open. One of S3's error codes: the answer has it. `action` runs before the fault.
    """

    kind: Kind
    method: str
    part: str = ""
    times: int = 1
    action: Callable[[], object] | None = None


@dataclass
class FaultProxy:
    """A proxy before the server on `port`. As a context manager it runs inside the block."""

    port: int
    faults: list[Fault] = field(default_factory=list)
    requests: list[tuple[str, str, Message]] = field(default_factory=list)
    chance: Callable[[], Kind | None] | None = None  # the fault of a request for which none is planned
    rights: Collection[str] | None = (
        None  # the actions that the role is allowed, such as s3:GetObject; None: everything
    )

    @property
    def endpoint(self) -> str:
        """The proxy's URL."""
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    def fail(
        self,
        kind: Kind,
        method: str,
        part: str = "",
        times: int = 1,
        action: Callable[[], object] | None = None,
    ) -> None:
        """Plan a fault."""
        self.faults.append(Fault(kind, method, part, times, action))

    def methods(self, part: str = "") -> list[str]:
        """The methods of the requests so far whose path and query contain `part`."""
        return [method for method, path, _ in list(self.requests) if part in path]

    def next_fault(self, method: str, path: str) -> Fault | None:
        """The fault of a request; it counts as used once more."""
        with self._lock:
            for fault in self.faults:
                if fault.times and fault.method == method and fault.part in path:
                    fault.times -= 1
                    return fault
            if self.rights is not None and right_of(method, path) not in self.rights:
                return Fault("403", method)
            kind = self.chance() if self.chance else None
        return Fault(kind, method) if kind else None

    def __enter__(self) -> Self:
        self.over = threading.Event()
        self._lock = threading.Lock()
        self._server = _Server(("127.0.0.1", 0), _Handler)
        self._server.proxy = self
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,))
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.over.set()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False
    proxy: FaultProxy

    def handle_error(self, request: object, client_address: object) -> None:
        """Does nothing: clients that disconnect are expected here."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    timeout = 5  # closes the idle connection of a client that has finished
    server: _Server

    def log_message(self, *_: object) -> None:
        """Prints nothing."""

    def handle_one_request(self) -> None:
        """Handle a request of any method, so that no method needs a handler of its own."""
        self.raw_requestline = self.rfile.readline(65_537)
        if not self.raw_requestline or not self.parse_request():
            self.close_connection = True
            return
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        proxy = self.server.proxy
        proxy.requests.append((self.command, self.path, self.headers))
        fault = proxy.next_fault(self.command, self.path)
        if fault and fault.action:
            fault.action()
        kind = fault.kind if fault else ""
        if kind == "not implemented":
            kind = "501" if self.headers.get("If-None-Match") else ""
        if kind in ("503", "501", "409", "403"):
            self._refuse(int(kind), _ERROR_CODES[kind])
        elif kind in STATUS_OF:
            self._refuse(STATUS_OF[kind], kind)
        elif kind == "nothing listed":
            self._answer(200, b"<ListBucketResult><IsTruncated>false</IsTruncated></ListBucketResult>")
        elif kind in ("reset", "silent"):
            if kind == "silent":
                proxy.over.wait(60)
            self.close_connection = True
        else:
            self._forward(body, kind)

    def _refuse(self, status: int, code: str) -> None:
        text = f"<Error><Code>{code}</Code><Message>as the test wants it</Message></Error>".encode()
        self._answer(status, b"" if self.command == "HEAD" else text)

    def _answer(self, status: int, text: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Type", "application/xml")
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    def _forward(self, body: bytes, kind: str) -> None:
        connection = http.client.HTTPConnection("127.0.0.1", self.server.proxy.port, timeout=60)
        if kind == "flipped":
            body = _flipped(body)
        if kind == "unconditional":
            del self.headers["If-None-Match"]
        try:
            connection.request(self.command, self.path, body, dict(self.headers.items()))
            answer = connection.getresponse()
            data = answer.read()
        finally:
            connection.close()
        if kind == "done but 500":
            self._refuse(500, _ERROR_CODES["500"])
            return
        if kind == "lost":
            self.close_connection = True
            return
        self.send_response_only(answer.status, answer.reason)
        length = answer.headers.get("Content-Length") if self.command == "HEAD" else str(len(data))
        for name, value in answer.headers.items():
            if name.lower() not in ("transfer-encoding", "content-length", "connection", "keep-alive"):
                self.send_header(name, value)
        if length is not None:
            self.send_header("Content-Length", length)
        self.end_headers()
        if kind == "flipped":
            data = _flipped(data)
        if kind == "slow":
            self.wfile.write(data[: len(data) // 2])
            self.wfile.flush()
            self.server.proxy.over.wait(60)
            self.close_connection = True
            return
        if kind == "cut":
            data = data[: len(data) // 2]
            self.close_connection = True
        self.wfile.write(data)


def right_of(method: str, path: str) -> str:
    """The action that Amazon's S3 requires a role to be allowed for a request in path style."""
    bucket_and_key, _, query = path.partition("?")
    if method == "DELETE":
        return "s3:AbortMultipartUpload" if "uploadId=" in query else "s3:DeleteObject"
    if method in ("PUT", "POST"):
        return "s3:DeleteObject" if query.startswith("delete") else "s3:PutObject"
    return "s3:GetObject" if "/" in bucket_and_key.strip("/") else "s3:ListBucket"


def _flipped(data: bytes) -> bytes:
    return data and bytes((data[0] ^ 1,)) + data[1:]
