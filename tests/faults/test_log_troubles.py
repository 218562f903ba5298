"""A log task whose job cannot write: it pauses itself, records why, and continues when it is resumed."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest
from tests.support import kafka_truth as truth
from tests.support.change_feed import ChangeFeed
from tests.support.disks import fill, small_disk
from tests.support.log_tasks import LogTask, approve, captured, sent_records
from tests.support.processes import Run
from tests.support.runs import Lab
from tests.support.s3 import put_catalog
from tests.support.s3_faults import FaultProxy

from lakebackup_jobs.logs.control import verbs as control
from lakebackup_jobs.logs.control.verbs import LogTasks
from lakebackup_jobs.logs.task import record

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from pyspark.sql import SparkSession
    from tests.support.s3 import S3Proxy

    from lakebackup_jobs.demo.broker import Broker

# test_log_capture.py: a flush that fails leaves nothing. test_log_job.py: what a job then does and reports.
pytestmark = [pytest.mark.spark, pytest.mark.kafka, pytest.mark.long]


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 8 MiB."""
    with small_disk(tmp_path, "8m") as folder:
        yield folder


@pytest.fixture
def feed(topic: Callable[..., str], broker: Broker) -> tuple[ChangeFeed, str]:
    """Two hundred incompressible values of a kilobyte each."""
    name, change_feed = topic("feed", partitions=1), ChangeFeed(partitions=1)
    noise(change_feed, change_feed.create_table("shop", "orders"))
    change_feed.send(broker.bootstrap, name)
    return change_feed, name


def noise(feed: ChangeFeed, table: int) -> None:
    for number in range(200):
        with feed.begin() as txn:
            txn.put_row(table, b"%d" % number, os.urandom(1000))
    feed.resolve()


def fill_except(folder: Path, free: int) -> Path:
    fill(folder / "filler", free)
    return folder / "filler"


def test_a_full_scratch_disk_pauses_the_task(lab: Lab, feed: tuple[ChangeFeed, str], disk: Path) -> None:
    change_feed, name = feed
    filler = fill_except(disk, 64 * 1024)
    task = LogTask(lab, name, scratch=str(disk))
    task.begin()
    with task.run():
        status = task.until(lambda task_status: bool(task_status["detail"]), "the full disk is told")
        assert status["state"] == "paused"
        assert "No space left" in status["detail"]
        filler.unlink()
        control.resume(task.catalog_place, "lab")
        task.until_captured(change_feed.last_ts)
    assert captured(str(lab.folder)) == sent_records(change_feed)
    assert task.status()["errors"] == 1


def test_a_full_destination_pauses_the_task(
    spark: SparkSession, broker: Broker, empty_catalog: Path, feed: tuple[ChangeFeed, str], disk: Path
) -> None:
    """The catalog is full too: Prometheus gets the error at once, the catalog when there is room."""
    change_feed, name = feed
    lab = Lab(spark, broker.bootstrap, disk, empty_catalog)
    task = LogTask(lab, name)
    task.begin()
    with task.run():
        task.until_captured(change_feed.last_ts)
        filler = fill_except(disk, 8192)
        noise(change_feed, 1)
        change_feed.send(broker.bootstrap, name)
        truth.until(lambda: bool(task.last_error.text), "the job says what is wrong", 240)
        filler.unlink()
        status = task.until(lambda task_status: bool(task_status["detail"]), "the catalog is told")
        assert status["state"] == "paused"
        control.resume(task.catalog_place, "lab")
        task.until_captured(change_feed.last_ts)
        assert task.last_error.text is None
    assert captured(str(lab.folder)) == sent_records(change_feed)


@pytest.mark.s3
def test_failing_uploads_pause_the_task(
    lab: Lab,
    feed: tuple[ChangeFeed, str],
    s3: S3Proxy,
    empty_catalog: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    change_feed, name = feed
    repo = f"s3://{s3.bucket()}/backups"
    put_catalog(repo, empty_catalog)
    settings = LogTask(lab, name).settings
    record(repo, None, "lab", "running", settings)
    approve(repo, "lab", settings)
    tasks = LogTasks(repo, None, {})

    def status() -> dict[str, object]:
        return tasks.status("lab")

    with FaultProxy(int(s3.endpoint.rpartition(":")[2])) as proxy:
        proxy.fail("503", "PUT", "/log/", times=10_000)
        with monkeypatch.context() as patch:
            patch.setenv("LAKEBACKUP_S3__ENDPOINT", proxy.endpoint)
            patch.setenv("LAKEBACKUP_S3__MAX_ATTEMPTS", "2")
            patch.setenv("LAKEBACKUP_LOG__TRIES", "2")
            run = Run(lab, "log", "run", "lab", "--repo", repo, "--json")
        try:
            truth.until(lambda: bool(status()["detail"]), "the failing uploads are told", 300)
            assert status()["state"] == "paused"
            uploads = len([m for m in proxy.methods("/log/") if m in ("PUT", "POST")])
            assert 2 <= uploads < 100  # the retries are bounded
            proxy.faults.clear()
            control.resume(tasks, "lab")
            truth.until(lambda: (status()["checkpoint_ts"] or 0) == change_feed.last_ts, "it goes on", 300)
            assert control.stop(tasks, "lab")["lost"] == {}
        finally:
            run.kill()
    assert captured(repo) == sent_records(change_feed)
