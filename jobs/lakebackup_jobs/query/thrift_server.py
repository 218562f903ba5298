"""A Spark Thrift server (JDBC) over the catalog's views, under an account that can only read.

Whoever connects can run any SQL that Spark knows: no parser stands between. What they cannot do is what the
account cannot do, so its rights are tried out first; the server's environment is an allow-list, its home and
working folder a scratch folder that ends with it.
"""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import tempfile
import time
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lakebackup.errors import EnvironmentProblem, Refused
from lakebackup.sql_engine import RAW, shown_views, steps_for
from lakebackup_jobs.runtime.child import tail
from lakebackup_jobs.runtime.java import jvm
from lakebackup_jobs.runtime.java.home import java_home
from lakebackup_jobs.runtime.java.jars import work_folder
from lakebackup_jobs.runtime.run_as import PATH, Account, require_reader
from lakebackup_jobs.runtime.settings import spark_settings
from lakebackup_sql import load

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

# Seconds in which the server must come up.
_START_S = 300
_PASSED_ON = ("LANG", "LC_ALL", "TZ")


@contextmanager
def thrift_server(
    catalog_uri: str,
    destinations: Sequence[str],
    account: Account,
    *,
    host: str,
    port: int,
) -> Iterator[subprocess.Popen[bytes]]:
    """The server while the block runs, ready for clients; all URIs are of folders of this machine.

    Raises Refused (not folders; the account can write to one of them), EnvironmentProblem (it cannot read
    them, the port is taken, the server does not come up).
    """
    for uri in (catalog_uri, *destinations):
        if not uri.startswith("file://"):  # what the account may do there cannot be tried out
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
        command = jvm.command(_settings(scratch, host, port), "pyspark-shell", folder=scratch)
        if account.switch:
            for place in (scratch, *scratch.rglob("*")):
                os.chown(place, account.uid, account.gid)
        with log.open("ab") as output:
            process = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,  # it ends when this closes, also when this process is killed
                stdout=output,
                stderr=output,
                cwd=scratch,
                env=_environment(scratch, host, port),
                start_new_session=True,
                **account.switch,
            )
        try:
            _open_views(process, scratch, catalog_uri, log)
            yield process
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
    """All that the server sees of this process's environment, which may hold secrets."""
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


def _settings(scratch: Path, host: str, port: int) -> dict[str, str]:
    settings = spark_settings()
    jars = scratch / "jars"  # the cache may be in a home that the account cannot read
    jars.mkdir()
    copied = [shutil.copy(jar, jars) for jar in settings["spark.driver.extraClassPath"].split(os.pathsep)]
    settings.pop("spark.executorEnv.NUMBA_CACHE_DIR")
    java = f"-Djava.io.tmpdir={scratch} -Dderby.system.home={scratch} -Duser.home={scratch}"
    return settings | {
        "spark.app.name": "lakebackup-thrift",
        "spark.driver.extraClassPath": os.pathsep.join(map(str, copied)),
        "spark.executor.extraClassPath": os.pathsep.join(map(str, copied)),
        "spark.driver.extraJavaOptions": f"{settings['spark.driver.extraJavaOptions']} {java}",
        "spark.local.dir": str(scratch),
        "spark.sql.warehouse.dir": str(scratch / "warehouse"),
        "spark.sql.catalogImplementation": "in-memory",
        "spark.sql.hive.metastore.barrierPrefixes": "",
        "spark.hadoop.hive.server2.thrift.bind.host": host,
        "spark.hadoop.hive.server2.thrift.port": str(port),
        "spark.hadoop.hive.server2.enable.doAs": "false",
        "spark.hadoop.hive.server2.logging.operation.enabled": "false",
        # Hive's metastore, which there is none of, is looked for when a client leaves.
        "spark.hadoop.hive.hmshandler.retry.attempts": "0",
        "spark.hadoop.hive.exec.scratchdir": str(scratch / "hive"),
    }


def _open_views(process: subprocess.Popen[bytes], scratch: Path, catalog_uri: str, log: Path) -> None:
    """Make the catalog's views in the server's JVM, then let clients in."""
    from py4j.java_gateway import GatewayParameters, JavaGateway
    from py4j.protocol import Py4JError

    ready, deadline = scratch / "gateway", time.monotonic() + _START_S
    while not ready.exists():
        if process.poll() is not None or time.monotonic() > deadline:
            raise EnvironmentProblem(f"The Thrift server did not start. End of {log}:\n{tail(log)}")
        time.sleep(0.05)
    port, token = jvm.read_address(ready)
    ready.unlink()
    gateway = JavaGateway(gateway_parameters=GatewayParameters(port=port, auth_token=token))
    try:
        java: Any = gateway.jvm
        spark = java.org.apache.spark.sql.classic.SparkSession.builder().getOrCreate()
        for statement in _views(catalog_uri):
            spark.sql(statement)
        java.org.apache.spark.sql.hive.thriftserver.HiveThriftServer2.startWithContext(spark.sqlContext())
    except Py4JError as error:
        raise EnvironmentProblem(
            f"The Thrift server did not start: {str(error).splitlines()[0]}. End of {log}:\n{tail(log)}"
        ) from error
    finally:
        gateway.close()


def _views(catalog_uri: str) -> Iterator[str]:
    """Views that every session of the server sees, as the catalog is when they are queried."""
    for step in steps_for(shown_views()):
        if step.startswith(RAW):
            folder = f"{catalog_uri}/{step.removeprefix(RAW)}".replace("`", "``")
            yield f"CREATE VIEW `{step}` AS SELECT * FROM delta.`{folder}`"  # noqa: S608 - our own names
        else:
            yield f"CREATE VIEW `{step}` AS {load('views', step)}"


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
