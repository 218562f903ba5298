"""Makes standard input, output and error safe when they are closed, full, or have lost their reader.

If a stream is closed when the program starts, the next file that is opened gets the stream's number, and
output would go into that file. So a closed stream is opened on the null device.
"""

from __future__ import annotations

import io
import os
import sys
from contextlib import suppress
from typing import TextIO, TypeVar, cast

from lakebackup.errors import OutputLost

_Stream = TypeVar("_Stream", bound=io.TextIOWrapper)


class ResultStream(io.TextIOWrapper):
    """Standard output. From its first failure on, each call raises an error.

    The error is BrokenPipeError when the reader left, and OutputLost when the stream accepts no more output.
    """

    _failure: Exception | None = None

    @property
    def reader_left(self) -> bool:
        """Whether the reader left."""
        return isinstance(self._failure, BrokenPipeError)

    def write(self, text: str) -> int:
        self._require_no_failure()
        try:
            return super().write(text)
        except OSError as error:
            raise self._record_failure(error) from error

    def flush(self) -> None:
        self._require_no_failure()
        try:
            super().flush()
        except OSError as error:
            raise self._record_failure(error) from error

    def _require_no_failure(self) -> None:
        # Typer probes streams and swallows errors, so the first error is raised again.
        if self._failure is not None:
            raise self._failure

    def _record_failure(self, error: OSError) -> Exception:
        """Drop all output from now on, and return the error that this and each later call raises."""
        _discard(self)
        if isinstance(error, BrokenPipeError):
            # It has no errno, because Typer ends the process for one with EPIPE.
            self._failure = BrokenPipeError("nobody reads standard output")
        else:
            reason = os.strerror(error.errno or 0)
            self._failure = OutputLost(
                f"Standard output takes no more: {reason}. The command did its work; its output is cut off.",
                hint="Make room where the output goes, or send it elsewhere.",
            )
        return self._failure


class MessageStream(io.TextIOWrapper):
    """Standard error. Messages that cannot be written are dropped, so no run fails because of them."""

    def write(self, text: str) -> int:
        try:
            return super().write(text)
        except OSError:
            _discard(self)
            return len(text)

    def flush(self) -> None:
        try:
            super().flush()
        except OSError:
            _discard(self)


def open_streams() -> None:
    """Open closed streams on the null device, and put this module's streams in place of the others."""
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # gets the lowest free number, which is this one
    if sys.stdin is None:
        sys.stdin = open(0, encoding="utf-8", closefd=False)  # noqa: SIM115 - stays open until the process ends
    sys.stdout = _wrapped(ResultStream, sys.stdout, 1)
    sys.stderr = _wrapped(MessageStream, sys.stderr, 2)


def _wrapped(kind: type[_Stream], stream: TextIO | None, number: int) -> _Stream:
    """The stream with a number as a `kind`, with the encoding and buffering that Python chose for it."""
    if stream is None:
        return kind(open(number, "wb", closefd=False), encoding="utf-8")
    text = cast("io.TextIOWrapper", stream)
    text.flush()
    line_buffering, write_through = text.line_buffering, text.write_through
    # The old stream stays open, because other code may have a reference to it.
    buffer = open(number, "wb", buffering=0 if write_through else -1, closefd=False)  # noqa: SIM115
    return kind(
        buffer,
        encoding=text.encoding,
        errors=text.errors,
        line_buffering=line_buffering,
        write_through=write_through,
    )


def _discard(stream: io.TextIOWrapper) -> None:
    """Send a stream's buffered and later output to the null device."""
    with suppress(OSError):
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, stream.fileno())
        os.close(null)
