"""The servers that all processes of a test run share: one Spark JVM, one broker, one S3 server.

A separate process hosts them. It starts each when a test first needs it, and ends them with the run, even if
the run dies. This module imports little, because every test process imports it.
"""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections import defaultdict
from contextlib import suppress
from multiprocessing.managers import BaseManager
from pathlib import Path
from typing import TYPE_CHECKING, Any
from unittest import mock

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import SparkSession

FOLDER, S3_PORT = "LAKEBACKUP_TESTS_FOLDER", "LAKEBACKUP_TESTS_S3_PORT"
ACCESS_KEY, SECRET_KEY, REGION = "lakebackup-tests", "a-secret-that-no-output-may-show", "eu-central-1"
# More simultaneous tasks than cores: some wait for a broker, and some for another task of the same test.
_CORES, _PARALLELISM = 8, 2
# Differs from Kafka's default, so that tests can tell whether the broker's value was used.
RETENTION_HOURS = 169
_KEY = b"one run of the tests"  # only this user can enter the socket's folder


def s3_environment(endpoint: str) -> dict[str, str]:
    """The variables by which any S3 client finds the server, and none of this machine's own account."""
    return {
        "AWS_ENDPOINT_URL_S3": endpoint,
        "AWS_REGION": REGION,
        "AWS_ACCESS_KEY_ID": ACCESS_KEY,
        "AWS_SECRET_ACCESS_KEY": SECRET_KEY,
        "AWS_CONFIG_FILE": "/dev/null",
        "AWS_SHARED_CREDENTIALS_FILE": "/dev/null",
        "AWS_EC2_METADATA_DISABLED": "true",
    }


# Below the ports that the system assigns; processes that start together use different ranges.
_FIRST_PORT = 20_000 + os.getpid() * 50 % 10_000
_PORTS = iter(range(_FIRST_PORT, _FIRST_PORT + 1000))


def reserved_port() -> int:
    """A free port that other programs do not get by chance, even if the server starts much later."""
    for port in _PORTS:
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            with suppress(OSError):
                probe.bind(("127.0.0.1", port))
                return port
    raise RuntimeError("no port is free")


class Run:
    """The host process of one test run, and the variables by which the run's processes find it."""

    def __init__(self) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="lakebackup-tests-"))
        for name in [name for name in os.environ if name.startswith(("AWS_", "LAKEBACKUP_S3__"))]:
            del os.environ[name]
        port = reserved_port()
        os.environ |= s3_environment(f"http://127.0.0.1:{port}")
        os.environ |= {FOLDER: str(self.folder), S3_PORT: str(port)}
        with (self.folder / "host.log").open("wb") as log:
            self._host = subprocess.Popen(
                [sys.executable, "-m", __name__], stdin=subprocess.PIPE, stdout=log, stderr=log
            )

    def stop(self) -> None:
        """End the servers and remove their data."""
        if self._host.stdin:
            self._host.stdin.close()
        self._host.wait(60)
        shutil.rmtree(self.folder, ignore_errors=True)


class Host:
    """Starts each server once. Its methods run in threads, one for each process that calls them."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._locks: defaultdict[str, threading.Lock] = defaultdict(threading.Lock)
        self._started: dict[str, Any] = {}

    def broker(self) -> int:
        """Start Kafka if necessary; returns its port."""
        port: int = self._start_once("broker", self._broker).port
        return port

    def s3(self) -> None:
        """Start the S3 server on the run's port if necessary."""
        self._start_once("s3", self._s3)

    def spark(self) -> tuple[int, str]:
        """Start Spark if necessary; returns the port and secret of a Py4J server for the calling process.

        Callbacks, which Structured Streaming makes for each batch, thus go to the process that called.
        """
        jvm = self._start_once("spark", self._spark)._jvm
        server = jvm.org.apache.spark.api.python.Py4JServer(jvm.SparkConf())
        server.start()
        return server.getListeningPort(), server.secret()

    def stop(self) -> None:
        """Kill the servers: their data is dropped."""
        for name in ("broker", "s3"):
            if name in self._started:
                self._started[name].kill()

    def _start_once(self, name: str, start: Callable[[], Any]) -> Any:
        with self._locks[name]:
            if name not in self._started:
                self._started[name] = start()
            return self._started[name]

    def _broker(self) -> Any:
        from lakebackup_jobs.demo.broker import Broker

        properties = {"log.retention.hours": str(RETENTION_HOURS)}
        return Broker(self._folder / "broker", properties=properties).start()

    def _s3(self) -> Any:
        from tests.support.s3 import S3Proxy

        return S3Proxy(self._folder / "s3", port=s3_port()).start()

    def _spark(self) -> SparkSession:
        from lakebackup_jobs.runtime.session import spark_session

        # No test reads the records of finished queries, of which there are thousands.
        retention_settings = ("sql.ui.retainedExecutions", "ui.retainedJobs", "ui.retainedStages")
        extra = {f"spark.{name}": "20" for name in retention_settings} | {
            "spark.master": f"local[{_CORES}]",
            "spark.default.parallelism": str(_PARALLELISM),
            "spark.driver.memory": "3g",
        }
        return spark_session(app="lakebackup-tests", extra=extra)


class _Manager(BaseManager):
    """Carries calls from a test process to the host."""


def host(seconds: float = 60) -> Any:
    """A proxy of the run's host, for any process of the run."""
    _Manager.register("host")
    manager = _Manager(str(_address()), _KEY)
    deadline = time.monotonic() + seconds
    while True:
        try:
            manager.connect()
        except (FileNotFoundError, ConnectionRefusedError) as error:
            if time.monotonic() > deadline:
                log = (_address().parent / "host.log").read_text("utf-8", "replace")
                raise RuntimeError(f"the host of the test servers did not start:\n{log}") from error
            time.sleep(0.05)
        else:
            return manager.host()  # type: ignore[attr-defined]


def attached_session() -> SparkSession:
    """A session for this process in the run's JVM."""
    from pyspark.conf import SparkConf
    from pyspark.core.context import SparkContext
    from pyspark.java_gateway import launch_gateway
    from pyspark.sql import SparkSession

    from lakebackup_jobs.runtime.java import jvm

    jvm.environment()
    port, secret = host().spark()
    # Only for this call: a command that a test starts has its own JVM.
    with mock.patch.dict(os.environ, PYSPARK_GATEWAY_PORT=str(port), PYSPARK_GATEWAY_SECRET=secret):
        gateway = launch_gateway()  # type: ignore[no-untyped-call]
    java = gateway.jvm
    spark_context = java.org.apache.spark.SparkContext.getOrCreate()
    context = java.org.apache.spark.api.java.JavaSparkContext(spark_context)
    spark = SparkContext(gateway=gateway, jsc=context, conf=SparkConf(_jconf=context.getConf()))
    # The JVM ends before this process; then the accumulator server would print that the connection broke.
    spark._accumulatorServer.handle_error = lambda *_: None  # type: ignore[method-assign, union-attr]
    # Workers do not import from the current folder, but need the functions of tests.
    spark.environment["PYTHONPATH"] = str(Path(__file__).parents[2])
    return SparkSession(spark, java.org.apache.spark.sql.classic.SparkSession.active().newSession())


def folder() -> Path:
    """The folder in which the run's servers store their data."""
    return Path(os.environ[FOLDER])


def s3_port() -> int:
    """The port of the run's S3 server, whether it runs or not."""
    return int(os.environ[S3_PORT])


def _address() -> Path:
    return folder() / "servers.sock"


def _serve() -> None:
    server_host = Host(folder())

    def end_with_the_run() -> None:
        sys.stdin.buffer.read()  # returns when the run closes the pipe or dies
        server_host.stop()
        os._exit(0)

    threading.Thread(target=end_with_the_run, daemon=True).start()
    _Manager.register("host", callable=lambda: server_host, exposed=("broker", "s3", "spark"))
    _Manager(str(_address()), _KEY).get_server().serve_forever()


if __name__ == "__main__":
    _serve()
