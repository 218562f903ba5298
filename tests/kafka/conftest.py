"""Fixtures of the tests that run against a broker."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from uuid import uuid4

import pytest
from pyspark.sql import SparkSession
from tests.support import kafka_truth as truth
from tests.support.faults import rows_of
from tests.support.runs import Lab
from tests.support.secured import SecuredBroker
from tests.support.social import Social

from lakebackup_jobs.demo.broker import Broker


@pytest.fixture
def social(broker: Broker, empty_catalog: Path, tmp_path: Path, topic: Callable[..., str]) -> Social:
    """The queues of an engine, and a repository for their backups."""
    return Social(broker.bootstrap, tmp_path, empty_catalog, topic("delta", 2), topic("journal"))


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredBroker]:
    """A broker that requires authentication."""
    with SecuredBroker(tmp_path_factory.mktemp("secured")) as broker:
        yield broker


@pytest.fixture
def plain(spark: SparkSession, secured: SecuredBroker, empty_catalog: Path, tmp_path: Path) -> Lab:
    """A lab that connects to the secured broker through its plain listener, without credentials."""
    return Lab(spark, secured.bootstrap, tmp_path / "backups", empty_catalog)


@pytest.fixture
def orders(secured: SecuredBroker) -> str:
    """A topic of the secured broker with 50 records in each of two partitions."""
    name = f"orders-{uuid4().hex[:8]}"
    truth.create_topic(secured.bootstrap, name, 2, retention_ms="-1")
    truth.produce(secured.bootstrap, name, rows_of(2, 50))
    return name
