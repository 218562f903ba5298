"""The limit of open files, which libraries and the JVM report each in words of their own."""

from __future__ import annotations

import errno
import os
import resource
from typing import TYPE_CHECKING

from lakebackup.errors import EnvironmentProblem

if TYPE_CHECKING:
    from collections.abc import Iterator

_ENOUGH = 4096


def too_many_files(error: BaseException | str) -> EnvironmentProblem | None:
    """The error to report where the limit of open files is behind an error, or a text; None: it is not."""
    texts = [error] if isinstance(error, str) else [str(cause) for cause in _causes(error)]
    # Also what C, Rust and Java say: their texts are the operating system's.
    if not any(os.strerror(errno.EMFILE) in text for text in texts):
        return None
    limit, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    more = "" if most == resource.RLIM_INFINITY or most >= _ENOUGH else f" The hard limit is {most:,}."
    return EnvironmentProblem(
        f"Too many open files: this process and each that it starts may open {limit:,}.{more}",
        hint=f"Raise the limit (`ulimit -n {_ENOUGH}` in the shell, LimitNOFILE= in a systemd unit), and run "
        "the same command again.",
    )


def _causes(error: BaseException) -> Iterator[BaseException]:
    """An error and those it came from."""
    seen: set[int] = set()
    cause: BaseException | None = error
    while cause is not None and id(cause) not in seen:
        seen.add(id(cause))
        yield cause
        cause = cause.__cause__ or cause.__context__
