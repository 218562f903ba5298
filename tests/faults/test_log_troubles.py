"""A log task whose job cannot write: it pauses itself, says why, and goes on when it is resumed."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest
from tests.support import kafka_truth as truth
from tests.support.change_feed import ChangeFeed
from tests.support.disks import fill, small_disk
from tests.support.log_tasks import LogTask, approve, captured, sent
from tests.support.processes import Run
from tests.support.runs import Lab
from tests.support.s3 import put_catalog
from tests.support.s3_faults import FaultProxy

from lakebackup_jobs.logs.control import verbs as control
from lakebackup_jobs.logs.control.verbs import Place
from lakebackup_jobs.logs.task import record

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from pyspark.sql import SparkSession
    from tests.support.s3 import S3Proxy

    from lakebackup_jobs.demo.broker import Broker

# What fails in a flush leaves nothing: test_log_capture.py. What a job then does and says: test_log_job.py.
pytestmark = [pytest.mark.spark, pytest.mark.kafka, pytest.mark.long]


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 8 MiB."""
    with small_disk(tmp_path, "8m") as folder:
        yield folder


@pytest.fixture
def feed(topic: Callable[..., str], broker: Broker) -> tuple[ChangeFeed, str]:
    """Two hundred values that nothing compresses, a kilobyte each."""
    name, made = topic("feed", partitions=1), ChangeFeed(partitions=1)
    noise(made, made.create_table("shop", "orders"))
    made.send(broker.bootstrap, name)
    return made, name


def noise(feed: ChangeFeed, table: int) -> None:
    for number in range(200):
        with feed.begin() as txn:
            txn.put(table, b"%d" % number, os.urandom(1000))
    feed.resolve()


def leave(folder: Path, free: int) -> Path:
    fill(folder / "filler", free)
    return folder / "filler"


def test_the_disk_of_a_task_is_full(lab: Lab, feed: tuple[ChangeFeed, str], disk: Path) -> None:
    made, name = feed
    filler = leave(disk, 64 * 1024)
    task = LogTask(lab, name, scratch=str(disk))
    task.begin()
    with task.run():
        found = task.until(lambda now: bool(now["detail"]), "the full disk is told")
        assert found["state"] == "paused"
        assert "No space left" in found["detail"]
        filler.unlink()
        control.resume(task.place, "lab")
        task.until_captured(made.now)
    assert captured(str(lab.folder)) == sent(made)
    assert task.status()["errors"] == 1


def test_the_destination_is_full(
    spark: SparkSession, broker: Broker, empty_catalog: Path, feed: tuple[ChangeFeed, str], disk: Path
) -> None:
    """Not even the catalog can be told then: Prometheus hears it at once, the catalog when there is room."""
    made, name = feed
    lab = Lab(spark, broker.bootstrap, disk, empty_catalog)
    task = LogTask(lab, name)
    task.begin()
    with task.run():
        task.until_captured(made.now)
        filler = leave(disk, 8192)
        noise(made, 1)
        made.send(broker.bootstrap, name)
        truth.until(lambda: bool(task.last_error.text), "the job says what is wrong", 240)
        filler.unlink()
        found = task.until(lambda now: bool(now["detail"]), "the catalog is told")
        assert found["state"] == "paused"
        control.resume(task.place, "lab")
        task.until_captured(made.now)
        assert task.last_error.text is None
    assert captured(str(lab.folder)) == sent(made)


@pytest.mark.s3
def test_uploads_fail(
    lab: Lab,
    feed: tuple[ChangeFeed, str],
    s3: S3Proxy,
    empty_catalog: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    made, name = feed
    place = f"s3://{s3.bucket()}/backups"
    put_catalog(place, empty_catalog)
    settings = LogTask(lab, name).settings
    record(place, None, "lab", "running", settings)
    approve(place, "lab", settings)
    tasks = Place(place, None, {})

    def status() -> dict[str, object]:
        return tasks.status("lab")

    with FaultProxy(int(s3.endpoint.rpartition(":")[2])) as proxy:
        proxy.fail("503", "PUT", "/log/", times=10_000)
        with monkeypatch.context() as patch:
            patch.setenv("LAKEBACKUP_S3__ENDPOINT", proxy.endpoint)
            patch.setenv("LAKEBACKUP_S3__MAX_ATTEMPTS", "2")
            patch.setenv("LAKEBACKUP_LOG__TRIES", "2")
            run = Run(lab, "log", "run", "lab", "--repo", place, "--json")
        try:
            truth.until(lambda: bool(status()["detail"]), "the failing uploads are told", 300)
            assert status()["state"] == "paused"
            tried = len([m for m in proxy.methods("/log/") if m in ("PUT", "POST")])
            assert 2 <= tried < 100  # bounded
            proxy.faults.clear()
            control.resume(tasks, "lab")
            truth.until(lambda: (status()["checkpoint_ts"] or 0) == made.now, "it goes on", 300)
            assert control.stop(tasks, "lab")["lost"] == {}
        finally:
            run.kill()
    assert captured(place) == sent(made)
