"""Spark's daemon of Python workers, with what our tasks import in memory before it forks them.

A worker that imports by itself costs half a second of a core and 100 MB, each of them. A command starts the
daemon beside its JVM, so that it imports meanwhile. What the JVM starts then hands its streams and its
environment over to it; it is the daemon itself where there is none, or none any more.
"""

from __future__ import annotations

import json
import os
import select
import socket
import sys
from contextlib import suppress
from pathlib import Path

from lakebackup_jobs.runtime import AHEAD


def main() -> None:
    """Be the daemon that waits for the JVM's call, or what the JVM calls."""
    if sys.argv[1].isdigit():
        _wait(socket.socket(fileno=int(sys.argv[1])))
    elif not _hand_over(os.environ.pop(AHEAD, "")):
        _preload()
        _serve()


def _wait(listener: socket.socket) -> None:
    _preload()
    ready, *_ = select.select([listener, sys.stdin], [], [])
    if listener not in ready:
        return  # the command has ended
    caller, _ = listener.accept()
    listener.close()
    path = Path(os.environ[AHEAD])
    path.unlink()
    with suppress(OSError):
        path.parent.rmdir()
    _, streams, *_ = socket.recv_fds(caller, 1, 3)
    with caller.makefile("rb") as text:
        variables = json.load(text)
    os.environ.clear()
    os.environ.update(variables)
    for number, stream in enumerate(streams):
        os.dup2(stream, number)
        os.close(stream)
    if os.fork():  # the child has none of the pages of libraries that only loading needed
        os._exit(0)
    _serve()


def _hand_over(path: str) -> bool:
    """Let the daemon that waits at `path` be the JVM's; returns when it has ended, False if there is none."""
    with socket.socket(socket.AF_UNIX) as daemon, suppress(OSError):
        daemon.connect(path)
        socket.send_fds(daemon, [b" "], [0, 1, 2])
        daemon.sendall(json.dumps(dict(os.environ)).encode())
        daemon.shutdown(socket.SHUT_WR)
        daemon.recv(1)
        return True
    return False


def _preload() -> None:
    from lakebackup.sql_engine.arrow import leave_pandas_out

    leave_pandas_out()  # before pyarrow.dataset, which would load it: no task needs it

    import numba  # noqa: F401 - imported for the workers
    import pyarrow.dataset  # noqa: F401
    import pyspark.worker  # noqa: F401

    from lakebackup_jobs.kafka.client import native
    from lakebackup_jobs.lifecycle.tasks import part  # noqa: F401

    native.preload()


def _serve() -> None:
    import gc

    from pyspark.daemon import manager

    gc.freeze()  # else the collector of each worker copies the pages that all could share
    manager()  # type: ignore[no-untyped-call]


if __name__ == "__main__":
    main()
