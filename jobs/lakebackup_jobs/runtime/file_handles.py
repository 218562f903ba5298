"""Recognizes errors caused by the limit of open files, which libraries and the JVM report in various ways."""

from __future__ import annotations

import errno
import os
import resource
from collections.abc import Iterator

from lakebackup.errors import EnvironmentProblem

_ENOUGH = 4096


def too_many_files(error: BaseException | str) -> EnvironmentProblem | None:
    """Return the error to report if the limit of open files caused `error`, an error or a text; else None."""
    texts = [error] if isinstance(error, str) else [str(cause) for cause in _causes(error)]
    # Errors of C, Rust and Java match too, since they contain the operating system's text.
    if not any(os.strerror(errno.EMFILE) in text for text in texts):
        return None
    limit, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    note = "" if hard == resource.RLIM_INFINITY or hard >= _ENOUGH else f" The hard limit is {hard:,}."
    return EnvironmentProblem(
        f"Too many open files: this process and each that it starts may open {limit:,}.{note}",
        hint=f"Raise the limit (`ulimit -n {_ENOUGH}` in the shell, LimitNOFILE= in a systemd unit), and run "
        "the same command again.",
    )


def _causes(error: BaseException) -> Iterator[BaseException]:
    """Yield an error and its causes."""
    visited_ids: set[int] = set()
    cause: BaseException | None = error
    while cause is not None and id(cause) not in visited_ids:
        visited_ids.add(id(cause))
        yield cause
        cause = cause.__cause__ or cause.__context__
