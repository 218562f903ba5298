"""A log task's job is killed at any point: no event is lost or stored twice."""

from __future__ import annotations

import random
import signal
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from tests.support import kafka_truth as truth
from tests.support.change_feed import ChangeFeed
from tests.support.command_line import Commands
from tests.support.encrypted import Host, KeyPair
from tests.support.faults import expire_leases
from tests.support.log_tasks import LogTask, busy, captured, restored, sent_records
from tests.support.processes import Run
from tests.support.runs import Lab

from lakebackup.config import SigningOptions
from lakebackup.rows.base import Row
from lakebackup.signing.keys import create
from lakebackup.sql_engine.delta.table import append
from lakebackup.storage import Storage
from lakebackup.store.reader import CatalogReader
from lakebackup_jobs.runtime import signing

pytestmark = [pytest.mark.spark, pytest.mark.kafka]


def fill(lab: Lab, feed: ChangeFeed, topic: str, count: int = 150) -> None:
    busy(feed, 1, count, begin=feed.last_ts)
    feed.send(lab.bootstrap, topic)


def start_task(
    lab: Lab, topic: Callable[..., str], recipients: tuple[str, ...] = ()
) -> tuple[ChangeFeed, str, LogTask]:
    name, feed = topic("feed", partitions=2), ChangeFeed(partitions=2)
    feed.create_table("shop", "orders")
    fill(lab, feed, name)
    task = LogTask(lab, name, recipients=recipients)
    task.begin()
    return feed, name, task


def job(lab: Lab) -> Run:
    return Run(lab, "log", "run", "lab", "--repo", str(lab.folder), "--lease-ttl", "5", "--json")


def assert_continues(lab: Lab, feed: ChangeFeed, topic: str, task: LogTask) -> None:
    """Run the task again: then the log has every event once, in a chain without a gap."""
    expire_leases(lab.folder)
    fill(lab, feed, topic, 20)
    with task.run():
        task.until_captured(feed.last_ts)
    assert captured(str(lab.folder)) == sent_records(feed)
    chain = lab.sql("SELECT * FROM backups ORDER BY number")
    assert [b["number"] for b in chain] == list(range(1, len(chain) + 1))
    assert [b["start_ts"] for b in chain] == [0, *(b["end_ts"] for b in chain[:-1])]
    assert all((lab.folder / f"lab/backups/{b['backup_id']}/complete").exists() for b in chain)
    # Files of a task that had not written its part are orphans.
    assert {finding["outcome"] for finding in lab.verify()["findings"]} <= {"orphan"}


class _Killed(Exception):
    """Kills the job: its unfinished flush stays unfinished, and nothing reports it."""


def _die(*_: object, **__: object) -> None:
    raise _Killed


def _append_all_but_backups(storage: Storage, table: str, rows: Sequence[Row], transaction: str) -> None:
    if table == "backups":
        raise _Killed
    append(storage, table, rows, transaction)


ENDS = {
    "no manifest": ("lakebackup.store.manifest.write_manifest", _die),
    "no row": ("lakebackup.store.writer.append", _append_all_but_backups),
    "no marker": ("lakebackup.store.manifest.mark", _die),
}


@pytest.mark.parametrize(
    "lives",
    [
        pytest.param(("no row", "no marker"), id="no row, then no marker"),
        pytest.param(("no manifest",), id="no manifest", marks=pytest.mark.long),
    ],
)
def test_a_log_killed_at_a_step_continues(
    lab: Lab, topic: Callable[..., str], monkeypatch: pytest.MonkeyPatch, lives: Sequence[str]
) -> None:
    """In this process, at the steps that leave distinct states, one job after the other."""
    feed, name, task = start_task(lab, topic)
    for end in lives:
        run_until_killed(task, end, monkeypatch)
        rows = CatalogReader.require(str(lab.folder)).select("SELECT * FROM backups").read_all()
        markers = list(lab.folder.glob("lab/backups/*/complete"))
        assert (rows.num_rows, markers) == (1 if end == "no marker" else 0, [])
    assert_continues(lab, feed, name, task)


def run_until_killed(task: LogTask, end: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Run the job, which is killed at a step of `ENDS`."""
    with monkeypatch.context() as patched:
        patched.setattr(*ENDS[end])
        patched.setattr("lakebackup_jobs.logs.capture.job.LogJob.pause", _die)
        with task.run():
            truth.until(lambda: bool(task.outcomes), "the job is gone")
    (error,) = task.outcomes
    assert isinstance(error, _Killed)


@pytest.mark.long
def test_an_encrypted_and_signed_log_that_is_killed_continues(
    lab: Lab,
    topic: Callable[..., str],
    cli: Commands,
    host: Host,
    keys: KeyPair,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    """Each job has a key of its own, and signs what the one before has published."""
    create(tmp_path / "host.key", None)
    signing.use(SigningOptions(key_file=str(tmp_path / "host.key")))
    monkeypatch.setenv("LAKEBACKUP_REPO", str(lab.folder))
    feed, name, task = start_task(lab, topic, (keys.recipient,))
    for end in ENDS:
        run_until_killed(task, end, monkeypatch)
        expire_leases(lab.folder)
        fill(lab, feed, name, 20)
    with task.run():
        task.until_captured(feed.last_ts)
    signed = cli.result("verify", "--signatures", "--public-key", tmp_path / "host.key.pub")
    assert (signed["findings"], signed["unsigned"]) == ([], 0)
    host.has(identity_file=keys.file)
    assert cli.result("verify", "--decode")["damaged"] == 0  # and this process has the identity now
    assert restored(lab, tmp_path / "table") == feed.rows(feed.last_ts)


@pytest.mark.long
def test_sigterm_ends_a_log_cleanly(lab: Lab, topic: Callable[..., str]) -> None:
    feed, name, task = start_task(lab, topic)
    run = job(lab)
    task.until_captured(feed.last_ts)
    assert run.end(signal.SIGTERM) == 0, run.log.read_text()
    status = task.status()
    assert (status["state"], status["at_work"]) == ("running", False)  # and no lease is left
    assert_continues(lab, feed, name, task)


@pytest.mark.long
@pytest.mark.parametrize("seed", range(8))
def test_log_killed_at_any_time(lab: Lab, topic: Callable[..., str], seed: int) -> None:
    moments = random.Random(seed)
    feed, name, task = start_task(lab, topic)
    for _ in range(4):
        run = job(lab)
        task.until(lambda status: status["at_work"], "the lease", 120)
        fill(lab, feed, name)
        time.sleep(moments.uniform(0, 8))
        run.kill()
        expire_leases(lab.folder)
    assert_continues(lab, feed, name, task)
