"""Log tasks over a real broker: what they capture, their verbs, and restores of logs into topics."""

from __future__ import annotations

import json
import shutil
import threading
import uuid
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any
from unittest import mock

import httpx
import psutil
import pytest
from prometheus_client.parser import text_string_to_metric_families
from tests.support import kafka_truth as truth
from tests.support.change_feed import ChangeFeed, produce
from tests.support.chosen import chosen
from tests.support.command_line import quiet
from tests.support.faults import Killed, _InWorker, expire_leases, watched
from tests.support.kafka_truth import contents, delete_topic
from tests.support.log_tasks import LogTask, busy, captured, sent
from tests.support.made_changes import MadeChanges, delete, named, put, truncated
from tests.support.private import private_file

from lakebackup.errors import Busy, EnvironmentProblem, LakebackupError, NotFound, Refused, UsageProblem
from lakebackup.formats.logs.cipher import LogKeys
from lakebackup.plan.logs.restore import LogRestoreRequest
from lakebackup.store.writer import CatalogWriter
from lakebackup_jobs.cli import main
from lakebackup_jobs.logs.capture.job import run
from lakebackup_jobs.logs.control import verbs as control
from lakebackup_jobs.logs.control.http_api import app_of, serving
from lakebackup_jobs.logs.control.metrics import LogCollector, registry, serve
from lakebackup_jobs.logs.control.verbs import Place
from lakebackup_jobs.logs.restore import job as restore
from lakebackup_jobs.logs.task import LastError, record
from lakebackup_jobs.runtime.child import free_port
from lakebackup_jobs.targets import change_topics

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pyspark.sql import SparkSession
    from tests.support.command_line import Commands
    from tests.support.runs import Lab

    from lakebackup_jobs.demo.broker import Broker

pytestmark = [pytest.mark.spark, pytest.mark.kafka]


@pytest.fixture
def feed(topic: Callable[..., str]) -> ChangeFeed:
    made = ChangeFeed(partitions=2)
    made.topic = topic("feed", partitions=2)
    made.orders = made.create_table("shop", "orders")
    return made


def send(lab: Lab, feed: ChangeFeed, count: int = 20) -> None:
    busy(feed, feed.orders, count, begin=feed.now)
    feed.send(lab.bootstrap, feed.topic)


def logs(lab: Lab) -> list[dict[str, Any]]:
    return lab.sql("SELECT * FROM backups WHERE source = 'lab' ORDER BY number")


@pytest.mark.long
def test_what_stopping_loses_is_said_and_captured_when_it_is_started_again(
    lab: Lab, feed: ChangeFeed
) -> None:
    send(lab, feed)
    task = LogTask(lab, feed.topic, flush_every_s=3600)
    task.begin()
    with task.run():
        first = task.until_captured(feed.now)["checkpoint_ts"]
        busy(feed, feed.orders, 10)
        lost = feed.send(lab.bootstrap, feed.topic)
        done = control.stop(task.place, "lab")
    assert (done["lost"], done["checkpoint_ts"]) == ({feed.topic: lost}, first)
    assert isinstance(task.ended[0], dict)  # its job ended by itself
    with pytest.raises(Refused, match=f"reaches up to {first}; it cannot continue from 5"):
        control.start(task.place, "lab", LogTask(lab, feed.topic, lastbackupts=5).settings)
    control.start(task.place, "lab", LogTask(lab, feed.topic, lastbackupts=first).settings)
    with task.run():
        task.until_captured(feed.now)
    assert captured(str(lab.folder)) == sent(feed)


@pytest.mark.long
def test_a_task_with_an_end_is_complete_there(lab: Lab, feed: ChangeFeed) -> None:
    send(lab, feed)
    middle = feed.now
    send(lab, feed)
    task = LogTask(lab, feed.topic, endts=middle)
    task.begin()
    with task.run():
        task.until(lambda now: now["state"] == "complete", "the end is reached")
        with pytest.raises(control.Failed, match=f"it is complete up to {middle}"):
            control.start(task.place, "lab", task.settings)
    assert logs(lab)[-1]["end_ts"] == middle
    assert [r for r in captured(str(lab.folder)) if (r[6] or 0) > middle] == []


@pytest.mark.long
def test_a_job_says_at_its_start_what_was_lost_since(lab: Lab, feed: ChangeFeed) -> None:
    """Several seconds: the next job of the task must look, and it captures with Spark."""
    send(lab, feed)
    task = LogTask(lab, feed.topic)
    task.begin()
    with task.run():
        task.until_captured(feed.now)
    lost = lab.sql("SELECT backup_id, path FROM files WHERE source = 'lab' AND format = 'log-arrow-1'")[0]
    (lab.folder / lost["path"]).unlink()
    send(lab, feed)
    with task.run():
        task.until_captured(feed.now)
    assert f"{lost['path']} is missing" in lab.warnings.getvalue()
    assert [log["backup_id"] for log in logs(lab) if not log["intact"]] == [lost["backup_id"]]


@pytest.mark.long
def test_tasks_side_by_side_with_filters_and_keys(lab: Lab, feed: ChangeFeed, tmp_path: Path) -> None:
    other = feed.create_table("private", "notes")
    busy(feed, other, 5)
    send(lab, feed)
    file = private_file(tmp_path / "keys.json", json.dumps({"keys": {"k1": "A" * 43 + "="}}).encode())
    keys = LogKeys.load(str(file))
    plain = LogTask(lab, feed.topic, name="plain", codec="lz4", filters=("*.*", "!private.*"))
    sealed = LogTask(lab, feed.topic, name="sealed", encrypt=True, keys_file=str(file))
    for task in (plain, sealed):
        task.begin()
    with plain.run(), sealed.run():
        plain.until_captured(feed.now)
        sealed.until_captured(feed.now)
        with pytest.raises(Busy):
            run(plain.request(), stop=threading.Event(), spark=lab.spark, reporter=lab.reporter)
        # From the first flush on the catalog knows which tables are not meant.
        begun = {r for r in captured(str(lab.folder), "plain") if r[2] == str(other)}
        busy(feed, other, 5)
        send(lab, feed)
        plain.until_captured(feed.now)
        sealed.until_captured(feed.now)
    assert captured(str(lab.folder), "sealed", keys) == sent(feed)
    found = captured(str(lab.folder), "plain")
    assert {r for r in found if r[2] == str(other)} == begun
    assert [r for r in found if r[2] != str(other)] == [r for r in sent(feed) if r[2] != str(other)]
    control.stop(sealed.place, "sealed")
    control.start(sealed.place, "sealed", sealed.settings)
    sealed.request_changes = {}
    with sealed.run():
        send(lab, feed)
        told = sealed.until(lambda now: bool(now["detail"]), "the missing keys are told")
        assert "no key file is set" in told["detail"]


def test_topics_that_are_not_there_and_names_that_are_taken(lab: Lab, feed: ChangeFeed) -> None:
    task = LogTask(lab, "no-such-topic")
    with pytest.raises(NotFound, match=r"No topic of .* matches no-such-topic"):
        control.start(task.place, "lab", task.settings)
    truth.produce(lab.bootstrap, feed.topic, [truth.Record(0, b"k", b"v", (), 1_600_000_000_000)])
    lab.backup(feed.topic)
    with pytest.raises(Refused, match="of another kind: topics"):
        control.start(task.place, "lab", LogTask(lab, feed.topic).settings)


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
        where = ["--bootstrap-server", self.lab.bootstrap, "--pattern", self.topic]
        return self.run(
            "start", "lab", *where, "--repo", str(self.lab.folder), "--flush-every", "200ms", *more
        )

    def at(self, verb: str, *more: str) -> tuple[int, str]:
        return self.run(verb, "lab", "--repo", str(self.lab.folder), *more)

    def all_is_captured(self) -> bool:
        return captured(str(self.lab.folder)) == sent(self.feed)


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
        assert told.startswith(
            "Starting task lab from the start of the feed...\n\nStore 1: ok (next_backup_ts ="
        )
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
        flushes = len(logs(lab))
        code, told = verbs.at("resume", "--json")
        assert (code, json.loads(told)["state"]) == (0, "running")
        task.until_captured(feed.now)
        assert len(logs(lab)) == flushes + 1  # all in one batch
        code, told = verbs.at("stop")
        assert code == 0
        assert told.startswith("Stopping task lab...\n\nStore 1: ok (next_backup_ts =")
        assert f"\nStore 2: ok (next_backup_ts ={feed.now}).\n" in told
        assert told.endswith(f"Every event was flushed.\nStopped at --startts={feed.now}.\n")
    assert isinstance(task.ended[0], dict)  # its job ended by itself
    assert verbs.all_is_captured()
    chain = logs(lab)
    assert [b["start_ts"] for b in chain] == [0, *(b["end_ts"] for b in chain[:-1])]
    assert {(b["kind"], b["base"], b["intact"]) for b in chain} == {("log", chain[0]["backup_id"], True)}

    # Verbs on a task that is over.
    code, told = verbs.at("stop")
    assert code == Refused.exit_code
    assert "Stopping task lab...\n\nStore 1: error, task completed or not found.\n" in told
    assert "Failed to stop the task, maybe it is already stopped." in told
    code, told = verbs.at("status")
    assert (code, "Store 2: error, task completed or not found." in told) == (0, True)
    assert verbs.run("status", "nobody", "--repo", str(lab.folder))[0] == NotFound.exit_code

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
    assert told.startswith("Starting task lab from the start of the feed...\n\nStore 1: ok (next_backup_ts =")
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
    assert told.endswith(f"Every event was flushed.\nStopped at --startts={feed.now}.\n")
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


def started(lab: Lab, topic: str, **changes: Any) -> LogTask:
    """A task that is to run, without a job."""
    made = LogTask(lab, topic, **changes)
    made.begin()
    return made


@pytest.fixture
def api(lab: Lab) -> Iterator[httpx.Client]:
    lab.make_catalog()
    with (
        serving(app_of(Place(str(lab.folder), None, {}), "s3cret"), "127.0.0.1", 0) as (url, _),
        httpx.Client(base_url=url, headers={"Authorization": "Bearer s3cret"}, timeout=60) as client,
    ):
        yield client


def samples(text: str) -> dict[tuple[str, str, str], float]:
    return {
        (s.name, s.labels["task"], s.labels.get("reason", "")): s.value
        for family in text_string_to_metric_families(text)
        for s in family.samples
        if "task" in s.labels
    }


@pytest.mark.long
def test_verbs_over_http(api: httpx.Client, lab: Lab, topic: Callable[..., str]) -> None:
    name, feed = topic("feed", partitions=2), ChangeFeed(partitions=2)
    busy(feed, feed.create_table("shop", "orders"), 10)
    feed.send(lab.bootstrap, name)
    settings = {"feed": "br", "bootstrap": lab.bootstrap, "topics": [name], "flush_every_s": 0.2}
    assert api.get("/log/tasks").json() == []
    made = api.post("/log/tasks", json={"name": "lab", "settings": settings})
    assert (made.status_code, made.json()["state"], made.json()["topics_now"]) == (201, "running", [name])
    job = LogTask(lab, name)
    with job.run():
        job.until_captured(feed.now)
        assert api.post("/log/tasks/lab/pause").json()["state"] == "paused"
        again = api.post("/log/tasks", json={"name": "lab", "settings": settings})
        assert (again.status_code, again.json()["error"]) == (409, "Failed")
        assert again.json()["task"]["stores"][0]["ok"]
        assert api.post("/log/tasks/lab/resume").json()["state"] == "running"
        text = api.get("/metrics").text
        assert 'lakebackup_status{source="lab",status="UNVERIFIED"} 1.0' in text
        found = samples(text)
        assert found["lakebackup_log_checkpoint_ts", "lab", ""] == feed.now
        assert found["lakebackup_log_at_work", "lab", ""] == 1
        assert found["lakebackup_log_events_total", "lab", ""] > 20
        assert found["lakebackup_log_last_success_timestamp_seconds", "lab", ""] > 1.6e9
        # What cannot be read pauses the task, which says where it is and goes no further.
        produce(lab.bootstrap, name, [(1, b"no event")])
        job.until(lambda now: bool(now["detail"]), "the damage is told")
        told = api.get("/log/tasks/lab").json()
        assert (told["state"], told["errors"], told["checkpoint_ts"]) == ("paused", 1, feed.now)
        assert f"{name}, partition 1, offset {len(feed.sent[1])}" in told["detail"]
        assert told["stores"][0]["error"].startswith("task paused itself: ")
        assert samples(api.get("/metrics").text)["lakebackup_log_paused", "lab", "error"] == 1
        stopped = api.post("/log/tasks/lab/stop")
        assert (stopped.json()["state"], stopped.json()["lost"]) == ("stopped", {name: 1})
    assert [t["task"] for t in api.get("/log/tasks").json()] == ["lab"]
    assert api.post("/log/tasks/lab/stop").status_code == 409
    assert api.get("/log/tasks/nobody").status_code == 404
    bad = {"name": "x", "settings": settings | {"filters": ["nodot"]}}
    assert (api.post("/log/tasks", json=bad).status_code, bad["name"]) == (422, "x")
    assert api.post("/log/tasks", json={"name": "x", "settings": {"feed": "csv"}}).status_code == 422


def test_the_token_is_asked_for(api: httpx.Client) -> None:
    for header in ({"Authorization": "Bearer other"}, {"Authorization": ""}):
        for path in ("/log/tasks", "/metrics", "/openapi.json"):
            assert api.get(path, headers=header).status_code == 401
        assert api.post("/log/tasks/lab/stop", headers=header).status_code == 401


def test_without_a_token_pages_in_a_browser_get_nothing(lab: Lab) -> None:
    lab.make_catalog()
    with serving(app_of(Place(str(lab.folder), None, {}), None), "127.0.0.1", 0) as (url, runs):
        assert httpx.get(f"{url}/log/tasks").json() == []
        elsewhere = httpx.post(f"{url}/log/tasks/lab/stop", headers={"Origin": "https://example.org"})
        assert elsewhere.status_code == 403
        assert runs()
        port = int(url.rpartition(":")[2])
        with pytest.raises(EnvironmentProblem, match=f"Cannot listen at 127.0.0.1:{port}"):
            serving(app_of(Place(str(lab.folder), None, {}), None), "127.0.0.1", port).__enter__()
    code = main(["serve", "http", "--repo", str(lab.folder), "--host", "0.0.0.0"])
    assert code == UsageProblem.exit_code


def test_why_a_task_is_paused_also_when_the_catalog_does_not_know(lab: Lab) -> None:
    made = started(lab, "feed")
    last_error = LastError()
    collector = LogCollector(str(lab.folder), None, "lab", last_error)
    with serve(registry(collector), "127.0.0.1", 0) as port:

        def paused() -> dict[str, float]:
            found = samples(httpx.get(f"http://127.0.0.1:{port}/metrics").text)
            return {reason: value for (name, _, reason), value in found.items() if name.endswith("_paused")}

        assert paused() == {"asked": 0, "error": 0}
        last_error.text = "the disk is full"
        assert paused() == {"asked": 0, "error": 1}
        last_error.text = None
        record(str(lab.folder), None, "lab", "paused", made.settings)
        assert paused() == {"asked": 1, "error": 0}
        record(str(lab.folder), None, "lab", "paused", made.settings, "the disk is full")
        assert paused() == {"asked": 0, "error": 1}


ORDERS = [put(1, b"a", 10, b"1"), put(1, b"b", 11, b"2"), put(1, b"a", 12, b"3"), delete(1, b"c", 13)]
ITEMS = [put(2, b"gone", 14, b"x"), truncated(2, 15), put(2, b"", 16, b"")]


class Topics:
    def __init__(self, spark: SparkSession, broker: Broker, folder: Path) -> None:
        self.spark, self.broker, self.folder = spark, broker, folder
        self.prefix = f"p{uuid.uuid4().hex[:8]}."
        self.made = MadeChanges(folder, CatalogWriter(spark, str(folder)), domain="ms")

    def restore(self, **asked: Any) -> dict[str, Any]:
        request = LogRestoreRequest(
            destination=str(self.folder),
            name="shop",
            target=f"kafka://{self.broker.bootstrap}?prefix={self.prefix}&partitions=2",
            **asked,
        )
        return restore.run(request, spark=self.spark, reporter=quiet())

    def held(self, name: str) -> list[tuple[bytes | None, bytes | None, Any, int]]:
        """Key, value, commit ts and time of each record of a table's topic."""
        found = contents(self.broker.bootstrap, f"{self.prefix}shop.{name}").values()
        rows = [
            (record.key, record.value, dict(record.headers)["commit_ts"], record.timestamp)
            for records in found
            for record in records
        ]
        return sorted(rows, key=lambda row: (row[3], row[0]))


@pytest.fixture
def topics(spark: SparkSession, broker: Broker, empty_catalog: Path, tmp_path: Path) -> Topics:
    shutil.copytree(empty_catalog, tmp_path / "backups" / "catalog")
    made = Topics(spark, broker, tmp_path / "backups")
    made.made.flush([*ORDERS, *ITEMS], 20, names=[named(1, "orders", 5), named(2, "items", 5)])
    return made


def test_a_record_a_key_and_what_goes_on(topics: Topics) -> None:
    topics.restore()
    assert topics.held("orders") == [
        (b"b", b"2", b"11", 11),
        (b"a", b"3", b"12", 12),
        (b"c", None, b"13", 13),
    ]
    assert topics.held("items") == [(b"", b"", b"16", 16)]
    assert topics.restore()["done_before"]
    topics.made.flush([put(1, b"b", 25, b"4"), delete(1, b"a", 26)], 30)
    with pytest.raises(Refused, match=r"in \(0, 20\]"):
        topics.restore(end_ts=30)
    topics.restore(start_ts=20, end_ts=30)
    assert [row[:2] for row in topics.held("orders")][3:] == [(b"b", b"4"), (b"a", None)]
    topics.made.flush([truncated(1, 35)], 40)
    with pytest.raises(Refused, match="emptied"):
        topics.restore(start_ts=30, end_ts=40)


@pytest.mark.long
def test_topics_that_were_deleted_are_not_taken_for_restored(topics: Topics) -> None:
    topics.restore()
    delete_topic(topics.broker.bootstrap, f"{topics.prefix}shop.orders")
    with pytest.raises(Refused, match=r"deleted or recreated: p\w+\.shop\.orders"):
        topics.restore()
    delete_topic(topics.broker.bootstrap, f"{topics.prefix}shop.items")
    topics.made.flush([put(1, b"b", 25, b"4")], 30)
    with pytest.raises(Refused, match="filled up to 20 were deleted"):
        topics.restore(start_ts=20, end_ts=30)
    topics.restore(end_ts=30)
    assert [row[:2] for row in topics.held("orders")] == [(b"a", b"3"), (b"c", None), (b"b", b"4")]
    assert topics.held("items") == [(b"", b"", b"16", 16)]
    assert topics.restore(end_ts=30)["done_before"]


@pytest.mark.parametrize(
    "at",
    chosen(
        [
            "put staged.json",
            "put held.json",
            "commit transaction",
            "after transaction",
            "put held.json #2",
            "put held.json #3",
        ],
        always=["after transaction", "put held.json #3"],
    ),
)
def test_what_is_cut_off_is_gone_on_with(topics: Topics, tmp_path: Path, at: str) -> None:
    real = change_topics.ProduceJob
    with watched(tmp_path / "steps", kill_at=at) as steps, suppress(Killed, LakebackupError):
        inside = mock.patch.object(
            change_topics, "ProduceJob", lambda **named: _InWorker(steps, real(**named))
        )
        with inside:
            topics.restore()
    assert steps.dead
    expire_leases(topics.folder)
    if "transaction" in at:
        with pytest.raises(Refused, match=r"in \(0, 20\] into these topics was cut off"):
            topics.restore(end_ts=18)
    topics.restore()
    left = {found.name for found in topics.folder.glob("restores/log-*/**/*")}
    assert not left & {"staged.json"}
    assert not [name for name in left if name.endswith(".parquet")]
    assert [row[0] for row in topics.held("orders")] == [b"b", b"a", b"c"]
    assert [row[0] for row in topics.held("items")] == [b""]
