"""A Spark Thrift server (JDBC) over the catalog's views, under an account that can only read.

A client can run any SQL that Spark knows, since no parser checks it. Only the rights of the account limit
what a client can do, so these rights are tried out first. The server gets only allowed environment
variables, and its home and working folder is a scratch folder that is deleted when it ends.
"""

from __future__ import annotations

import math
import os
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from itertools import count, pairwise
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
from py4j.java_gateway import GatewayParameters, JavaGateway
from py4j.protocol import Py4JError

from lakebackup.errors import EnvironmentProblem, LakebackupError, Refused
from lakebackup.sql_engine import MATERIALIZED_VIEWS, RAW, shown_views, steps_for
from lakebackup.sql_engine.delta.table import newest_version
from lakebackup.sql_engine.duck import DuckEngine
from lakebackup.sql_engine.spark import as_spark_reads
from lakebackup_jobs.runtime.child import tail
from lakebackup_jobs.runtime.java import jvm
from lakebackup_jobs.runtime.java.home import java_home
from lakebackup_jobs.runtime.java.jars import work_folder
from lakebackup_jobs.runtime.run_as import PATH, Account, require_reader
from lakebackup_jobs.runtime.settings import spark_settings
from lakebackup_sql import load

# Seconds in which the server must start.
_START_S = 300
# Seconds between two checks of the catalog, and after which views that depend on the time are computed again.
_CHECK_S, _STALE_S = 2, 60
# The longest that a statement may read files which newer ones have replaced since it was planned.
_STATEMENT_S = 1800
_PASSED_ON = ("LANG", "LC_ALL", "TZ")


@contextmanager
def thrift_server(
    catalog_uri: str,
    destinations: Sequence[str],
    account: Account,
    *,
    host: str,
    port: int,
    memory: str | None,
    warn: Callable[[str], None],
) -> Iterator[Callable[[], bool]]:
    """Run the server while the block runs. All URIs must be folders on this machine.

    The server is ready for clients when the block starts. The block gets a function to call each second: it
    brings the shared views up to date and returns whether the server still runs.

    `memory`: the server's heap, as Spark writes sizes. `warn` is called with the reason when a view stays
    as it was.

    Raises Refused (not folders; the account can write to one of them), EnvironmentProblem (the account
    cannot read them, the port is in use, the server does not start).
    """
    for uri in (catalog_uri, *destinations):
        if not uri.startswith("file://"):  # the account's rights there cannot be tried out
            raise Refused(
                f"{uri} is no folder of this machine: what the account may change there cannot be tried out.",
                hint="Use `lakebackup serve connect` or `lakebackup sql`; or copy the catalog into a folder.",
            )
    catalog, *roots = (Path(uri.removeprefix("file://")) for uri in (catalog_uri, *destinations))
    require_reader(account, catalog, roots)
    _require_free(host, port)
    scratch = Path(tempfile.mkdtemp(prefix="lakebackup-thrift-"))
    log = work_folder() / "logs" / f"thrift-{port}.log"
    log.parent.mkdir(parents=True, exist_ok=True)
    log.unlink(missing_ok=True)
    try:
        command = jvm.command(_settings(scratch, host, port, memory), "pyspark-shell", folder=scratch)
        if account.switch:
            _change_owner(scratch, account)
        with log.open("ab") as output:
            process = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,  # the server ends when this closes, also if this process is killed
                stdout=output,
                stderr=output,
                cwd=scratch,
                env=_environment(scratch, host, port),
                start_new_session=True,
                **account.switch,
            )
        try:
            with _gateway(process, scratch, log) as java:
                views = _open_views(java, catalog_uri, scratch / "views", account)

                def runs() -> bool:
                    try:
                        views.refresh()
                    except (LakebackupError, Py4JError) as error:
                        warn(f"the views of backups stay as they were: {str(error).splitlines()[0]}")
                    return process.poll() is None

                yield runs
        finally:
            if process.stdin:
                process.stdin.close()
            with suppress(subprocess.TimeoutExpired):
                process.wait(10)
            process.kill()
            process.wait()
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


def _environment(scratch: Path, host: str, port: int) -> dict[str, str]:
    """Return the server's environment: an allow-list, since this process's environment may hold secrets."""
    return {name: os.environ[name] for name in _PASSED_ON if name in os.environ} | {
        "PATH": PATH,
        "HOME": str(scratch),
        "TMPDIR": str(scratch),
        "JAVA_HOME": str(java_home()),
        "SPARK_LOCAL_IP": "127.0.0.1",
        "HIVE_SERVER2_THRIFT_BIND_HOST": host,
        "HIVE_SERVER2_THRIFT_PORT": str(port),
        "_PYSPARK_DRIVER_CONN_INFO_PATH": str(scratch / "gateway"),
    }


def _settings(scratch: Path, host: str, port: int, memory: str | None) -> dict[str, str]:
    settings = spark_settings()
    jars = scratch / "jars"  # the cache may be in a home that the account cannot read
    jars.mkdir()
    jar_paths = [shutil.copy(jar, jars) for jar in settings["spark.driver.extraClassPath"].split(os.pathsep)]
    settings.pop("spark.executorEnv.NUMBA_CACHE_DIR")
    java = f"-Djava.io.tmpdir={scratch} -Dderby.system.home={scratch} -Duser.home={scratch}"
    if memory:
        settings["spark.driver.memory"] = memory
    return settings | {
        "spark.app.name": "lakebackup-thrift",
        "spark.driver.extraClassPath": os.pathsep.join(map(str, jar_paths)),
        "spark.executor.extraClassPath": os.pathsep.join(map(str, jar_paths)),
        "spark.driver.extraJavaOptions": f"{settings['spark.driver.extraJavaOptions']} {java}",
        "spark.local.dir": str(scratch),
        "spark.sql.warehouse.dir": str(scratch / "warehouse"),
        "spark.sql.catalogImplementation": "in-memory",
        "spark.sql.hive.metastore.barrierPrefixes": "",
        "spark.hadoop.hive.server2.thrift.bind.host": host,
        "spark.hadoop.hive.server2.thrift.port": str(port),
        "spark.hadoop.hive.server2.enable.doAs": "false",
        "spark.hadoop.hive.server2.logging.operation.enabled": "false",
        # When a client disconnects, the server looks for Hive's metastore, which does not exist.
        "spark.hadoop.hive.hmshandler.retry.attempts": "0",
        "spark.hadoop.hive.exec.scratchdir": str(scratch / "hive"),
    }


@contextmanager
def _gateway(process: subprocess.Popen[bytes], scratch: Path, log: Path) -> Iterator[Any]:
    """Yield the server's JVM. Raises EnvironmentProblem when it does not start, or fails."""
    address_file, deadline = scratch / "gateway", time.monotonic() + _START_S
    while not address_file.exists():
        if process.poll() is not None or time.monotonic() > deadline:
            raise EnvironmentProblem(f"The Thrift server did not start. End of {log}:\n{tail(log)}")
        time.sleep(0.05)
    port, token = jvm.read_address(address_file)
    address_file.unlink()
    gateway = JavaGateway(gateway_parameters=GatewayParameters(port=port, auth_token=token))
    try:
        yield gateway.jvm
    except Py4JError as error:
        raise EnvironmentProblem(
            f"The Thrift server did not start: {str(error).splitlines()[0]}. End of {log}:\n{tail(log)}"
        ) from error
    finally:
        gateway.close()


def _open_views(java: Any, catalog_uri: str, folder: Path, account: Account) -> SharedViews:
    """Create views that every session of the server sees, then let clients in."""
    spark = java.org.apache.spark.sql.classic.SparkSession.builder().getOrCreate()
    views = SharedViews(catalog_uri, folder, account, spark.sql)
    views.refresh()
    for step in steps_for(shown_views()):
        if step.startswith(RAW):
            table = f"{catalog_uri}/{step.removeprefix(RAW)}".replace("`", "``")
            spark.sql(f"CREATE VIEW `{step}` AS SELECT * FROM delta.`{table}`")  # noqa: S608 - our own names
        elif step not in MATERIALIZED_VIEWS:
            spark.sql(f"CREATE VIEW `{step}` AS {load('views', step)}")
    java.org.apache.spark.sql.hive.thriftserver.HiveThriftServer2.startWithContext(spark.sqlContext())
    return views


class SharedViews:
    """The views that many other views read, as Parquet files that DuckDB computes.

    Spark would analyse a view again in each view that names it, which takes minutes and gigabytes for all
    of them. `folder`: the folder of the files, which `account` must be able to read. `sql` runs a statement
    in the server.
    """

    def __init__(
        self, catalog_uri: str, folder: Path, account: Account, sql: Callable[[str], object]
    ) -> None:
        self._uri, self._folder, self._account, self._sql = catalog_uri, folder, account, sql
        self._numbers = count()
        self._folders: dict[Path, float] = {}  # in order, with the time from which statements read each
        self._versions: Mapping[str, int] = {}
        self._computed = self._next_check = -math.inf

    def refresh(self) -> None:
        """Compute the views again when the catalog has changed, or when a minute has passed."""
        start = time.monotonic()
        if start < self._next_check:
            return
        if start <= self._computed + _STALE_S and self._newest_versions() == self._versions:
            self._next_check = start + _CHECK_S
            return
        self._next_check = start + _STALE_S  # holds if the views cannot be computed
        self._compute()

    def _newest_versions(self) -> dict[str, int]:
        """Return the newest versions of the tables that the views read."""
        tables = (step.removeprefix(RAW) for step in steps_for(MATERIALIZED_VIEWS) if step.startswith(RAW))
        return {table: newest_version(f"{self._uri}/{table}") for table in tables}

    def _compute(self) -> None:
        start, versions = time.monotonic(), self._newest_versions()
        folder = self._folder / str(next(self._numbers))
        folder.mkdir(parents=True)
        try:
            self._write(folder)
        except BaseException:
            shutil.rmtree(folder, ignore_errors=True)
            raise
        if self._account.switch:
            _change_owner(self._folder, self._account)
        for view in MATERIALIZED_VIEWS:
            files = f"parquet.`{folder / view}.parquet`"
            self._sql(f"CREATE OR REPLACE VIEW `{view}` AS SELECT * FROM {files}")  # noqa: S608 - our own names
        self._versions, self._computed = versions, time.monotonic()
        self._folders[folder] = self._computed
        self._delete_replaced()
        # For a large catalog, at most a fifth of the time is spent on computing.
        self._next_check = self._computed + max(_CHECK_S, 4 * (self._computed - start))

    def _write(self, folder: Path) -> None:
        engine = DuckEngine(self._uri)
        for view in MATERIALIZED_VIEWS:
            rows = engine.run(f"FROM {view}", [view], {})
            with pq.ParquetWriter(folder / f"{view}.parquet", as_spark_reads(rows.schema)) as file:
                for batch in rows:
                    file.write_batch(batch.cast(file.schema))

    def _delete_replaced(self) -> None:
        """Delete the files that no statement can read any more."""
        for (folder, _), (_, replaced_s) in pairwise(list(self._folders.items())):
            if replaced_s + _STATEMENT_S < self._computed:
                shutil.rmtree(folder)
                del self._folders[folder]


def _change_owner(folder: Path, account: Account) -> None:
    """Make the account the owner of a folder and all that is in it."""
    for path in (folder, *folder.rglob("*")):
        os.chown(path, account.uid, account.gid)


def _require_free(host: str, port: int) -> None:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError as error:
            raise EnvironmentProblem(
                f"{host}:{port} cannot be listened on: {error.strerror}.",
                hint="Choose another --port or --host.",
            ) from error
