"""`lakebackup log start` and what follows, with a job in a process of its own."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import httpx
import psutil
import pytest
from tests.support import kafka_truth as truth
from tests.support.change_feed import ChangeFeed
from tests.support.log_tasks import busy, captured, sent

from lakebackup.errors import Refused
from lakebackup_jobs.child import free_port
from lakebackup_jobs.cli import main

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.support.runs import Lab

pytestmark = [pytest.mark.spark, pytest.mark.kafka]


def test_a_task_from_start_to_stop(
    lab: Lab, topic: Callable[..., str], capsys: pytest.CaptureFixture[str]
) -> None:
    lab.make_catalog()
    name, feed = topic("feed", partitions=2), ChangeFeed(partitions=2)
    orders = feed.create_table("shop", "orders")
    busy(feed, orders, 20)
    feed.send(lab.bootstrap, name)
    port = free_port()

    def run(*arguments: str) -> tuple[int, str]:
        code = main(["log", *arguments])
        out, err = capsys.readouterr()
        return code, out + err

    begin = [
        "start", "lab", "--source", f"kafka://{lab.bootstrap}", "--topic", name, "--to", str(lab.folder),
        "--flush-every", "200ms", "--master", "local[2]", "--metrics-port", str(port),
    ]  # fmt: skip
    at = ["lab", "--from", str(lab.folder)]
    code, told = run(*begin)
    assert code == 0, told
    assert told.startswith("Starting task lab from what the feed has...\n\nStore 1: ok (next_backup_ts =")
    assert "\nStarted! Its log: " in told
    assert 'lakebackup_log_at_work{task="lab"} 1.0' in httpx.get(f"http://127.0.0.1:{port}").text
    code, told = run(*begin)
    assert (code, "it runs already" in told) == (Refused.exit_code, True)
    busy(feed, orders, 20, begin=20)
    feed.send(lab.bootstrap, name)
    truth.until(lambda: captured(str(lab.folder)) == sent(feed), "all is captured", 150)
    code, told = run("pause", *at)
    assert (code, f"\nPaused at {feed.now}.\n" in told) == (0, True)
    code, told = run("status", *at)
    assert f"Store 2: ok (next_backup_ts ={feed.now})." in told
    assert "paused, a job is at work" in told
    code, told = run("resume", *at, "--json")
    assert (code, json.loads(told)["state"]) == (0, "running")
    code, told = run("stop", *at)
    assert code == 0
    assert told.startswith("Stopping task lab...\n\nStore 1: ok (next_backup_ts =")
    assert told.endswith(f"Every event was flushed.\nStopped at --lastbackupts={feed.now}.\n")
    truth.until(lambda: not _jobs(str(lab.folder)), "the job ends", 60)


@pytest.fixture(autouse=True)
def no_job_is_left(lab: Lab) -> Iterator[None]:
    yield
    for job in _jobs(str(lab.folder)):
        job.kill()


def _jobs(folder: str) -> list[psutil.Process]:
    found = psutil.process_iter(["cmdline", "status"])
    return [
        process
        for process in found
        if folder in (process.info["cmdline"] or []) and process.info["status"] != psutil.STATUS_ZOMBIE
    ]
