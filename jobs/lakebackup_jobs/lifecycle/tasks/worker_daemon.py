"""Spark's daemon of Python workers. It imports what our tasks need before it forks the workers.

Imports by each worker would cost half a second of a core and 100 MB every time. A command starts the daemon
beside its JVM, so that it imports while the JVM starts. The process that the JVM then starts as its daemon
hands its streams and environment over to the waiting one. If none waits, it becomes the daemon itself.

The module runs as `__main__`, where imports are not lazy: those that take time are inside functions.
"""

from __future__ import annotations

import json
import os
import select
import socket
import sys
from contextlib import suppress
from importlib import import_module
from pathlib import Path

from lakebackup_jobs.runtime import AHEAD

# What every task of a backup uses. Imports run when a name is first used, so each module is named here.
_FOR_WORKERS = (
    "numba",
    "pyarrow.dataset",
    "pyspark.worker",
    "lakebackup.rows.tables",
    "lakebackup.rules.layout",
    "lakebackup.sql_engine.delta.table",
    "lakebackup.storage.local",
    "lakebackup.storage.options",
    "lakebackup.storage.working",
    "lakebackup.store.delta_append",
    "lakebackup.store.manifest",
    "lakebackup_jobs.lifecycle.tasks.errors",
    "lakebackup_jobs.lifecycle.tasks.part",
    "lakebackup_jobs.lifecycle.tasks.progress",
)


def main() -> None:
    """Run as the daemon that waits for the JVM (the argument is a socket's number), or as the process that
    the JVM starts."""
    if sys.argv[1].isdigit():
        _wait(socket.socket(fileno=int(sys.argv[1])))
    elif not _hand_over(os.environ.pop(AHEAD, "")):
        _preload()
        _serve()


def _wait(listener: socket.socket) -> None:
    _preload()
    readable, *_ = select.select([listener, sys.stdin], [], [])
    if listener not in readable:
        return  # the command has ended
    connection, _ = listener.accept()
    listener.close()
    path = Path(os.environ[AHEAD])
    path.unlink()
    with suppress(OSError):
        path.parent.rmdir()
    _, streams, *_ = socket.recv_fds(connection, 1, 3)
    with connection.makefile("rb") as text:
        variables = json.load(text)
    os.environ.clear()
    os.environ.update(variables)
    for number, stream in enumerate(streams):
        os.dup2(stream, number)
        os.close(stream)
    if os.fork():  # the child does not have the pages that only the loading of libraries needed
        os._exit(0)
    _serve()


def _hand_over(path: str) -> bool:
    """Make the daemon that waits at `path` the JVM's daemon, and wait until it ends. Returns False if none
    waits."""
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
    for module in _FOR_WORKERS:
        import_module(module)

    from lakebackup_jobs.kafka.client import native

    native.preload()


def _serve() -> None:
    import gc

    from pyspark.daemon import manager

    gc.freeze()  # otherwise the garbage collector of each worker would copy the pages that all share
    manager()


if __name__ == "__main__":
    main()
