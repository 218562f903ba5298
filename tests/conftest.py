"""The fixtures that tests share: one Spark JVM, one broker and one S3 server for all processes of a run.

Each server starts when a test first uses it (tests/support/servers.py). Each test makes its own topics,
buckets and folders.
"""

from __future__ import annotations

import io
import os
import shutil
import sys
import time
from typing import TYPE_CHECKING, Any, cast
from uuid import uuid4

import pytest
from hypothesis import HealthCheck, settings
from tests.support import servers

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from pathlib import Path

    from pyspark.sql import SparkSession
    from tests.support.command_line import Commands
    from tests.support.encrypted import Host, KeyPair
    from tests.support.graph_lab import GraphLab
    from tests.support.postgres import Postgres
    from tests.support.runs import Lab
    from tests.support.s3 import S3Proxy, Versity

    from lakebackup_jobs.demo.broker import Broker
    from lakebackup_jobs.lifecycle.progress import ResultPrinter

# The beginning of the variables that name identities.
_IDENTITIES = ("LAKEBACKUP_ENCRYPTION__", "_LAKEBACKUP_ENCRYPTION__")

# There is no deadline, because the time of an example depends on the load of the machine. CI always runs the
# same examples, a developer's machine runs new ones.
settings.register_profile(
    "ours", deadline=None, suppress_health_check=[HealthCheck.too_slow], derandomize="CI" in os.environ
)
settings.load_profile("ours")


@pytest.fixture(scope="session")
def s3() -> S3Proxy:
    """A running S3 server. `s3.bucket()` makes a bucket; every process can open `s3://<bucket>/…`."""
    from tests.support.s3 import S3Proxy

    server = S3Proxy(servers.folder() / "s3", port=servers.s3_port())
    servers.host().s3()
    return server


@pytest.fixture(scope="session")
def versity(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Versity]:
    """A running S3 server with versions and Object Lock. Skips the test where the server cannot be built."""
    from tests.support.s3 import Versity

    with Versity(tmp_path_factory.mktemp("versity")) as server:
        yield server


@pytest.fixture(scope="session", autouse=True)
def _every_result_is_printed() -> Iterator[None]:
    """Prints each result that a test reads as JSON as text too, so a result that has no text form fails."""
    from lakebackup_jobs.lifecycle import progress

    def printing_reporter(
        *, as_json: bool, printer: ResultPrinter | None = None, **options: Any
    ) -> progress.Reporter:
        reporter = original(as_json=as_json, printer=printer, **options)
        if as_json and printer:
            report_as_json = reporter.result

            def result(values: Mapping[str, Any]) -> None:
                printer(values, io.StringIO(), None)
                report_as_json(values)

            reporter.result = result  # type: ignore[method-assign]
        return reporter

    original = progress.reporter
    progress.reporter = printing_reporter
    yield
    progress.reporter = original


@pytest.fixture(autouse=True)
def _each_test_has_its_own_keys() -> Iterator[None]:
    """Restores the settings of keys, which a command that runs in this process sets for the process."""
    variables = {name: text for name, text in os.environ.items() if name.startswith(_IDENTITIES)}
    yield
    for name in [name for name in os.environ if name.startswith(_IDENTITIES)]:
        del os.environ[name]
    os.environ.update(variables)
    if identities := sys.modules.get("lakebackup_jobs.runtime.identities"):
        identities._options = None  # type: ignore[attr-defined]
    if signing := sys.modules.get("lakebackup_jobs.runtime.signing"):
        signing.use(signing.SigningOptions())
    if storage := sys.modules.get("lakebackup.storage"):
        storage.encrypt_metadata({})


@pytest.fixture(scope="session", autouse=True)
def _no_jvm_of_its_own() -> None:
    """Keeps the processes of tests from starting a JVM.

    A JVM that a command starts ahead may outlive its test. The process could then not attach to the shared
    JVM.
    """
    from lakebackup.errors import EnvironmentProblem
    from lakebackup_jobs.runtime.java import jvm

    class Absent:
        def address(self) -> tuple[int, str]:
            raise EnvironmentProblem("A test's process starts no JVM of its own.")

    jvm.start = lambda *_, **__: Absent()  # type: ignore[assignment, return-value]


@pytest.fixture(scope="session")
def spark() -> SparkSession:
    """This process's session in the JVM that all processes share."""
    return servers.attached_session()


@pytest.fixture(scope="session")
def empty_catalog(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a catalog without rows, for tests to copy."""
    from lakebackup.store.writer import CatalogWriter

    folder = tmp_path_factory.mktemp("empty")
    CatalogWriter(None, str(folder)).migrate()
    return folder / "catalog"


@pytest.fixture(params=["here", pytest.param("spark", marks=pytest.mark.spark)])
def session(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> SparkSession | None:
    """None: the command's own process deletes, and must not start a JVM. Then the Spark session: it deletes,
    because the catalog counts as large."""
    if request.param == "spark":
        from lakebackup_jobs.lifecycle.deletion import executor

        monkeypatch.setattr(executor, "is_large", lambda _: True)
        return cast("SparkSession", request.getfixturevalue("spark"))
    from lakebackup_jobs.runtime.java import jvm

    monkeypatch.setattr(jvm, "start", lambda *_, **__: pytest.fail("a JVM was started"))
    return None


@pytest.fixture
def root(module_root: Path, tmp_path: Path) -> Path:
    """A copy, for one test, of the destination that the module's fixture `module_root` holds."""
    return shutil.copytree(module_root, tmp_path / module_root.name)


@pytest.fixture
def cli(spark: SparkSession, capsys: pytest.CaptureFixture[str]) -> Commands:
    """The command line, on this process's session."""
    from tests.support.command_line import Commands

    return Commands(capsys, spark)


@pytest.fixture
def commands(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> Commands:
    """Commands on a repository of the test's own, which find no Java."""
    from tests.support.command_line import Commands

    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", "")
    monkeypatch.setenv("LAKEBACKUP_REPO", str(tmp_path / "backups"))
    return Commands(capsys)


@pytest.fixture
def host(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Host:
    """The machine of the test's commands, without recipients and identities."""
    from tests.support.encrypted import Host

    return Host(monkeypatch, tmp_path / "keys")


@pytest.fixture
def keys(host: Host) -> KeyPair:
    """An identity, and its recipient."""
    return host.key_pair("restore.identity")


@pytest.fixture
def lab(spark: SparkSession, broker: Broker, empty_catalog: Path, tmp_path: Path) -> Lab:
    """A destination for one test, on the shared broker and session."""
    from tests.support.runs import Lab

    return Lab(spark, broker.bootstrap, tmp_path / "backups", empty_catalog)


@pytest.fixture
def graph_lab(broker: Broker, empty_catalog: Path, tmp_path: Path) -> Iterator[GraphLab]:
    """A destination for one test of engines with queues, on the shared broker."""
    from tests.support.graph_lab import GraphLab

    graph = GraphLab(tmp_path, broker.bootstrap, empty_catalog)
    yield graph
    graph.close()


@pytest.fixture(scope="session")
def broker() -> Broker:
    """A running broker, which other tests use at the same time. A test that stops a broker starts its own."""
    from lakebackup_jobs.demo.broker import Broker

    return Broker(servers.folder() / "broker", port=servers.host().broker())


@pytest.fixture(scope="session")
def postgres() -> Iterator[Postgres]:
    """A running PostgreSQL with logical decoding; `postgres.database()` makes a database."""
    from tests.support.postgres import Postgres

    with Postgres() as server:
        yield server


@pytest.fixture
def topic(broker: Broker) -> Iterator[Callable[..., str]]:
    """Makes topics with unique names: topic("t", partitions=4, **{"cleanup.policy": "compact"})."""
    from confluent_kafka.admin import AdminClient, NewTopic

    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    names: list[str] = []

    def make(prefix: str = "topic", partitions: int = 1, **config: str) -> str:
        name = f"{prefix}-{uuid4().hex[:8]}"
        # Tests write old timestamps, which a retention of seven days deletes within seconds.
        config = {"retention.ms": "-1", **config}
        new_topic = NewTopic(name, num_partitions=partitions, replication_factor=1, config=config)
        admin.create_topics([new_topic])[name].result(30)
        names.append(name)
        # A broker under load answers before its metadata contain the topic.
        while name not in admin.list_topics(timeout=30).topics:
            time.sleep(0.05)
        return name

    yield make
    present = set(admin.list_topics(timeout=30).topics)
    leftover = [name for name in names if name in present]
    for future in admin.delete_topics(leftover).values() if leftover else ():
        future.result(30)
