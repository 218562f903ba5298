"""Standard input, output and error where they are closed, full, or have lost their reader.

Files that a program opens get the numbers of closed streams. What it prints would then end in these files.
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
    """Standard output. From its first failure on, each call raises: BrokenPipeError where nobody reads it any
    more, OutputLost where it takes no more."""

    _failure: Exception | None = None

    @property
    def reader_left(self) -> bool:
        """Whether nobody reads it any more."""
        return isinstance(self._failure, BrokenPipeError)

    def write(self, text: str) -> int:
        self._require_no_failure()
        try:
            return super().write(text)
        except OSError as error:
            raise self._failed(error) from error

    def flush(self) -> None:
        self._require_no_failure()
        try:
            super().flush()
        except OSError as error:
            raise self._failed(error) from error

    def _require_no_failure(self) -> None:
        # Typer tries out streams, and takes any error for an answer.
        if self._failure is not None:
            raise self._failure

    def _failed(self, error: OSError) -> Exception:
        _discard(self)
        if isinstance(error, BrokenPipeError):
            # Without a number, for which Typer would end the process.
            self._failure = BrokenPipeError("nobody reads standard output")
        else:
            why = os.strerror(error.errno or 0)
            self._failure = OutputLost(
                f"Standard output takes no more: {why}. The command did its work; its output is cut off.",
                hint="Make room where the output goes, or send it elsewhere.",
            )
        return self._failure


class MessageStream(io.TextIOWrapper):
    """Standard error. Messages that it does not take are lost: no run fails because nobody can read them."""

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
    """Open closed streams on the null device; make standard output and error streams of this module."""
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # gets the lowest number that is free
    if sys.stdin is None:
        sys.stdin = open(0, encoding="utf-8", closefd=False)  # noqa: SIM115 - open as long as the process
    sys.stdout = _wrapped(ResultStream, sys.stdout, 1)
    sys.stderr = _wrapped(MessageStream, sys.stderr, 2)


def _wrapped(kind: type[_Stream], stream: TextIO | None, number: int) -> _Stream:
    """The stream of a number as a `kind`, with the encoding and buffering that Python gave it."""
    if stream is None:
        return kind(open(number, "wb", closefd=False), encoding="utf-8")
    text = cast("io.TextIOWrapper", stream)
    text.flush()
    lines, through = text.line_buffering, text.write_through
    # The one before stays whole: others may have a reference to it.
    data = open(number, "wb", buffering=0 if through else -1, closefd=False)  # noqa: SIM115
    return kind(data, encoding=text.encoding, errors=text.errors, line_buffering=lines, write_through=through)


def _discard(stream: io.TextIOWrapper) -> None:
    """Send what a stream still holds, and what comes, to the null device."""
    with suppress(OSError):
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, stream.fileno())
        os.close(null)
