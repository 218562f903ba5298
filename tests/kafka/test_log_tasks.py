"""Log tasks over a real broker: captures, the tasks' verbs and metrics, and restores of logs into topics."""

from __future__ import annotations

import json
import shutil
import threading
import uuid
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import httpx
import psutil
import pytest
from prometheus_client.parser import text_string_to_metric_families
from tests.support import kafka_truth as truth
from tests.support.change_feed import ChangeFeed, produce
from tests.support.command_line import quiet
from tests.support.kafka_truth import contents, delete_topic
from tests.support.log_tasks import LogTask, busy, captured, sent_records
from tests.support.made_changes import MadeChanges, delete, put_change, table_name_row, truncated
from tests.support.private import private_file

from lakebackup.errors import Busy, EnvironmentProblem, NotFound, Refused, UsageProblem
from lakebackup.formats.logs.cipher import LogKeys
from lakebackup.plan.logs.restore import LogRestoreRequest
from lakebackup.store.writer import CatalogWriter
from lakebackup_jobs.cli import main
from lakebackup_jobs.logs.capture.job import run
from lakebackup_jobs.logs.control import verbs as control
from lakebackup_jobs.logs.control.http_api import app_of, serving
from lakebackup_jobs.logs.control.metrics import LogCollector, registry, serve
from lakebackup_jobs.logs.control.verbs import LogTasks
from lakebackup_jobs.logs.restore import job as restore
from lakebackup_jobs.logs.task import LastError, record
from lakebackup_jobs.runtime.child import free_port

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pyspark.sql import SparkSession
    from tests.support.command_line import Commands
    from tests.support.runs import Lab

    from lakebackup_jobs.demo.broker import Broker

pytestmark = [pytest.mark.spark, pytest.mark.kafka]


@pytest.fixture
def feed(topic: Callable[..., str]) -> ChangeFeed:
    change_feed = ChangeFeed(partitions=2)
    change_feed.topic = topic("feed", partitions=2)
    change_feed.orders = change_feed.create_table("shop", "orders")
    return change_feed


def send(lab: Lab, feed: ChangeFeed, count: int = 20) -> None:
    busy(feed, feed.orders, count, begin=feed.last_ts)
    feed.send(lab.bootstrap, feed.topic)


def logs(lab: Lab) -> list[dict[str, Any]]:
    return lab.sql("SELECT * FROM backups WHERE source = 'lab' ORDER BY number")


@pytest.mark.long
def test_stop_reports_lost_events_and_the_next_start_captures_them(lab: Lab, feed: ChangeFeed) -> None:
    send(lab, feed)
    task = LogTask(lab, feed.topic, flush_every_s=3600)
    task.begin()
    with task.run():
        first_checkpoint = task.until_captured(feed.last_ts)["checkpoint_ts"]
        busy(feed, feed.orders, 10)
        event_count = feed.send(lab.bootstrap, feed.topic)
        status = control.stop(task.catalog_place, "lab")
    assert (status["lost"], status["checkpoint_ts"]) == ({feed.topic: event_count}, first_checkpoint)
    assert isinstance(task.outcomes[0], dict)  # the job ended without an error
    with pytest.raises(Refused, match=f"reaches up to {first_checkpoint}; it cannot continue from 5"):
        control.start(task.catalog_place, "lab", LogTask(lab, feed.topic, lastbackupts=5).settings)
    control.start(task.catalog_place, "lab", LogTask(lab, feed.topic, lastbackupts=first_checkpoint).settings)
    with task.run():
        task.until_captured(feed.last_ts)
    assert captured(str(lab.folder)) == sent_records(feed)


@pytest.mark.long
def test_a_task_with_an_end_completes_there(lab: Lab, feed: ChangeFeed) -> None:
    send(lab, feed)
    end_ts = feed.last_ts
    send(lab, feed)
    task = LogTask(lab, feed.topic, endts=end_ts)
    task.begin()
    with task.run():
        task.until(lambda task_status: task_status["state"] == "complete", "the end is reached")
        with pytest.raises(control.Failed, match=f"it is complete up to {end_ts}"):
            control.start(task.catalog_place, "lab", task.settings)
    assert logs(lab)[-1]["end_ts"] == end_ts
    assert [record for record in captured(str(lab.folder)) if (record[6] or 0) > end_ts] == []


@pytest.mark.long
def test_a_job_reports_a_lost_file_at_its_start(lab: Lab, feed: ChangeFeed) -> None:
    """Takes several seconds: only the task's next job checks for lost files, and it captures with Spark."""
    send(lab, feed)
    task = LogTask(lab, feed.topic)
    task.begin()
    with task.run():
        task.until_captured(feed.last_ts)
    file = lab.sql("SELECT backup_id, path FROM files WHERE source = 'lab' AND format = 'log-arrow-1'")[0]
    (lab.folder / file["path"]).unlink()
    send(lab, feed)
    with task.run():
        task.until_captured(feed.last_ts)
    assert f"{file['path']} is missing" in lab.warnings.getvalue()
    assert [log["backup_id"] for log in logs(lab) if not log["intact"]] == [file["backup_id"]]


@pytest.mark.long
def test_two_tasks_of_one_feed_with_a_filter_and_with_encryption(
    lab: Lab, feed: ChangeFeed, tmp_path: Path
) -> None:
    private_table = feed.create_table("private", "notes")
    busy(feed, private_table, 5)
    send(lab, feed)
    keys_file = private_file(tmp_path / "keys.json", json.dumps({"keys": {"k1": "A" * 43 + "="}}).encode())
    keys = LogKeys.load(str(keys_file))
    filtered_task = LogTask(lab, feed.topic, name="plain", codec="lz4", filters=("*.*", "!private.*"))
    encrypted_task = LogTask(lab, feed.topic, name="sealed", encrypt=True, keys_file=str(keys_file))
    for task in (filtered_task, encrypted_task):
        task.begin()
    with filtered_task.run(), encrypted_task.run():
        filtered_task.until_captured(feed.last_ts)
        encrypted_task.until_captured(feed.last_ts)
        with pytest.raises(Busy):
            run(filtered_task.request(), stop=threading.Event(), spark=lab.spark, reporter=lab.reporter)
        # After the first flush the catalog knows which tables are outside the filter.
        first_records = {r for r in captured(str(lab.folder), "plain") if r[2] == str(private_table)}
        busy(feed, private_table, 5)
        send(lab, feed)
        filtered_task.until_captured(feed.last_ts)
        encrypted_task.until_captured(feed.last_ts)
    assert captured(str(lab.folder), "sealed", keys) == sent_records(feed)
    records = captured(str(lab.folder), "plain")
    assert {r for r in records if r[2] == str(private_table)} == first_records
    assert [r for r in records if r[2] != str(private_table)] == [
        r for r in sent_records(feed) if r[2] != str(private_table)
    ]
    control.stop(encrypted_task.catalog_place, "sealed")
    control.start(encrypted_task.catalog_place, "sealed", encrypted_task.settings)
    encrypted_task.request_changes = {}
    with encrypted_task.run():
        send(lab, feed)
        status = encrypted_task.until(
            lambda task_status: bool(task_status["detail"]), "the missing keys are told"
        )
        assert "no key file is set" in status["detail"]


def test_missing_topics_and_taken_names_are_refused(lab: Lab, feed: ChangeFeed) -> None:
    task = LogTask(lab, "no-such-topic")
    with pytest.raises(NotFound, match=r"No topic of .* matches no-such-topic"):
        control.start(task.catalog_place, "lab", task.settings)
    truth.produce(lab.bootstrap, feed.topic, [truth.Record(0, b"k", b"v", (), 1_600_000_000_000)])
    lab.backup(feed.topic)
    with pytest.raises(Refused, match="of another kind: topics"):
        control.start(task.catalog_place, "lab", LogTask(lab, feed.topic).settings)


@dataclass
class Verbs:
    """A task `lab` over a feed of two partitions, and the verbs that a user runs on it."""

    lab: Lab
    topic: str
    cli: Commands
    feed: ChangeFeed = field(default_factory=lambda: ChangeFeed(partitions=2))

    def __post_init__(self) -> None:
        self.lab.make_catalog()
        self.orders = self.feed.create_table("shop", "orders")
        self.send()

    def send(self) -> int:
        """Send twenty more transactions. Returns the number of their events."""
        busy(self.feed, self.orders, 20, begin=self.feed.last_ts)
        return self.feed.send(self.lab.bootstrap, self.topic)

    def run(self, *arguments: str) -> tuple[int, str]:
        exit_code, stdout, stderr = self.cli.run("log", *arguments)
        return exit_code, stdout + stderr

    def start(self, *flags: str) -> tuple[int, str]:
        feed_flags = ["--bootstrap-server", self.lab.bootstrap, "--pattern", self.topic]
        return self.run(
            "start", "lab", *feed_flags, "--repo", str(self.lab.folder), "--flush-every", "200ms", *flags
        )

    def run_verb(self, verb: str, *flags: str) -> tuple[int, str]:
        return self.run(verb, "lab", "--repo", str(self.lab.folder), *flags)

    def all_is_captured(self) -> bool:
        return captured(str(self.lab.folder)) == sent_records(self.feed)


@pytest.fixture
def verbs(lab: Lab, topic: Callable[..., str], cli: Commands) -> Verbs:
    return Verbs(lab, topic("feed", partitions=2), cli)


class _ThreadJob:
    """Replaces `launch`: runs the job on a thread of the test process until the end of the test."""

    log = "nowhere.log"

    def __init__(self, task: LogTask, exit_stack: ExitStack) -> None:
        self.task, self.exit_stack = task, exit_stack

    def __call__(self, *_: object) -> _ThreadJob:
        self.exit_stack.enter_context(self.task.run())
        return self

    def has_ended(self) -> bool:
        return bool(self.task.outcomes)

    def output(self) -> str:
        return str(self.task.outcomes)


def test_the_verbs_of_a_task_from_start_to_stop(verbs: Verbs, monkeypatch: pytest.MonkeyPatch) -> None:
    """The chain of logs has no gaps and holds each event once. A paused task reads nothing."""
    feed, lab = verbs.feed, verbs.lab
    task = LogTask(lab, verbs.topic)
    with ExitStack() as exit_stack:
        monkeypatch.setattr(control, "launch", _ThreadJob(task, exit_stack))
        exit_code, output = verbs.start()
        assert exit_code == 0, output
        assert output.startswith(
            "Starting task lab from the start of the feed...\n\nStore 1: ok (next_backup_ts ="
        )
        assert "\nStarted! Its log: nowhere.log" in output
        exit_code, output = verbs.start()
        assert (exit_code, "it runs already" in output) == (Refused.exit_code, True)
        task.until_captured(feed.last_ts)
        restore_ts = feed.last_ts
        verbs.send()
        task.until_captured(feed.last_ts)
        assert verbs.all_is_captured()
        # A pause first flushes the events that arrived before it, also if no flush is due yet.
        verbs.send()
        exit_code, output = verbs.run_verb("pause")
        assert (exit_code, f"\nPaused at {feed.last_ts}.\n" in output) == (0, True)
        paused_ts = feed.last_ts
        waiting_count = verbs.send()
        exit_code, output = verbs.run_verb("pause")
        assert (exit_code, "it is paused" in output) == (Refused.exit_code, True)
        exit_code, output = verbs.start()
        assert (exit_code, "Failed to start the task: it is paused" in output) == (Refused.exit_code, True)
        exit_code, output = verbs.run_verb("status")
        assert f"Store 2: ok (next_backup_ts ={paused_ts})." in output
        assert "paused, a job is at work" in output
        assert f"\n{waiting_count} events wait\n" in output
        flush_count = len(logs(lab))
        exit_code, output = verbs.run_verb("resume", "--json")
        assert (exit_code, json.loads(output)["state"]) == (0, "running")
        task.until_captured(feed.last_ts)
        assert len(logs(lab)) == flush_count + 1  # all in one batch
        exit_code, output = verbs.run_verb("stop")
        assert exit_code == 0
        assert output.startswith("Stopping task lab...\n\nStore 1: ok (next_backup_ts =")
        assert f"\nStore 2: ok (next_backup_ts ={feed.last_ts}).\n" in output
        assert output.endswith(f"Every event was flushed.\nStopped at --startts={feed.last_ts}.\n")
    assert isinstance(task.outcomes[0], dict)  # the job ended without an error
    assert verbs.all_is_captured()
    chain = logs(lab)
    assert [backup["start_ts"] for backup in chain] == [0, *(backup["end_ts"] for backup in chain[:-1])]
    assert {(backup["kind"], backup["base"], backup["intact"]) for backup in chain} == {
        ("log", chain[0]["backup_id"], True)
    }

    # The verbs refuse a stopped task.
    exit_code, output = verbs.run_verb("stop")
    assert exit_code == Refused.exit_code
    assert "Stopping task lab...\n\nStore 1: error, task completed or not found.\n" in output
    assert "Failed to stop the task, maybe it is already stopped." in output
    exit_code, output = verbs.run_verb("status")
    assert (exit_code, "Store 2: error, task completed or not found." in output) == (0, True)
    assert verbs.run("status", "nobody", "--repo", str(lab.folder))[0] == NotFound.exit_code

    # A restore gives the database's rows at an earlier ts.
    exit_code, output = verbs.run_verb(
        "restore", "--endts", str(restore_ts), "--to", f"delta:{lab.folder}-then", "--json"
    )
    assert exit_code == 0, output
    rows = lab.spark.read.format("delta").load(f"{lab.folder}-then").toArrow().to_pylist()
    assert {(row["db"], row["name"]) for row in rows} == {("shop", "orders")}
    assert sorted((row["key"], row["value"]) for row in rows) == sorted(
        feed.rows(restore_ts)["shop.orders"].items()
    )


@pytest.mark.long
def test_a_job_in_a_process_of_its_own(verbs: Verbs) -> None:
    port, feed, lab = free_port(), verbs.feed, verbs.lab
    start_flags = ["--master", "local[2]", "--metrics-port", str(port)]
    exit_code, output = verbs.start(*start_flags)
    assert exit_code == 0, output
    assert output.startswith(
        "Starting task lab from the start of the feed...\n\nStore 1: ok (next_backup_ts ="
    )
    assert "\nStarted! Its log: " in output
    assert 'lakebackup_log_at_work{task="lab"} 1.0' in httpx.get(f"http://127.0.0.1:{port}").text
    exit_code, output = verbs.start(*start_flags)
    assert (exit_code, "it runs already" in output) == (Refused.exit_code, True)
    verbs.send()
    truth.until(verbs.all_is_captured, "all is captured", 150)
    exit_code, output = verbs.run_verb("pause")
    assert (exit_code, f"\nPaused at {feed.last_ts}.\n" in output) == (0, True)
    exit_code, output = verbs.run_verb("resume", "--json")
    assert (exit_code, json.loads(output)["state"]) == (0, "running")
    exit_code, output = verbs.run_verb("stop")
    assert exit_code == 0
    assert output.endswith(f"Every event was flushed.\nStopped at --startts={feed.last_ts}.\n")
    truth.until(lambda: not _jobs(str(lab.folder)), "the job ends")


@pytest.fixture(autouse=True)
def no_job_is_left(lab: Lab) -> Iterator[None]:
    yield
    for job in _jobs(str(lab.folder)):
        job.kill()


def _jobs(folder: str) -> list[psutil.Process]:
    processes = psutil.process_iter(["cmdline", "status"])
    return [
        process
        for process in processes
        if folder in (process.info["cmdline"] or []) and process.info["status"] != psutil.STATUS_ZOMBIE
    ]


def create_task(lab: Lab, topic: str, **changes: Any) -> LogTask:
    """Record a task in the state running, without a job."""
    task = LogTask(lab, topic, **changes)
    task.begin()
    return task


@pytest.fixture
def api(lab: Lab) -> Iterator[httpx.Client]:
    lab.make_catalog()
    with (
        serving(app_of(LogTasks(str(lab.folder), None, {}), "s3cret"), "127.0.0.1", 0) as (url, _),
        httpx.Client(base_url=url, headers={"Authorization": "Bearer s3cret"}, timeout=60) as client,
    ):
        yield client


def samples(text: str) -> dict[tuple[str, str, str], float]:
    return {
        (sample.name, sample.labels["task"], sample.labels.get("reason", "")): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
        if "task" in sample.labels
    }


@pytest.mark.long
def test_verbs_over_http(api: httpx.Client, lab: Lab, topic: Callable[..., str]) -> None:
    name, feed = topic("feed", partitions=2), ChangeFeed(partitions=2)
    busy(feed, feed.create_table("shop", "orders"), 10)
    feed.send(lab.bootstrap, name)
    settings = {"feed": "br", "bootstrap": lab.bootstrap, "topics": [name], "flush_every_s": 0.2}
    assert api.get("/log/tasks").json() == []
    response = api.post("/log/tasks", json={"name": "lab", "settings": settings})
    assert (response.status_code, response.json()["state"], response.json()["topics_now"]) == (
        201,
        "running",
        [name],
    )
    job = LogTask(lab, name)
    with job.run():
        job.until_captured(feed.last_ts)
        assert api.post("/log/tasks/lab/pause").json()["state"] == "paused"
        second_response = api.post("/log/tasks", json={"name": "lab", "settings": settings})
        assert (second_response.status_code, second_response.json()["error"]) == (409, "Failed")
        assert second_response.json()["task"]["stores"][0]["ok"]
        assert api.post("/log/tasks/lab/resume").json()["state"] == "running"
        metrics = api.get("/metrics").text
        assert 'lakebackup_status{source="lab",status="UNVERIFIED"} 1.0' in metrics
        samples_by_name = samples(metrics)
        assert samples_by_name["lakebackup_log_checkpoint_ts", "lab", ""] == feed.last_ts
        assert samples_by_name["lakebackup_log_at_work", "lab", ""] == 1
        assert samples_by_name["lakebackup_log_events_total", "lab", ""] > 20
        assert samples_by_name["lakebackup_log_last_success_timestamp_seconds", "lab", ""] > 1.6e9
        # An unreadable event pauses the task. Its status names the event, and the checkpoint stays.
        produce(lab.bootstrap, name, [(1, b"no event")])
        job.until(lambda task_status: bool(task_status["detail"]), "the damage is told")
        status = api.get("/log/tasks/lab").json()
        assert (status["state"], status["errors"], status["checkpoint_ts"]) == ("paused", 1, feed.last_ts)
        assert f"{name}, partition 1, offset {len(feed.delivered_events[1])}" in status["detail"]
        assert status["stores"][0]["error"].startswith("task paused itself: ")
        assert samples(api.get("/metrics").text)["lakebackup_log_paused", "lab", "error"] == 1
        stopped = api.post("/log/tasks/lab/stop")
        assert (stopped.json()["state"], stopped.json()["lost"]) == ("stopped", {name: 1})
    assert [task["task"] for task in api.get("/log/tasks").json()] == ["lab"]
    assert api.post("/log/tasks/lab/stop").status_code == 409
    assert api.get("/log/tasks/nobody").status_code == 404
    bad_task = {"name": "x", "settings": settings | {"filters": ["nodot"]}}
    assert (api.post("/log/tasks", json=bad_task).status_code, bad_task["name"]) == (422, "x")
    assert api.post("/log/tasks", json={"name": "x", "settings": {"feed": "csv"}}).status_code == 422


def test_requests_without_the_token_are_refused(api: httpx.Client) -> None:
    for header in ({"Authorization": "Bearer other"}, {"Authorization": ""}):
        for path in ("/log/tasks", "/metrics", "/openapi.json"):
            assert api.get(path, headers=header).status_code == 401
        assert api.post("/log/tasks/lab/stop", headers=header).status_code == 401


def test_without_a_token_requests_of_browser_pages_are_refused(lab: Lab) -> None:
    lab.make_catalog()
    with serving(app_of(LogTasks(str(lab.folder), None, {}), None), "127.0.0.1", 0) as (url, is_serving):
        assert httpx.get(f"{url}/log/tasks").json() == []
        response = httpx.post(f"{url}/log/tasks/lab/stop", headers={"Origin": "https://example.org"})
        assert response.status_code == 403
        assert is_serving()
        port = int(url.rpartition(":")[2])
        with pytest.raises(EnvironmentProblem, match=f"Cannot listen at 127.0.0.1:{port}"):
            serving(app_of(LogTasks(str(lab.folder), None, {}), None), "127.0.0.1", port).__enter__()
    exit_code = main(["serve", "http", "--repo", str(lab.folder), "--host", "0.0.0.0"])
    assert exit_code == UsageProblem.exit_code


def test_metrics_report_why_a_task_is_paused(lab: Lab) -> None:
    task = create_task(lab, "feed")
    last_error = LastError()
    collector = LogCollector(str(lab.folder), None, "lab", last_error)
    with serve(registry(collector), "127.0.0.1", 0) as port:

        def paused() -> dict[str, float]:
            paused_samples = samples(httpx.get(f"http://127.0.0.1:{port}/metrics").text)
            return {
                reason: value
                for (name, _, reason), value in paused_samples.items()
                if name.endswith("_paused")
            }

        assert paused() == {"asked": 0, "error": 0}
        last_error.text = "the disk is full"
        assert paused() == {"asked": 0, "error": 1}
        last_error.text = None
        record(str(lab.folder), None, "lab", "paused", task.settings)
        assert paused() == {"asked": 1, "error": 0}
        record(str(lab.folder), None, "lab", "paused", task.settings, "the disk is full")
        assert paused() == {"asked": 0, "error": 1}


ORDERS = [
    put_change(1, b"a", 10, b"1"),
    put_change(1, b"b", 11, b"2"),
    put_change(1, b"a", 12, b"3"),
    delete(1, b"c", 13),
]
ITEMS = [put_change(2, b"gone", 14, b"x"), truncated(2, 15), put_change(2, b"", 16, b"")]


class Topics:
    def __init__(self, spark: SparkSession, broker: Broker, folder: Path) -> None:
        self.spark, self.broker, self.folder = spark, broker, folder
        self.prefix = f"p{uuid.uuid4().hex[:8]}."
        self.changes = MadeChanges(folder, CatalogWriter(spark, str(folder)), domain="ms")

    def restore(self, **options: Any) -> dict[str, Any]:
        request = LogRestoreRequest(
            destination=str(self.folder),
            name="shop",
            target=f"kafka://{self.broker.bootstrap}?prefix={self.prefix}&partitions=2",
            **options,
        )
        return restore.run(request, spark=self.spark, reporter=quiet())

    def records(self, name: str) -> list[tuple[bytes | None, bytes | None, Any, int]]:
        """The key, value, commit ts and time of each record in a table's topic, by time and key."""
        partitions = contents(self.broker.bootstrap, f"{self.prefix}shop.{name}").values()
        rows = [
            (record.key, record.value, dict(record.headers)["commit_ts"], record.timestamp)
            for records in partitions
            for record in records
        ]
        return sorted(rows, key=lambda row: (row[3], row[0]))


@pytest.fixture
def topics(spark: SparkSession, broker: Broker, empty_catalog: Path, tmp_path: Path) -> Topics:
    shutil.copytree(empty_catalog, tmp_path / "backups" / "catalog")
    topics_lab = Topics(spark, broker, tmp_path / "backups")
    topics_lab.changes.flush(
        [*ORDERS, *ITEMS], 20, names=[table_name_row(1, "orders", 5), table_name_row(2, "items", 5)]
    )
    return topics_lab


def test_a_restore_writes_one_record_for_each_key_and_can_be_continued(topics: Topics) -> None:
    topics.restore()
    assert topics.records("orders") == [
        (b"b", b"2", b"11", 11),
        (b"a", b"3", b"12", 12),
        (b"c", None, b"13", 13),
    ]
    assert topics.records("items") == [(b"", b"", b"16", 16)]
    assert topics.restore()["done_before"]
    topics.changes.flush([put_change(1, b"b", 25, b"4"), delete(1, b"a", 26)], 30)
    with pytest.raises(Refused, match=r"in \(0, 20\]"):
        topics.restore(end_ts=30)
    topics.restore(start_ts=20, end_ts=30)
    assert [row[:2] for row in topics.records("orders")][3:] == [(b"b", b"4"), (b"a", None)]
    topics.changes.flush([truncated(1, 35)], 40)
    with pytest.raises(Refused, match="emptied"):
        topics.restore(start_ts=30, end_ts=40)


@pytest.mark.long
def test_deleted_target_topics_do_not_count_as_restored(topics: Topics) -> None:
    topics.restore()
    delete_topic(topics.broker.bootstrap, f"{topics.prefix}shop.orders")
    with pytest.raises(Refused, match=r"deleted or recreated: p\w+\.shop\.orders"):
        topics.restore()
    delete_topic(topics.broker.bootstrap, f"{topics.prefix}shop.items")
    topics.changes.flush([put_change(1, b"b", 25, b"4")], 30)
    with pytest.raises(Refused, match="filled up to 20 were deleted"):
        topics.restore(start_ts=20, end_ts=30)
    topics.restore(end_ts=30)
    assert [row[:2] for row in topics.records("orders")] == [(b"a", b"3"), (b"c", None), (b"b", b"4")]
    assert topics.records("items") == [(b"", b"", b"16", 16)]
    assert topics.restore(end_ts=30)["done_before"]
