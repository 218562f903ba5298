"""The one place that builds the SparkSession, and a Spark Connect server with the same settings."""

from __future__ import annotations

import logging
import os
import shlex
import signal
import subprocess
import sys
import threading
import time
from contextlib import contextmanager, suppress
from importlib.resources import as_file, files
from pathlib import Path
from typing import TYPE_CHECKING

import pyspark
from py4j.protocol import Py4JError
from pyspark.conf import SparkConf
from pyspark.core.context import SparkContext
from pyspark.errors import PySparkException
from pyspark.java_gateway import launch_gateway
from pyspark.sql import SparkSession

from lakebackup.errors import EnvironmentProblem, UsageProblem
from lakebackup.storage.options import MODE, S3Options
from lakebackup_jobs.runtime.child import Child, free_port, tail
from lakebackup_jobs.runtime.jars import cache_folder, class_path
from lakebackup_jobs.runtime.java import java_home

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

# Also set on a session of a Spark Connect server, which was started with settings of its own.
RUNTIME = {
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.ansi.enabled": "true",
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    "spark.sql.execution.arrow.maxRecordsPerBatch": "10000",
    "spark.sql.execution.pyspark.udf.faulthandler.enabled": "true",
}

SPARK_HOME = Path(pyspark.__file__).parent
_CONNECT_SERVER = "org.apache.spark.sql.connect.service.SparkConnectServer"
#: Seconds in which a Spark Connect server must come up.
CONNECT_S = 120.0
_AWS = "software.amazon.awssdk"
# AWS's own switches for servers that know no checksums; no secrets.
_CHECKSUMS = ("AWS_REQUEST_CHECKSUM_CALCULATION", "AWS_RESPONSE_CHECKSUM_VALIDATION")


def spark_settings(master: str = "local[*]") -> dict[str, str]:
    """Every setting of a session on `master`; fetches the connector jars when they are not cached yet."""
    here = master.startswith("local")
    jars = class_path("spark")
    with as_file(files(__package__) / "log4j2.properties") as log4j:
        java_options = f"-Dlog4j2.configurationFile={log4j}"
    settings = {
        "spark.master": master,
        **RUNTIME,
        "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
        "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
        "spark.sql.warehouse.dir": str(cache_folder() / "warehouse"),
        "spark.driver.extraClassPath": jars,
        "spark.executor.extraClassPath": jars,
        "spark.driver.extraJavaOptions": java_options,
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.python.worker.reuse": "true",
        "spark.executorEnv.NUMBA_CACHE_DIR": str(cache_folder() / "numba"),
        # A flipped bit in a Parquet page is otherwise not noticed.
        "spark.hadoop.parquet.page.write-checksum.enabled": "true",
        "spark.hadoop.parquet.page.verify-checksum.enabled": "true",
        # Spark 4 finds the ends of __consumer_offsets only this way.
        "spark.sql.streaming.kafka.useDeprecatedOffsetFetching": "true",
        **_object_storage(),
    }
    if here:  # the defaults (200 and 50) are for clusters and make each small Delta read slow
        settings |= {
            # The JVM only plans, records go past it: compiling for long runs costs more than it gives.
            "spark.driver.extraJavaOptions": f"{java_options} -XX:+UseSerialGC -XX:TieredStopAtLevel=1 "
            "-XX:ReservedCodeCacheSize=240m",
            # On a cluster the package comes with the tasks, too late for the daemon.
            "spark.python.daemon.module": "lakebackup_jobs.runtime.worker_daemon",
            "spark.driver.bindAddress": "127.0.0.1",
            "spark.driver.host": "127.0.0.1",
            "spark.sql.shuffle.partitions": "2",
            "spark.databricks.delta.snapshotPartitions": "2",
        }
    return settings


def _object_storage() -> dict[str, str]:
    """S3 by the settings that `lakebackup.storage` has: for Hadoop's S3A, and for the workers' Python.

    No secrets: the JVM finds those by the same variables, files and roles as AWS's SDK for Python does.
    """
    settings = {
        "fs.s3.impl": "org.apache.hadoop.fs.s3a.S3AFileSystem",
        "fs.AbstractFileSystem.s3.impl": "org.apache.hadoop.fs.s3a.S3A",
        "fs.s3a.aws.credentials.provider": f"{_AWS}.auth.credentials.DefaultCredentialsProvider",
    }
    workers = {MODE: os.environ[MODE]} if MODE in os.environ else {}
    # Wrong settings of AWS are reported when S3 is used, and do not matter before.
    with suppress(UsageProblem):
        options = S3Options.from_environment()
        workers |= {name: os.environ[name] for name in _CHECKSUMS if name in os.environ}
        workers |= options.variables()
        settings |= {
            "fs.s3a.endpoint.region": options.region or "",
            "fs.s3a.path.style.access": str(bool(options.path_style)).lower(),
            "fs.s3a.connection.establish.timeout": f"{options.connect_timeout * 1000:.0f}ms",
            **_tries(options),
        }
        if options.endpoint:
            settings["fs.s3a.endpoint"] = options.endpoint
        if options.sse:
            settings["fs.s3a.encryption.algorithm"] = {"AES256": "SSE-S3", "aws:kms": "SSE-KMS"}[options.sse]
        if options.kms_key_id:
            settings["fs.s3a.encryption.key"] = options.kms_key_id
    return {f"spark.hadoop.{name}": value for name, value in settings.items()} | {
        f"spark.executorEnv.{name}": value for name, value in workers.items()
    }


def _tries(options: S3Options) -> dict[str, str]:
    """How long S3A retries a request.

    A commit of Spark's that is refused again and again must end before its lease does, since S3A puts it
    without a condition: the waits below sum up to 24 s at most. By itself S3A tries twenty times what the SDK
    below it tried already.
    """
    again = str(min(options.max_attempts, 6) - 1)
    return {
        "fs.s3a.attempts.maximum": "0",  # retries of the SDK
        "fs.s3a.retry.limit": again,
        "fs.s3a.retry.interval": "100ms",
        "fs.s3a.retry.throttle.limit": again,
        "fs.s3a.retry.throttle.interval": "250ms",  # twice that, and doubled each time, give or take a half
        "fs.s3a.connection.timeout": f"{min(options.read_timeout, 15) * 1000:.0f}ms",  # 15 s are the least
    }


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
    if SparkSession.getActiveSession() is None and SparkContext._active_spark_context is None:  # noqa: SLF001
        _start_context(app, extra)
    return _with_settings(SparkSession.builder.getOrCreate(), extra)


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
    _environment(extra.get("spark.master", ""))
    if "PYSPARK_GATEWAY_PORT" in os.environ:  # started by spark-submit: its JVM runs already
        SparkContext._ensure_initialized()  # noqa: SLF001
        conf = SparkConf()
        for key, value in spark_settings(conf.get("spark.master", "local[*]") or "local[*]").items():
            conf.setIfMissing(key, value)
        conf.setAppName(conf.get("spark.app.name", app) or app).setAll(list(extra.items()))
        with _interrupt_later():
            SparkContext(conf=conf)
        return
    settings = spark_settings(extra.get("spark.master", "local[*]")) | dict(extra)
    conf = SparkConf(loadDefaults=False).setAppName(app).setAll(list(settings.items()))
    log = _log_file()
    # Spark and its JVM write start-up warnings that no one can act on; a person's terminal stays clean.
    with log.open("ab") as output:
        try:
            with _interrupt_later():
                gateway = launch_gateway(conf=conf, popen_kwargs={"stderr": output})  # type: ignore[no-untyped-call]
                SparkContext(conf=conf, gateway=gateway)
        except Exception as cause:
            raise EnvironmentProblem(
                f"Spark did not start: {str(cause).splitlines()[0]}. End of {log}:\n{tail(log)}",
                hint="`make setup` checks Java and the jars.",
            ) from cause


@contextmanager
def _interrupt_later() -> Iterator[None]:
    """A Ctrl-C while Spark starts is handled once it has started: before, its JVM could not be ended.

    A second one ends the process at once. Spark's own handler is not kept: it asks the JVM to cancel all jobs
    over the connection that waits for an answer, which breaks it (Py4JError).
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    asked = False

    def later(*_: object) -> None:
        nonlocal asked
        asked = True
        signal.signal(signal.SIGINT, signal.SIG_DFL)

    before = signal.signal(signal.SIGINT, later)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
        if asked:
            signal.raise_signal(signal.SIGINT)


def cancel_jobs(seconds: float = 3) -> None:
    """Cancel all Spark jobs from a signal handler, while the main thread may wait for one of them.

    The main thread's connection to the JVM is closed, since the next answer on it would be that of the call
    that was interrupted; the next call makes another.
    """
    context = SparkContext._active_spark_context  # noqa: SLF001
    if context is None or context._gateway is None:  # noqa: SLF001
        return
    thread = threading.Thread(target=_cancel, args=(context,), name="cancel", daemon=True)
    thread.start()
    thread.join(seconds)
    waiting = context._gateway._gateway_client.get_thread_connection()  # noqa: SLF001
    if waiting is not None:
        waiting.close(reset=True)


def _cancel(context: SparkContext) -> None:
    with suppress(Py4JError):  # the JVM may be gone
        context.cancelAllJobs()


def end_jvm(seconds: float = 10) -> None:
    """End the JVM that this process started and wait for its end; it takes the Python workers with it.

    After that the process can use Spark no more. Nothing happens without such a JVM.
    """
    context = SparkContext._active_spark_context  # noqa: SLF001
    jvm = getattr(context and context._gateway, "proc", None)  # noqa: SLF001
    if jvm is None:
        return
    logging.getLogger("py4j").setLevel(logging.CRITICAL)  # it would report each closed connection
    jvm.stdin.close()  # it ends with the pipe
    try:
        jvm.wait(seconds)
    except subprocess.TimeoutExpired:
        jvm.kill()
        jvm.wait()


def _environment(master: str) -> None:
    """What the JVM and the Python workers inherit."""
    os.environ["JAVA_HOME"] = str(java_home())
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    os.environ.setdefault("NUMBA_CACHE_DIR", str(cache_folder() / "numba"))
    if not master or master.startswith("local"):  # workers with another Python would miss our packages
        os.environ["PYSPARK_PYTHON"] = sys.executable
    else:
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)


def _log_file() -> Path:
    log = cache_folder() / "logs" / "spark.log"
    log.parent.mkdir(parents=True, exist_ok=True)
    if log.exists() and log.stat().st_size > 10 << 20:
        log.replace(log.with_suffix(".log.old"))
    return log


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
    log = _log_file().with_name(f"connect-{port}.log")
    log.unlink(missing_ok=True)
    _environment("")
    settings = spark_settings() | {
        "spark.connect.grpc.binding.address": host,
        "spark.connect.grpc.binding.port": str(port),
        **(extra or {}),
    }
    child = Child(
        submit(settings, "--class", _CONNECT_SERVER, "spark-internal"),
        log,
        env={**os.environ, "SPARK_HOME": str(SPARK_HOME)},
    )
    try:
        _wait_for_port(f"{host}:{port}", child, log)
        yield f"sc://{host}:{port}"
    finally:
        child.stop()


def submit(settings: Mapping[str, str], *arguments: str) -> list[str]:
    """The command that starts a server of Spark's with these settings."""
    options = (word for key, value in settings.items() for word in ("--conf", f"{key}={value}"))
    return [str(SPARK_HOME / "bin" / "spark-submit"), *options, *arguments]


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
    _environment("")
    print(" ".join(f"--conf {shlex.quote(f'{key}={value}')}" for key, value in spark_settings().items()))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
