"""What tests share: one Spark JVM, one broker and one S3 server for all processes of a run.

Each is started when a test first wants it (tests/support/servers.py). A test makes its own topics, buckets
and folders in them.
"""

from __future__ import annotations

import io
import os
import shutil
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
    from tests.support.graph_lab import GraphLab
    from tests.support.postgres import Postgres
    from tests.support.runs import Lab
    from tests.support.s3 import S3Proxy, Versity

    from lakebackup_jobs.demo.broker import Broker
    from lakebackup_jobs.lifecycle.progress import ResultPrinter

# How long an example takes says how busy the machine is. CI runs the same examples each
# time, a person new ones.
settings.register_profile(
    "ours", deadline=None, suppress_health_check=[HealthCheck.too_slow], derandomize="CI" in os.environ
)
settings.load_profile("ours")


@pytest.fixture(scope="session")
def s3() -> S3Proxy:
    """The S3 server, running. `s3.bucket()` makes a bucket; `s3://<bucket>/…` opens in every process."""
    from tests.support.s3 import S3Proxy

    server = S3Proxy(servers.folder() / "s3", port=servers.s3_port())
    servers.host().s3()
    return server


@pytest.fixture(scope="session")
def versity(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Versity]:
    """An S3 server that has versions and Object Lock, running; skips where it cannot be built."""
    from tests.support.s3 import Versity

    with Versity(tmp_path_factory.mktemp("versity")) as server:
        yield server


@pytest.fixture(scope="session", autouse=True)
def _every_result_is_printed() -> Iterator[None]:
    """What a test takes as JSON is printed for a person as well: no result may be one that this cannot do."""
    from lakebackup_jobs.lifecycle import progress

    def both(*, as_json: bool, printer: ResultPrinter | None = None, **options: Any) -> progress.Reporter:
        reporter = original(as_json=as_json, printer=printer, **options)
        if as_json and printer:
            as_line = reporter.result

            def result(values: Mapping[str, Any]) -> None:
                printer(values, io.StringIO(), None)
                as_line(values)

            reporter.result = result  # type: ignore[method-assign]
        return reporter

    original = progress.reporter
    progress.reporter = both
    yield
    progress.reporter = original


@pytest.fixture(scope="session", autouse=True)
def _no_jvm_of_its_own() -> None:
    """A test's process starts no JVM, also where a command begins to start one ahead, which may outlive its
    test: the process could not be attached to the run's afterwards."""
    from lakebackup.errors import EnvironmentProblem
    from lakebackup_jobs.runtime.java import jvm

    class Absent:
        def address(self) -> tuple[int, str]:
            raise EnvironmentProblem("A test's process starts no JVM of its own.")

    jvm.start = lambda *_, **__: Absent()  # type: ignore[assignment, return-value]


@pytest.fixture(scope="session")
def spark() -> SparkSession:
    """A session of this process's own in the JVM that all processes share."""
    return servers.attached_session()


@pytest.fixture(scope="session")
def empty_catalog(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a catalog without rows, to be copied."""
    from lakebackup.store.writer import CatalogWriter

    folder = tmp_path_factory.mktemp("empty")
    CatalogWriter(None, str(folder)).migrate()
    return folder / "catalog"


@pytest.fixture(params=["here", pytest.param("spark", marks=pytest.mark.spark)])
def session(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> SparkSession | None:
    """None, with which the command's own process deletes, and starts no JVM; then the session, which deletes
    since the catalog counts as large."""
    if request.param == "spark":
        from lakebackup_jobs.lifecycle.deletion import executor

        monkeypatch.setattr(executor, "is_large", lambda _: True)
        return cast("SparkSession", request.getfixturevalue("spark"))
    from lakebackup_jobs.runtime.java import jvm

    monkeypatch.setattr(jvm, "start", lambda *_, **__: pytest.fail("a JVM was started"))
    return None


@pytest.fixture
def root(made: Path, tmp_path: Path) -> Path:
    """The test's own copy of the destination that its module's fixture `made` has."""
    return shutil.copytree(made, tmp_path / made.name)


@pytest.fixture
def cli(spark: SparkSession, capsys: pytest.CaptureFixture[str]) -> Commands:
    """The command line, on this process's session."""
    from tests.support.command_line import Commands

    return Commands(capsys, spark)


@pytest.fixture
def lab(spark: SparkSession, broker: Broker, empty_catalog: Path, tmp_path: Path) -> Lab:
    """A destination of its own on the shared broker and session."""
    from tests.support.runs import Lab

    return Lab(spark, broker.bootstrap, tmp_path / "backups", empty_catalog)


@pytest.fixture
def graph_lab(broker: Broker, empty_catalog: Path, tmp_path: Path) -> Iterator[GraphLab]:
    """A destination of its own for engines with queues on the shared broker."""
    from tests.support.graph_lab import GraphLab

    made = GraphLab(tmp_path, broker.bootstrap, empty_catalog)
    yield made
    made.close()


@pytest.fixture(scope="session")
def broker() -> Broker:
    """A running broker, which other tests use at the same time. A test that stops one makes its own."""
    from lakebackup_jobs.demo.broker import Broker

    return Broker(servers.folder() / "broker", port=servers.host().broker())


@pytest.fixture(scope="session")
def postgres() -> Iterator[Postgres]:
    """A running PostgreSQL with logical decoding; `postgres.database()` makes a database."""
    from tests.support.postgres import Postgres

    with Postgres() as running:
        yield running


@pytest.fixture
def topic(broker: Broker) -> Iterator[Callable[..., str]]:
    """Makes topics with names of their own: topic("t", partitions=4, **{"cleanup.policy": "compact"})."""
    from confluent_kafka.admin import AdminClient, NewTopic

    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    made: list[str] = []

    def make(prefix: str = "topic", partitions: int = 1, **config: str) -> str:
        name = f"{prefix}-{uuid4().hex[:8]}"
        # Tests write old timestamps, which a retention of seven days deletes within seconds.
        config = {"retention.ms": "-1", **config}
        wanted = NewTopic(name, num_partitions=partitions, replication_factor=1, config=config)
        admin.create_topics([wanted])[name].result(30)
        made.append(name)
        # A broker under load answers before its own metadata have the topic.
        while name not in admin.list_topics(timeout=30).topics:
            time.sleep(0.05)
        return name

    yield make
    present = set(admin.list_topics(timeout=30).topics)
    gone = [name for name in made if name in present]
    for answer in admin.delete_topics(gone).values() if gone else ():
        answer.result(30)
