"""Builds the SparkSession of this process, and runs a Spark Connect server with the same settings."""

from __future__ import annotations

import atexit
import logging
import os
import re
import shlex
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any

import grpc
import numpy as np
from py4j.protocol import Py4JError
from pyspark.conf import SparkConf
from pyspark.core.context import SparkContext
from pyspark.errors import AnalysisException, PySparkException
from pyspark.java_gateway import launch_gateway
from pyspark.sql import SparkSession
from pyspark.sql.types import NumpyArrayConverter, NumpyScalarConverter

from lakebackup.errors import EnvironmentProblem
from lakebackup.sql_engine import arrow
from lakebackup_jobs.runtime.background import later
from lakebackup_jobs.runtime.child import Child, free_port, tail
from lakebackup_jobs.runtime.java import class_data, jvm
from lakebackup_jobs.runtime.settings import NAMED_PARAMETERS, RUNTIME, spark_settings

_CONNECT_SERVER = "org.apache.spark.sql.connect.service.SparkConnectServer"
#: Seconds within which a Spark Connect server must start.
CONNECT_S = 120.0
_ZONE = "spark.sql.session.timeZone"
_UTC = frozenset({"UTC", "Etc/UTC", "GMT", "Etc/GMT", "Z", "+00:00"})
# What Spark's error says when it gave up waiting for its master.
_STOPPED = "Cannot call methods on a stopped SparkContext"
_starting = threading.Lock()
_log = logging.getLogger(__name__)


def spark_session(
    *, remote: str | None = None, app: str = "lakebackup", extra: Mapping[str, str] | None = None
) -> SparkSession:
    """Return the running session, one of the Spark Connect server `remote` (sc://host:port), or a new one.

    `extra` overrides all settings. Under spark-submit, its settings override lakebackup's own.
    Raises EnvironmentProblem when Java, the jars or the server are missing.
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
    """Return a user's session if its time zone is UTC, else a new session in UTC with its other settings.

    A session that cannot run statements with named parameters gets the setting for them. Raises
    EnvironmentProblem for a session of Spark Connect whose time zone is not UTC.
    """
    zone = str(session.conf.get(_ZONE))
    if zone in _UTC:
        return _with_named_parameters(session)
    try:
        utc_session = session.newSession()
    except PySparkException:
        raise EnvironmentProblem(
            f"The time zone of the Spark session is {zone}, and backups have times in UTC.",
            hint=f"spark.conf.set({_ZONE!r}, 'UTC')",
        ) from None
    return _with_settings(utc_session, {**session.conf.getAll, _ZONE: RUNTIME[_ZONE], **NAMED_PARAMETERS})


def _with_named_parameters(session: SparkSession) -> SparkSession:
    if all(session.conf.get(name, None) == value for name, value in NAMED_PARAMETERS.items()):
        return session  # one of ours: no statement is run for it
    try:
        session.sql("SELECT :value", {"value": 1}).schema  # noqa: B018 - Spark Connect answers only then
    except AnalysisException:
        return _with_settings(session, NAMED_PARAMETERS)
    return session


def warm_context() -> SparkContext:
    """Return the Spark context without SQL, whose classes take longest to load. So tasks can start earlier.

    A new context on this machine starts its Python workers in the background.
    """
    is_new = SparkContext._active_spark_context is None  # noqa: SLF001
    context = _context("lakebackup", {})
    if is_new and (context.master or "").startswith("local"):
        count = context.defaultParallelism
        later(context.parallelize(range(count), count).count)
    return context


def _context(app: str, extra: Mapping[str, str]) -> SparkContext:
    """Return the running context, or a new one."""
    with _starting:
        if SparkSession.getActiveSession() is None and SparkContext._active_spark_context is None:  # noqa: SLF001
            # Not in the main thread, where Spark would handle Ctrl-C itself: it would ask the JVM to cancel
            # all jobs over the connection that waits for a response, and so break the connection.
            later(partial(_start_context, app, extra)).result()
    return SparkContext.getOrCreate()


def _with_settings(session: SparkSession, settings: Mapping[str, str]) -> SparkSession:
    """Apply the settings that a running session can change. The others are fixed when its JVM starts."""
    for key, value in settings.items():
        if session.conf.isModifiable(key):
            session.conf.set(key, value)
    return session


def _connected(remote: str, extra: Mapping[str, str]) -> SparkSession:
    arrow.load_pandas()
    builder = SparkSession.builder.remote(remote)
    try:
        return _with_settings(builder.getOrCreate(), RUNTIME | dict(extra))
    except PySparkException as cause:
        raise EnvironmentProblem(
            f"The Spark Connect server {remote} does not answer: {cause}",
            hint="Check the address (sc://host:port) and that the server runs Spark 4.2.",
        ) from cause


def _start_context(app: str, extra: Mapping[str, str]) -> None:
    _replace_numpy_checks()
    if jvm.SUBMITTED:
        # Connects to spark-submit's JVM. Without it, SparkConf() would lack the settings of spark-submit.
        SparkContext._ensure_initialized()  # noqa: SLF001
        conf = SparkConf()
        for key, value in spark_settings(conf.get("spark.master", "local[*]") or "local[*]").items():
            conf.setIfMissing(key, value)
        conf.setAppName(conf.get("spark.app.name", app) or app).setAll(list(extra.items()))
        SparkContext(conf=conf)
        return
    settings = spark_settings(extra.get("spark.master", "local[*]")) | dict(extra)
    process = jvm.start(settings)
    port, secret = process.address()
    try:
        # Only in this way does PySpark use a running JVM and start none, as under spark-submit.
        os.environ |= {"PYSPARK_GATEWAY_PORT": str(port), "PYSPARK_GATEWAY_SECRET": secret}
        try:
            gateway = launch_gateway()  # type: ignore[no-untyped-call]
        finally:
            del os.environ["PYSPARK_GATEWAY_PORT"], os.environ["PYSPARK_GATEWAY_SECRET"]
        conf = SparkConf(loadDefaults=False).setAppName(app).setAll(list(settings.items()))
        context = SparkContext(conf=conf, gateway=gateway)
        # If the JVM ends first, its connection breaks, and Python would print a traceback.
        server: Any = context._accumulatorServer  # noqa: SLF001
        server.handle_error = _connection_broke
    except Exception as cause:
        complaint = _sentence_of(cause) if jvm.lost() is None else jvm.complaint(process)
        raise EnvironmentProblem(f"Spark did not start: {complaint}", hint=jvm.HINT) from cause
    if settings["spark.master"].startswith("local"):
        # At the end of the process, so that making the archives does not slow the command down.
        atexit.register(class_data.make_later, jvm.class_path(settings))


def _sentence_of(cause: Exception) -> str:
    """Return the message of an error of Spark or Java, without its stack and the names of classes."""
    lines = [line.strip() for line in str(cause).splitlines() if line.strip()]
    if any(_STOPPED in line for line in lines):
        return "its master does not answer."
    # The innermost cause is what a user can correct.
    if causes := [line for line in lines if line.startswith("Caused by: ")]:
        lines = [causes[-1].replace("Caused by", "", 1)]
    # Py4J's first line names the call that failed; the next line is `: package.Class: message`.
    text = next((line[2:] for line in lines if line.startswith(": ")), lines[0] if lines else "")
    message = re.sub(r"^(?:[a-zA-Z_$][\w$]*\.)+[\w$]+(?:: |$)", "", text) or text or type(cause).__name__
    return f"{message.rstrip('.')}."


def _replace_numpy_checks() -> None:
    """Replace PySpark's checks for numpy values, which would load pandas and gRPC."""
    array: Any = NumpyArrayConverter
    array.can_convert = lambda _, value: isinstance(value, np.ndarray) and value.ndim == 1
    scalar: Any = NumpyScalarConverter
    scalar.can_convert = lambda _, value: isinstance(value, np.generic)


def _connection_broke(*_: object) -> None:
    _log.debug("A connection for accumulators broke", exc_info=True)


def cancel_jobs(seconds: float = 3) -> None:
    """Cancel all Spark jobs from a signal handler, while the main thread may wait for one of them.

    Waits at most `seconds`. Closes the main thread's connection to the JVM, since the next response on it
    would belong to the interrupted call. The next call opens a new connection.
    """
    context = SparkContext._active_spark_context  # noqa: SLF001
    if context is None or context._gateway is None or not hasattr(context, "_jsc"):  # noqa: SLF001
        return  # there is no context, or it is starting
    thread = threading.Thread(target=_cancel, args=(context,), name="cancel", daemon=True)
    thread.start()
    thread.join(seconds)
    connection = context._gateway._gateway_client.get_thread_connection()  # noqa: SLF001
    if connection is not None:
        connection.close(reset=True)


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
    """Run a Spark Connect server while the block runs; yields its address (sc://...). It needs no password.

    Raises EnvironmentProblem, with the end of the server's log, when it does not start.
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
    deadline = time.monotonic() + CONNECT_S
    with grpc.insecure_channel(address) as channel:
        connected = grpc.channel_ready_future(channel)
        while child.running and time.monotonic() < deadline:
            try:
                connected.result(timeout=0.5)
            except grpc.FutureTimeoutError:
                continue
            return
        connected.cancel()
    raise EnvironmentProblem(f"The Spark Connect server did not start. End of {log}:\n{tail(log)}")


def main() -> int:
    """Print the settings as options for spark-submit and pyspark."""
    jvm.environment()
    print(" ".join(f"--conf {shlex.quote(f'{key}={value}')}" for key, value in spark_settings().items()))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
