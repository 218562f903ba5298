"""The one place that builds the SparkSession, and a Spark Connect server with the same settings."""

from __future__ import annotations

import atexit
import logging
import os
import re
import shlex
import tempfile
import threading
import time
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from py4j.protocol import Py4JError
from pyspark.conf import SparkConf
from pyspark.core.context import SparkContext
from pyspark.errors import PySparkException
from pyspark.java_gateway import launch_gateway
from pyspark.sql import SparkSession
from pyspark.sql.types import NumpyArrayConverter, NumpyScalarConverter

from lakebackup.errors import EnvironmentProblem
from lakebackup_jobs.runtime.background import later
from lakebackup_jobs.runtime.child import Child, free_port, tail
from lakebackup_jobs.runtime.java import class_data, jvm
from lakebackup_jobs.runtime.settings import RUNTIME, spark_settings

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

_CONNECT_SERVER = "org.apache.spark.sql.connect.service.SparkConnectServer"
#: Seconds in which a Spark Connect server must come up.
CONNECT_S = 120.0
_ZONE = "spark.sql.session.timeZone"
_UTC = frozenset({"UTC", "Etc/UTC", "GMT", "Etc/GMT", "Z", "+00:00"})
# How Spark says that it gave up waiting for its master.
_STOPPED = "Cannot call methods on a stopped SparkContext"
_starting = threading.Lock()
_log = logging.getLogger(__name__)


def spark_session(
    *, remote: str | None = None, app: str = "lakebackup", extra: Mapping[str, str] | None = None
) -> SparkSession:
    """The session: the living one, that of the Spark Connect server `remote` (sc://host:port), or a new one.

    `extra` overrides all settings. Under spark-submit its own settings count; ours fill gaps.
    Raises EnvironmentProblem when Java, the jars or the server are not there.
    """
    extra = dict(extra or {})
    if remote:
        return _connected(remote, extra)
    _context(app, extra)
    try:
        return in_utc(_with_settings(SparkSession.builder.getOrCreate(), extra))
    except (Py4JError, PySparkException) as cause:
        raise EnvironmentProblem(f"Spark did not start: {_sentence_of(cause)}", hint=jvm.HINT) from cause


def in_utc(session: SparkSession) -> SparkSession:
    """A person's session; where its times are not UTC, one beside it with its other settings.

    Raises EnvironmentProblem for such a session of Spark Connect.
    """
    zone = str(session.conf.get(_ZONE))
    if zone in _UTC:
        return session
    try:
        own = session.newSession()
    except PySparkException:
        raise EnvironmentProblem(
            f"The time zone of the Spark session is {zone}, and backups have times in UTC.",
            hint=f"spark.conf.set({_ZONE!r}, 'UTC')",
        ) from None
    return _with_settings(own, {**session.conf.getAll, _ZONE: RUNTIME[_ZONE]})


def warm_context() -> SparkContext:
    """Spark without SQL, whose classes take longer to load than all else; what tasks need is there first.

    A new one on this machine begins to start its Python workers.
    """
    first = SparkContext._active_spark_context is None  # noqa: SLF001
    context = _context("lakebackup", {})
    if first and (context.master or "").startswith("local"):
        count = context.defaultParallelism
        later(context.parallelize(range(count), count).count)
    return context


def _context(app: str, extra: Mapping[str, str]) -> SparkContext:
    """The living context, or a new one."""
    with _starting:
        if SparkSession.getActiveSession() is None and SparkContext._active_spark_context is None:  # noqa: SLF001
            # Not in the main thread, where Spark would handle Ctrl-C itself: it asks the JVM to cancel all
            # jobs over the connection that waits for an answer, which breaks it.
            later(partial(_start_context, app, extra)).result()
    return SparkContext.getOrCreate()


def _with_settings(session: SparkSession, settings: Mapping[str, str]) -> SparkSession:
    """Apply the settings that can change in a living session; the rest are fixed when its JVM starts."""
    for key, value in settings.items():
        if session.conf.isModifiable(key):
            session.conf.set(key, value)
    return session


def _connected(remote: str, extra: Mapping[str, str]) -> SparkSession:
    builder = SparkSession.builder.remote(remote)
    try:
        return _with_settings(builder.getOrCreate(), RUNTIME | dict(extra))
    except PySparkException as cause:
        raise EnvironmentProblem(
            f"The Spark Connect server {remote} does not answer: {cause}",
            hint="Check the address (sc://host:port) and that the server runs Spark 4.0.",
        ) from cause


def _start_context(app: str, extra: Mapping[str, str]) -> None:
    _know_numpy()
    if jvm.SUBMITTED:
        SparkContext._ensure_initialized()  # noqa: SLF001
        conf = SparkConf()
        for key, value in spark_settings(conf.get("spark.master", "local[*]") or "local[*]").items():
            conf.setIfMissing(key, value)
        conf.setAppName(conf.get("spark.app.name", app) or app).setAll(list(extra.items()))
        SparkContext(conf=conf)
        return
    settings = spark_settings(extra.get("spark.master", "local[*]")) | dict(extra)
    started = jvm.start(settings)
    port, secret = started.address()
    try:
        # As under spark-submit, where PySpark finds a JVM that runs; no other way leads past its own.
        os.environ |= {"PYSPARK_GATEWAY_PORT": str(port), "PYSPARK_GATEWAY_SECRET": secret}
        try:
            gateway = launch_gateway()  # type: ignore[no-untyped-call]
        finally:
            del os.environ["PYSPARK_GATEWAY_PORT"], os.environ["PYSPARK_GATEWAY_SECRET"]
        conf = SparkConf(loadDefaults=False).setAppName(app).setAll(list(settings.items()))
        context = SparkContext(conf=conf, gateway=gateway)
        # Its connection breaks when the JVM ends first; Python would print a traceback.
        server: Any = context._accumulatorServer  # noqa: SLF001
        server.handle_error = _connection_broke
    except Exception as cause:
        complaint = _sentence_of(cause) if jvm.lost() is None else jvm.complaint(started)
        raise EnvironmentProblem(f"Spark did not start: {complaint}", hint=jvm.HINT) from cause
    if settings["spark.master"].startswith("local"):
        # At the end, so that it does not run beside the command.
        atexit.register(class_data.make_later, jvm.class_path(settings))


def _sentence_of(cause: Exception) -> str:
    """What an error of Spark or Java says, without its stack and the names of classes."""
    lines = [line.strip() for line in str(cause).splitlines() if line.strip()]
    if any(_STOPPED in line for line in lines):
        return "its master does not answer."
    # The first cause is what a person can change.
    if causes := [line for line in lines if line.startswith("Caused by: ")]:
        lines = [causes[-1].replace("Caused by", "", 1)]
    # Py4J begins with the call that failed; the line behind it has `: package.Class: message`.
    told = next((line[2:] for line in lines if line.startswith(": ")), lines[0] if lines else "")
    message = re.sub(r"^(?:[a-zA-Z_$][\w$]*\.)+[\w$]+(?:: |$)", "", told) or told or type(cause).__name__
    return f"{message.rstrip('.')}."


def _know_numpy() -> None:
    """Keep PySpark from loading pandas and gRPC, with its own tests, to learn whether there is numpy."""
    array: Any = NumpyArrayConverter
    array.can_convert = lambda _, value: isinstance(value, np.ndarray) and value.ndim == 1
    scalar: Any = NumpyScalarConverter
    scalar.can_convert = lambda _, value: isinstance(value, np.generic)


def _connection_broke(*_: object) -> None:
    _log.debug("A connection for accumulators broke", exc_info=True)


def cancel_jobs(seconds: float = 3) -> None:
    """Cancel all Spark jobs from a signal handler, while the main thread may wait for one of them.

    The main thread's connection to the JVM is closed, since the next answer on it would be that of the call
    that was interrupted; the next call makes another.
    """
    context = SparkContext._active_spark_context  # noqa: SLF001
    if context is None or context._gateway is None or not hasattr(context, "_jsc"):  # noqa: SLF001
        return  # it is not there, or starts
    thread = threading.Thread(target=_cancel, args=(context,), name="cancel", daemon=True)
    thread.start()
    thread.join(seconds)
    waiting = context._gateway._gateway_client.get_thread_connection()  # noqa: SLF001
    if waiting is not None:
        waiting.close(reset=True)


def _cancel(context: SparkContext) -> None:
    with suppress(Py4JError):  # the JVM may be gone
        context.cancelAllJobs()


@contextmanager
def connect_server(
    *,
    host: str = "127.0.0.1",
    port: int | None = None,
    extra: Mapping[str, str] | None = None,
) -> Iterator[str]:
    """A Spark Connect server while the block runs; yields its address (sc://...). It asks for no password.

    Raises EnvironmentProblem with the end of its log when it does not come up.
    """
    port = port or free_port()
    log = jvm.log_folder() / f"connect-{port}.log"
    log.unlink(missing_ok=True)
    settings = spark_settings() | {
        "spark.connect.grpc.binding.address": host,
        "spark.connect.grpc.binding.port": str(port),
        **(extra or {}),
    }
    with tempfile.TemporaryDirectory(prefix="lakebackup-connect-") as folder:
        command = jvm.command(settings, "--class", _CONNECT_SERVER, "spark-internal", folder=Path(folder))
        child = Child(command, log, env=jvm.environment())
        try:
            _wait_for_port(f"{host}:{port}", child, log)
            yield f"sc://{host}:{port}"
        finally:
            child.stop()


def _wait_for_port(address: str, child: Child, log: Path) -> None:
    import grpc

    deadline = time.monotonic() + CONNECT_S
    with grpc.insecure_channel(address) as channel:
        ready = grpc.channel_ready_future(channel)
        while child.running and time.monotonic() < deadline:
            try:
                ready.result(timeout=0.5)
            except grpc.FutureTimeoutError:
                continue
            return
        ready.cancel()
    raise EnvironmentProblem(f"The Spark Connect server did not start. End of {log}:\n{tail(log)}")


def main() -> int:
    """Prints the settings as options for spark-submit and pyspark."""
    jvm.environment()
    print(" ".join(f"--conf {shlex.quote(f'{key}={value}')}" for key, value in spark_settings().items()))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
