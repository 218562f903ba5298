"""`lakebackup log start` and what follows; the job is a thread of the test, or a process of its own."""

from __future__ import annotations

import json
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import httpx
import psutil
import pytest
from tests.support import kafka_truth as truth
from tests.support.change_feed import ChangeFeed
from tests.support.log_tasks import LogTask, busy, captured, sent

from lakebackup.errors import NotFound, Refused
from lakebackup.store.reader import CatalogReader
from lakebackup_jobs.logs.control import verbs as control
from lakebackup_jobs.runtime.child import free_port

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.support.command_line import Commands
    from tests.support.runs import Lab

pytestmark = [pytest.mark.spark, pytest.mark.kafka]


@dataclass
class Verbs:
    """A task `lab` over a feed of two partitions, and the verbs that a person gives."""

    lab: Lab
    topic: str
    cli: Commands
    feed: ChangeFeed = field(default_factory=lambda: ChangeFeed(partitions=2))

    def __post_init__(self) -> None:
        self.lab.make_catalog()
        self.orders = self.feed.create_table("shop", "orders")
        self.send()

    def send(self) -> int:
        """Twenty transactions more; how many events they were."""
        busy(self.feed, self.orders, 20, begin=self.feed.now)
        return self.feed.send(self.lab.bootstrap, self.topic)

    def run(self, *arguments: str) -> tuple[int, str]:
        code, out, err = self.cli.run("log", *arguments)
        return code, out + err

    def start(self, *more: str) -> tuple[int, str]:
        where = ["--source", f"kafka://{self.lab.bootstrap}", "--topic", self.topic]
        return self.run("start", "lab", *where, "--to", str(self.lab.folder), "--flush-every", "200ms", *more)

    def at(self, verb: str, *more: str) -> tuple[int, str]:
        return self.run(verb, "lab", "--from", str(self.lab.folder), *more)

    def all_is_captured(self) -> bool:
        return captured(str(self.lab.folder)) == sent(self.feed)

    def logs(self) -> list[dict[str, Any]]:
        reader = CatalogReader.require(str(self.lab.folder))
        found: list[dict[str, Any]] = (
            reader.select("SELECT * FROM backups ORDER BY number").read_all().to_pylist()
        )
        return found


@pytest.fixture
def verbs(lab: Lab, topic: Callable[..., str], cli: Commands) -> Verbs:
    return Verbs(lab, topic("feed", partitions=2), cli)


class _OnAThread:
    """In the place of `launch`: the job on a thread of this process, until the end of the test."""

    log = "nowhere.log"

    def __init__(self, task: LogTask, test: ExitStack) -> None:
        self.task, self.test = task, test

    def __call__(self, *_: object) -> _OnAThread:
        self.test.enter_context(self.task.run())
        return self

    def ended(self) -> bool:
        return bool(self.task.ended)

    def output(self) -> str:
        return str(self.task.ended)


def test_a_task_from_start_to_stop(verbs: Verbs, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every event once, in a chain of logs that lie end to end; paused, nothing is read."""
    feed, lab = verbs.feed, verbs.lab
    task = LogTask(lab, verbs.topic)
    with ExitStack() as test:
        monkeypatch.setattr(control, "launch", _OnAThread(task, test))
        code, told = verbs.start()
        assert code == 0, told
        assert told.startswith("Starting task lab from what the feed has...\n\nStore 1: ok (next_backup_ts =")
        assert "\nStarted! Its log: nowhere.log" in told
        code, told = verbs.start()
        assert (code, "it runs already" in told) == (Refused.exit_code, True)
        task.until_captured(feed.now)
        then = feed.now
        verbs.send()
        task.until_captured(feed.now)
        assert verbs.all_is_captured()
        # What came in before the pause is flushed by it, whenever the next flush would be due.
        verbs.send()
        code, told = verbs.at("pause")
        assert (code, f"\nPaused at {feed.now}.\n" in told) == (0, True)
        before = feed.now
        waits = verbs.send()
        code, told = verbs.at("pause")
        assert (code, "it is paused" in told) == (Refused.exit_code, True)
        code, told = verbs.start()
        assert (code, "Failed to start the task: it is paused" in told) == (Refused.exit_code, True)
        code, told = verbs.at("status")
        assert f"Store 2: ok (next_backup_ts ={before})." in told
        assert "paused, a job is at work" in told
        assert f"\n{waits} events wait\n" in told
        flushes = len(verbs.logs())
        code, told = verbs.at("resume", "--json")
        assert (code, json.loads(told)["state"]) == (0, "running")
        task.until_captured(feed.now)
        assert len(verbs.logs()) == flushes + 1  # all in one batch
        code, told = verbs.at("stop")
        assert code == 0
        assert told.startswith("Stopping task lab...\n\nStore 1: ok (next_backup_ts =")
        assert f"\nStore 2: ok (next_backup_ts ={feed.now}).\n" in told
        assert told.endswith(f"Every event was flushed.\nStopped at --lastbackupts={feed.now}.\n")
    assert isinstance(task.ended[0], dict)  # its job ended by itself
    assert verbs.all_is_captured()
    chain = verbs.logs()
    assert [b["start_ts"] for b in chain] == [0, *(b["end_ts"] for b in chain[:-1])]
    assert {(b["kind"], b["base"], b["intact"]) for b in chain} == {("log", chain[0]["backup_id"], True)}

    # Verbs on a task that is over.
    code, told = verbs.at("stop")
    assert code == Refused.exit_code
    assert "Stopping task lab...\n\nStore 1: error, task completed or not found.\n" in told
    assert "Failed to stop the task, maybe it is already stopped." in told
    code, told = verbs.at("status")
    assert (code, "Store 2: error, task completed or not found." in told) == (0, True)
    assert verbs.run("status", "nobody", "--from", str(lab.folder))[0] == NotFound.exit_code

    # The database as it was.
    code, told = verbs.at("restore", "--endts", str(then), "--to", f"delta:{lab.folder}-then", "--json")
    assert code == 0, told
    rows = lab.spark.read.format("delta").load(f"{lab.folder}-then").toArrow().to_pylist()
    assert {(row["db"], row["name"]) for row in rows} == {("shop", "orders")}
    assert sorted((row["key"], row["value"]) for row in rows) == sorted(
        feed.rows(then)["shop.orders"].items()
    )


@pytest.mark.long
def test_a_job_in_a_process_of_its_own(verbs: Verbs) -> None:
    port, feed, lab = free_port(), verbs.feed, verbs.lab
    begin = ["--master", "local[2]", "--metrics-port", str(port)]
    code, told = verbs.start(*begin)
    assert code == 0, told
    assert told.startswith("Starting task lab from what the feed has...\n\nStore 1: ok (next_backup_ts =")
    assert "\nStarted! Its log: " in told
    assert 'lakebackup_log_at_work{task="lab"} 1.0' in httpx.get(f"http://127.0.0.1:{port}").text
    code, told = verbs.start(*begin)
    assert (code, "it runs already" in told) == (Refused.exit_code, True)
    verbs.send()
    truth.until(verbs.all_is_captured, "all is captured", 150)
    code, told = verbs.at("pause")
    assert (code, f"\nPaused at {feed.now}.\n" in told) == (0, True)
    code, told = verbs.at("resume", "--json")
    assert (code, json.loads(told)["state"]) == (0, "running")
    code, told = verbs.at("stop")
    assert code == 0
    assert told.endswith(f"Every event was flushed.\nStopped at --lastbackupts={feed.now}.\n")
    truth.until(lambda: not _jobs(str(lab.folder)), "the job ends")


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
