"""One Spark session and one broker for all tests of a process; a test that needs neither starts neither.

Processes of one run (`pytest -n`) share nothing but what programs of one user share anyway: the cache folder.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING
from uuid import uuid4

import pytest
from hypothesis import settings

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from pyspark.sql import SparkSession
    from tests.support.graph_lab import GraphLab
    from tests.support.postgres import Postgres
    from tests.support.runs import Lab
    from tests.support.s3 import S3Proxy, Versity

    from lakebackup_jobs.broker import Broker

# The same examples in every run of CI; a person's runs look for new ones.
settings.register_profile("ci", derandomize=True)
if os.environ.get("CI"):
    settings.load_profile("ci")


@pytest.fixture(scope="session", autouse=True)
def s3_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Proxy]:
    """An S3 server, not started yet: every process of the tests knows it, and no account of this machine."""
    from tests.support.s3 import S3Proxy

    server = S3Proxy(tmp_path_factory.mktemp("s3"))
    with pytest.MonkeyPatch.context() as patch:
        for name in [name for name in os.environ if name.startswith(("AWS_", "LAKEBACKUP_S3__"))]:
            patch.delenv(name)
        for name, value in server.environment.items():
            patch.setenv(name, value)
        yield server
        server.stop()


@pytest.fixture(scope="session")
def s3(s3_server: S3Proxy) -> S3Proxy:
    """The S3 server, running. `s3.bucket()` makes a bucket; `s3://<bucket>/…` opens in every process."""
    return s3_server.start()


@pytest.fixture(scope="session")
def versity(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Versity]:
    """An S3 server that has versions and Object Lock, running; skips where it cannot be built."""
    from tests.support.s3 import Versity

    with Versity(tmp_path_factory.mktemp("versity")) as server:
        yield server


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """The project's own session, on this machine."""
    from lakebackup_jobs.session import spark_session

    # Nobody looks at what it keeps of thousands of finished queries.
    kept = ("sql.ui.retainedExecutions", "ui.retainedJobs", "ui.retainedStages")
    extra = {"spark.master": "local[2]", "spark.driver.memory": "2g"}
    extra |= {f"spark.{name}": "20" for name in kept}
    session = spark_session(app="lakebackup-tests", extra=extra)
    yield session
    session.stop()


@pytest.fixture(scope="session")
def empty_catalog(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a catalog without rows, to be copied."""
    from lakebackup.store import CatalogWriter

    folder = tmp_path_factory.mktemp("empty")
    CatalogWriter.open(spark, str(folder)).migrate()
    return folder / "catalog"


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
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    """A running broker. A test that stops or kills it must use one of its own."""
    from lakebackup_jobs.broker import Broker

    with Broker(tmp_path_factory.mktemp("broker")) as running:
        yield running


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
        return name

    yield make
    present = set(admin.list_topics(timeout=30).topics)
    gone = [name for name in made if name in present]
    for answer in admin.delete_topics(gone).values() if gone else ():
        answer.result(30)
