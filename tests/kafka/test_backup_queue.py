"""Backups of an engine's queues against a real broker: what is stored of which message, what is refused."""

from __future__ import annotations

import io
import json
import shutil
import subprocess
import sys
import time
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any, cast

import fastavro
import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewPartitions, NewTopic
from tests.support import kafka_truth as truth

from lakebackup.errors import Busy, NeedsFull, NotFound, Refused, UsageProblem
from lakebackup.lease import Lease
from lakebackup.model import QueueRestore
from lakebackup.plan import backup_queue as planning
from lakebackup.plan.restore_queue import QueueRestoreRequest
from lakebackup.queues.headers import HeaderNames
from lakebackup.queues.watermark import Watermark, headers_of
from lakebackup.storage import open_storage
from lakebackup.store import CatalogReader, CatalogWriter
from lakebackup_jobs import backup_queue, backup_snapshot, policies, restore_queue
from lakebackup_jobs.kafka.cluster import Cluster
from lakebackup_jobs.progress import QuietReporter
from lakebackup_jobs.queues import begun, ending, prepared
from lakebackup_jobs.queues.copy_task import QueueCopyJob
from lakebackup_jobs.queues.request import QueueRequest
from lakebackup_sql import names

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from pyspark.sql import SparkSession

    from lakebackup_jobs.broker import Broker

pytestmark = [pytest.mark.spark, pytest.mark.kafka]
Message = tuple[str, int, int]
SCHEMA = "schemas:\n- {version: 1, tid: 0, schema: {person: [name]}}\n"


class Social:
    """An engine's queues, a folder for its files, and a destination."""

    def __init__(self, bootstrap: str, folder: Path, empty_catalog: Path, delta: str, journal: str) -> None:
        self.bootstrap, self.folder, self.delta, self.journal = bootstrap, folder, delta, journal
        self.place = folder / "backups"
        shutil.copytree(empty_catalog, self.place / "catalog")
        self.notes = io.StringIO()
        self.warnings = io.StringIO()
        self.producer = Producer({"bootstrap.servers": bootstrap})
        self.tid = 0
        self.config, self.schema = folder / "config.yaml", folder / "delta_schema_history.yaml"
        self.config.write_text("engine: 4\n")
        self.schema.write_text(SCHEMA)
        self.snapshot = folder / "engine" / "snapshot"
        self.snapshot.mkdir(parents=True)
        (self.snapshot / "000001.sst").write_bytes(b"x" * 1000)

    def send(
        self, topic: str, partition: int = 0, transaction: str = "", kind: str = "", tid: int | None = None
    ) -> Message:
        self.tid = self.tid + 1 if tid is None else tid
        headers: list[tuple[str, str | bytes | None]] = [("tid", str(self.tid).encode())]
        headers += [("transaction", transaction.encode())] if transaction else []
        headers += [("kind", kind.encode())] if kind else []
        self.producer.produce(topic, b"value", b"key", partition, headers=headers)
        self.producer.flush()
        return topic, partition, self.tid

    def mark(self, restore_id: str, to_tid: int, topic: str, partition: int) -> None:
        """What a restore puts in front of what it brings back."""
        value = Watermark("social", "f", "b", restore_id, 0, to_tid).value
        headers: list[tuple[str, str | bytes | None]] = [*headers_of(HeaderNames())]
        self.producer.produce(topic, value, None, partition, headers=headers)
        self.producer.flush()

    def tell(self, last_tid: int, places: dict[tuple[str, int], tuple[int, int]], **more: Any) -> None:
        """Write snapshot.json: (topic, partition) -> (position, max_no_transaction_pos)."""
        queues = [
            {"topic": t, "partition": p, "position": at, "max_no_transaction_pos": before}
            for (t, p), (at, before) in places.items()
        ]
        content = {"format": 1, "graph": "social", "last_tid": last_tid, "queues": queues, **more}
        (self.snapshot.parent / "snapshot.json").write_text(json.dumps(content))

    def backup(self, mode: Any = "auto", spark: SparkSession | None = None, **changes: Any) -> dict[str, Any]:
        request = QueueRequest(
            **{
                "destination": str(self.place),
                "source": "social",
                "topics": (self.delta, self.journal),
                "kafka": {"bootstrap.servers": self.bootstrap},
                "mode": mode,
                "config": str(self.config),
                "schema": str(self.schema),
                **changes,
            }
        )
        reporter = QuietReporter(io.StringIO(), self.warnings)
        return backup_queue.run(request, spark=spark, reporter=reporter)

    def full(self, **changes: Any) -> dict[str, Any]:
        return self.backup("full", snapshot=str(self.snapshot), **changes)

    def rows(self, sql: str) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = CatalogReader(str(self.place)).select(sql).read_all().to_pylist()
        return found

    def stored(self, backup_id: str) -> list[Message]:
        """The messages in the files of a backup, in the order of each partition."""
        found: list[Message] = []
        files = self.rows(
            f"SELECT scope, region, path FROM files WHERE backup_id = '{backup_id}' AND role = 'data' "
            "ORDER BY scope, CAST(region AS BIGINT), start_position"
        )
        for file in files:
            with (self.place / file["path"]).open("rb") as data:
                for row in cast("list[dict[str, Any]]", list(fastavro.reader(data))):
                    headers = {h["key"]: h["value"] for h in row["headers"]}
                    found.append((file["scope"], int(file["region"]), int(headers["tid"])))
        return found

    def open_at(self, backup_id: str) -> set[str]:
        rows = self.rows(f"SELECT transaction_id FROM queue_transactions WHERE backup_id = '{backup_id}'")
        return {row["transaction_id"] for row in rows}

    def tree(self) -> set[str]:
        """Every object of the destination, but for leases."""
        found = (p for p in self.place.rglob("*") if p.is_file())
        return {str(p.relative_to(self.place)) for p in found if "leases" not in p.parts}


@pytest.fixture
def social(broker: Broker, empty_catalog: Path, tmp_path: Path, topic: Callable[..., str]) -> Social:
    return Social(broker.bootstrap, tmp_path, empty_catalog, topic("delta", 2), topic("journal"))


def ordered(*messages: Message) -> list[Message]:
    return sorted(messages)


# --- what is stored


def test_a_full_has_no_messages_and_its_snapshot_is_held(social: Social) -> None:
    social.send(social.delta)
    social.send(social.delta, 1, "t1", "begin")
    found = social.full()
    assert (found["kind"], found["entries"], found["last_tid"], found["open_transactions"]) == (
        "full",
        0,
        2,
        1,
    )
    assert social.stored(found["backup_id"]) == []
    assert social.open_at(found["backup_id"]) == {"t1"}
    (point,) = social.rows("SELECT * FROM queue_points")
    (snapshot,) = social.rows("SELECT backup_id FROM backups WHERE source = 'social.snapshot'")
    assert point["snapshot_id"] == found["snapshot"] == snapshot["backup_id"]
    (hold,) = social.rows("SELECT backup_id, source, until_ts FROM holds")
    assert hold == {"backup_id": found["snapshot"], "source": "social.snapshot", "until_ts": None}
    (backup,) = social.rows("SELECT start_ts, end_ts, intact FROM backups WHERE source = 'social'")
    assert (backup["end_ts"] - backup["start_ts"], backup["intact"]) == (1, True)


def test_messages_of_open_transactions_are_in_front_of_a_differential(social: Social) -> None:
    social.send(social.delta)
    front = social.send(social.delta, 0, "t1", "begin")
    social.send(social.delta, 0, "t2")
    also = social.send(social.delta, 0, "t1")
    social.send(social.delta, 0, "t2", "commit")
    full = social.full()
    assert social.open_at(full["backup_id"]) == {"t1"}
    own = [
        social.send(social.delta),
        social.send(social.delta, 1, "t3"),
        social.send(social.delta, 0, "t1", "commit"),
    ]
    found = social.backup("differential")
    assert social.stored(found["backup_id"]) == ordered(front, also, *own)
    assert (found["parent"], found["kind"], found["carried"]) == (full["backup_id"], "cumulative", 2)
    assert social.open_at(found["backup_id"]) == {"t3"}
    # Once more from the same full: the same, and what came since.
    last = social.send(social.journal)
    again = social.backup("differential")
    assert social.stored(again["backup_id"]) == ordered(front, also, *own, last)
    assert again["parent"] == full["backup_id"]


def test_an_incremental_chain_holds_each_message_once(social: Social) -> None:
    front = social.send(social.delta, 0, "long", "begin")
    social.full()
    stored: list[Message] = []
    sent = [front]
    parents = []
    for step in range(4):
        sent += [social.send(social.delta, step % 2), social.send(social.journal)]
        if step == 1:
            sent.append(social.send(social.delta, 1, "long"))
        if step == 3:
            sent.append(social.send(social.delta, 0, "long", "commit"))
        found = social.backup("incremental")
        assert social.open_at(found["backup_id"]) == (set() if step == 3 else {"long"})
        parents.append((found["parent"], found["backup_id"]))
        stored += social.stored(found["backup_id"])
    assert sorted(stored) == sorted(sent)
    assert [parent for parent, _ in parents[1:]] == [own for _, own in parents[:-1]]
    rows = social.rows("SELECT start_ts, end_ts, intact FROM backups WHERE source = 'social' ORDER BY number")
    assert [row["start_ts"] for row in rows[1:]] == [row["end_ts"] for row in rows[:-1]]
    assert all(row["intact"] for row in rows)


def test_where_a_transaction_began_is_known_as_long_as_it_is_open(social: Social) -> None:
    social.send(social.delta)
    social.send(social.delta, 0, "t1", "begin")
    social.full()
    for _ in range(2):
        social.send(social.delta)
        backup_id = social.backup("incremental")["backup_id"]
        (row,) = social.rows(f"SELECT * FROM queue_transactions WHERE backup_id = '{backup_id}'")
        assert (row["first_position"], row["first_tid"], row["entries"]) == (1, 2, 1)
        at = f"backup_id = '{backup_id}' AND scope = '{social.delta}' AND region = '0'"
        (position,) = social.rows(f"SELECT no_transaction_position, last_tid FROM queue_positions WHERE {at}")
        assert position == {"no_transaction_position": 1, "last_tid": social.tid}


def test_nothing_new_is_a_backup_all_the_same(social: Social) -> None:
    social.full()
    found = social.backup()
    assert (found["entries"], found["kind"], found["last_tid"]) == (0, "differential", 0)
    (point,) = social.rows(f"SELECT first_tid FROM queue_points WHERE backup_id = '{found['backup_id']}'")
    assert point["first_tid"] is None


# --- snapshot.json


def test_a_snapshot_says_where_it_stands(social: Social) -> None:
    social.send(social.delta)
    front = social.send(social.delta, 0, "t1", "begin")
    social.send(social.delta)
    later = [social.send(social.delta), social.send(social.delta, 1), social.send(social.journal)]
    social.tell(3, {(social.delta, 0): (3, 1), (social.delta, 1): (0, 0), (social.journal, 0): (0, 0)})
    full = social.full()
    assert (full["last_tid"], full["open_transactions"]) == (3, 1)
    found = social.backup("differential")
    assert social.stored(found["backup_id"]) == ordered(front, *later)


def test_the_end_of_a_transaction_may_stand_in_another_partition(social: Social) -> None:
    """What is read from max_no_transaction_pos of each partition on does not hold it."""
    front = social.send(social.delta, 0, "open", "begin")
    social.send(social.delta, 0, "done")
    social.send(social.delta, 1, "done", "commit")
    last = social.send(social.delta, 1)
    places = {(social.delta, 0): (2, 0), (social.delta, 1): (1, 1), (social.journal, 0): (0, 0)}
    social.tell(3, places)
    assert social.open_at(social.full()["backup_id"]) == {"open"}
    assert social.stored(social.backup("differential")["backup_id"]) == ordered(front, last)
    social.tell(3, places, open_transactions=["open"])
    assert social.open_at(social.full()["backup_id"]) == {"open"}


def test_a_snapshot_that_lies_is_refused_and_nothing_is_visible(social: Social) -> None:
    for _ in range(4):
        social.send(social.delta)
    places = {(social.delta, 0): (4, 2), (social.delta, 1): (0, 0), (social.journal, 0): (0, 0)}
    social.tell(3, places)
    with pytest.raises(Refused, match=r"up to tid 3.*offset 3, with tid 4"):
        social.full()
    social.tell(4, places, open_transactions=["t9"])
    with pytest.raises(Refused, match="t9 is open, and in the queues it is not"):
        social.full()
    social.tell(4, {**places, (social.delta, 0): (5, 2)})
    with pytest.raises(Refused, match="ends at 4"):
        social.full()
    assert social.rows("SELECT backup_id FROM backups") == []
    social.tell(4, places)
    assert social.full()["last_tid"] == 4


def test_what_an_open_transaction_wrote_counts_into_the_tid_of_a_snapshot(social: Social) -> None:
    social.send(social.delta)
    front = social.send(social.delta, 0, "t1")
    places = {(social.delta, 0): (2, 1), (social.delta, 1): (0, 0), (social.journal, 0): (0, 0)}
    social.tell(1, places)
    with pytest.raises(Refused, match=r"up to tid 1, .*with tid 2") as error:
        social.full()
    assert "open count too" in str(error.value.hint)
    social.tell(2, places)
    assert social.full()["last_tid"] == 2
    assert social.stored(social.backup("differential")["backup_id"]) == [front]


def test_positions_may_be_elsewhere(social: Social) -> None:
    social.send(social.delta)
    places = {(social.delta, 0): (1, 1), (social.delta, 1): (0, 0), (social.journal, 0): (0, 0)}
    social.tell(7, places)
    elsewhere = (social.snapshot.parent / "snapshot.json").rename(social.folder / "p.json")
    assert social.full()["last_tid"] == 1
    assert social.full(positions=str(elsewhere))["last_tid"] == 7


# --- messages that came between the looks at two partitions


def test_an_end_that_was_seen_before_its_messages_counts(
    social: Social, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The ends of partitions are not taken at one instant."""
    social.full()
    late = social.send(social.delta, 0, "t1", "begin")
    social.send(social.delta, 1, "t1", "commit")
    whole = Cluster.positions

    def before_the_first(self: Cluster, topics: Any, isolation: str) -> Any:
        ts, regions = whole(self, topics, isolation)
        return ts, [replace(r, end=0) if (r.scope, r.region) == (social.delta, "0") else r for r in regions]

    with monkeypatch.context() as patch:
        patch.setattr(Cluster, "positions", before_the_first)
        first = social.backup("incremental")
    assert social.open_at(first["backup_id"]) == set()
    second = social.backup("incremental")
    assert social.stored(second["backup_id"]) == [late]
    assert social.open_at(second["backup_id"]) == set()


# --- files of the engine


def test_the_engine_s_files_travel_with_each_backup(social: Social) -> None:
    full = social.full()
    social.send(social.delta)
    social.config.write_text("engine: 5\n")
    social.schema.write_text(SCHEMA + "- {version: 2, tid: 9, change: [add, age]}\n")
    found = social.backup("differential")
    for backup_id, config, schema in (
        (full["backup_id"], "engine: 4\n", SCHEMA),
        (found["backup_id"], social.config.read_text(), social.schema.read_text()),
    ):
        files = social.rows(f"SELECT role, path FROM files WHERE backup_id = '{backup_id}' ORDER BY role")
        texts = {
            f["role"]: (social.place / f["path"]).read_text()
            for f in files
            if f["role"] in ("config", "schema")
        }
        assert texts == {"config": config, "schema": schema}
    versions = social.rows(
        f"SELECT version, from_tid, to_tid, change, definition FROM queue_schemas "
        f"WHERE backup_id = '{found['backup_id']}' ORDER BY version"
    )
    assert versions == [
        {"version": 1, "from_tid": 0, "to_tid": 9, "change": None, "definition": '{"person": ["name"]}'},
        {"version": 2, "from_tid": 9, "to_tid": None, "change": '["add", "age"]', "definition": None},
    ]
    assert social.warnings.getvalue() == ""


def test_a_history_of_schemas_that_does_not_go_on_is_told(social: Social) -> None:
    social.schema.write_text("schemas: [{version: 3, tid: 2}]")
    social.full()
    social.schema.write_text("schemas: [{version: 4, tid: 3}]")
    social.send(social.delta)
    social.backup("incremental")
    assert "version 3, valid from tid 2, is not in it" in social.warnings.getvalue()
    assert "messages from tid 1 on" in social.warnings.getvalue()
    with pytest.raises(UsageProblem, match="has a history of schemas"):
        social.backup("incremental", schema=None)


# --- purge and reset


def test_a_purge_asks_for_a_full_and_nothing_is_written(social: Social) -> None:
    for _ in range(3):
        social.send(social.delta)
    full = social.full()
    for _ in range(3):
        social.send(social.delta)
    truth.delete_records(social.bootstrap, social.delta, {0: 5})
    before = social.tree()
    for mode in ("auto", "incremental", "differential"):
        with pytest.raises(NeedsFull, match=rf"topic {social.delta}, partition 0, offsets \[3, 5\)"):
            social.backup(mode)
    with pytest.raises(NeedsFull):
        social.backup(dry_run=True)
    new = {path.partition("/")[0] for path in social.tree() - before}
    assert new == {"audit", "catalog"}
    audit = social.rows("SELECT subject, detail FROM audit WHERE action = 'queue gap'")
    assert [row["subject"] for row in audit] == ["social"] * 3
    (missing,) = json.loads(audit[0]["detail"])["missing"]
    assert (missing["scope"], missing["from_position"], missing["to_position"]) == (social.delta, 3, 5)

    again = social.full()
    (gap,) = social.rows("SELECT backup_id, from_position, to_position, reason, bridged FROM gaps")
    assert gap == {
        "backup_id": again["backup_id"], "from_position": 3, "to_position": 5, "reason": "purged",
        "bridged": False,
    }  # fmt: skip
    assert full["backup_id"] != again["backup_id"]
    own = social.send(social.delta)
    assert social.stored(social.backup("differential")["backup_id"]) == [own]


def test_messages_in_front_that_are_gone_ask_for_a_full(social: Social) -> None:
    social.send(social.delta, 0, "t1", "begin")
    social.send(social.delta)
    social.full()
    truth.delete_records(social.bootstrap, social.delta, {0: 1})
    with pytest.raises(NeedsFull, match=r"offsets \[0, 1\) were deleted"):
        social.backup("differential")


def test_a_snapshot_that_nothing_can_go_on_from_is_refused(social: Social) -> None:
    for _ in range(4):
        social.send(social.delta)
    social.tell(1, {(social.delta, 0): (1, 1), (social.delta, 1): (0, 0), (social.journal, 0): (0, 0)})
    truth.delete_records(social.bootstrap, social.delta, {0: 2})
    with pytest.raises(NeedsFull, match="offsets below 2 were deleted"):
        social.full()


def test_a_topic_that_was_made_again_asks_for_a_full(social: Social) -> None:
    social.send(social.delta)
    social.send(social.journal)
    social.full()
    truth.delete_topic(social.bootstrap, social.journal)
    with pytest.raises((NeedsFull, NotFound)):
        social.backup()
    admin = AdminClient({"bootstrap.servers": social.bootstrap})
    admin.create_topics([NewTopic(social.journal, 1, 1, config={"retention.ms": "-1"})])[
        social.journal
    ].result(30)
    own = social.send(social.journal)
    with pytest.raises(NeedsFull, match=rf"topic {social.journal}, partition 0 was reset.*offset 1"):
        social.backup()
    social.full()
    (gap,) = social.rows("SELECT scope, from_position, to_position, reason FROM gaps")
    assert gap == {"scope": social.journal, "from_position": 1, "to_position": None, "reason": "recreated"}
    last = social.send(social.journal)
    found = social.backup("differential")
    assert social.stored(found["backup_id"]) == [last]
    assert own[2] < last[2]


def test_new_partitions_and_queues_are_taken_along(social: Social, topic: Callable[..., str]) -> None:
    social.full()
    admin = AdminClient({"bootstrap.servers": social.bootstrap})
    admin.create_partitions([NewPartitions(social.delta, 3)])[social.delta].result(30)
    truth.until(
        lambda: len(admin.list_topics(timeout=10).topics[social.delta].partitions) == 3,
        "it has three partitions",
    )
    more = topic("young")
    sent = [social.send(social.delta, 2), social.send(more)]
    topics = (social.delta, social.journal, more)
    first = social.backup("incremental", topics=topics)
    assert social.stored(first["backup_id"]) == ordered(*sent)
    own = social.send(more)
    second = social.backup("incremental", topics=topics)
    assert social.stored(second["backup_id"]) == [own]
    assert social.stored(social.backup("differential", topics=topics)["backup_id"]) == ordered(*sent, own)
    with pytest.raises(UsageProblem, match=rf"{more} is a queue of this engine"):
        social.backup("incremental")


# --- restored engines


def test_behind_a_restore_it_stands_on_what_was_restored(social: Social) -> None:
    a = social.full()
    social.send(social.delta)
    child = social.backup("incremental")
    social.full()
    cluster = Cluster({"bootstrap.servers": social.bootstrap})
    topics = cluster.describe([social.delta, social.journal])
    _, regions = cluster.positions(topics, "read_committed")
    restored = social.send(social.delta)
    _, after = cluster.positions(topics, "read_committed")
    writer = CatalogWriter.open(None, str(social.place))
    for before, now in zip(regions, after, strict=True):
        writer.tell(
            QueueRestore(
                restore_id="r1",
                at=time.time_ns() // 1000,
                actor="me",
                source="social",
                backup_id=child["backup_id"],
                full_id=a["backup_id"],
                whole=True,
                last_tid=1,
                cluster=cluster.cluster_id(),
                scope=now.scope,
                epoch=now.epoch,
                region=now.region,
                base_position=before.end,
                end_position=now.end,
            )
        )
    own = social.send(social.delta)
    found = social.backup("incremental")
    assert (found["parent"], found["restore"]) == (child["backup_id"], "r1")
    assert social.stored(found["backup_id"]) == [own]
    differential = social.backup("differential")
    assert (differential["parent"], differential["restore"]) == (a["backup_id"], "r1")
    assert social.stored(differential["backup_id"]) == [restored, own]
    last = social.send(social.delta)
    following = social.backup("incremental")
    assert (following["parent"], following["restore"]) == (differential["backup_id"], None)
    assert social.stored(following["backup_id"]) == [last]
    ids = (found["backup_id"], differential["backup_id"], following["backup_id"])
    assert social.rows(f"SELECT bool_and(intact) AS whole FROM backups WHERE backup_id IN {ids}") == [
        {"whole": True}
    ]


# --- runs that were cut off


class Cut(BaseException):
    """The run was killed."""


@contextmanager
def cut_off(monkeypatch: pytest.MonkeyPatch, where: Any, name: str) -> Iterator[None]:
    """A run inside the block dies when it calls that."""

    def cut(*_: Any, **__: Any) -> Any:
        raise Cut

    with monkeypatch.context() as patch:
        patch.setattr(where, name, cut)
        with pytest.raises(Cut):
            yield


@pytest.mark.parametrize("mode", ["differential", "incremental"])
def test_what_was_cut_off_is_ended_as_it_was_planned(
    social: Social, monkeypatch: pytest.MonkeyPatch, mode: str
) -> None:
    social.send(social.delta, 0, "t1")
    social.full()
    own = social.send(social.delta)
    front = (social.delta, 0, 1)

    with cut_off(monkeypatch, ending, "put_rows"):
        social.backup(mode)
    left = begun.found(open_storage(str(social.place)), "social")
    assert left is not None
    since = social.send(social.delta)
    social.config.write_text("engine: 5\n")
    found = social.backup(mode)
    assert found["ended"]["backup_id"] == left.backup_id
    assert social.stored(left.backup_id) == [front, own]
    # What came since is in one of its own, whatever was asked for.
    assert (found["kind"], found["parent"]) == ("differential", left.backup_id)
    assert social.stored(found["backup_id"]) == [since]
    configs = social.rows("SELECT path FROM files WHERE role = 'config' ORDER BY added_in")
    texts = [(social.place / file["path"]).read_text() for file in configs]
    assert texts == ["engine: 4\n", "engine: 4\n", "engine: 5\n"]
    assert len(social.rows("SELECT 1 AS one FROM backups WHERE source = 'social'")) == 3
    assert begun.found(open_storage(str(social.place)), "social") is None
    assert not [path for path in social.tree() if "/seen/" in path]


def test_what_was_cut_off_after_its_commit_is_told_and_not_taken_twice(
    social: Social, monkeypatch: pytest.MonkeyPatch
) -> None:
    social.send(social.delta, 0, "t1")
    with cut_off(monkeypatch, begun, "end"):
        social.full()
    full = social.full()
    assert len(social.rows("SELECT 1 AS one FROM backups")) == 2
    (snapshot,) = social.rows("SELECT backup_id FROM backups WHERE source = 'social.snapshot'")
    assert (full["snapshot"], full["open_transactions"]) == (snapshot["backup_id"], 1)
    social.send(social.delta)

    with cut_off(monkeypatch, begun, "end"):
        social.backup("differential")
    found = social.backup("differential")
    ended = found.pop("ended")
    assert (ended["entries"], ended["carried"], ended["last_tid"]) == (2, 1, 2)
    assert (found["entries"], found["parent"]) == (0, ended["backup_id"])
    assert found.keys() == ended.keys() == full.keys()


def test_what_is_asked_for_in_another_way_is_taken_away(
    social: Social, monkeypatch: pytest.MonkeyPatch
) -> None:
    social.full()
    own = social.send(social.delta)

    with cut_off(monkeypatch, ending, "put_rows"):
        social.backup("incremental")
    left = {path for path in social.tree() if path.endswith(".data")}
    found = social.backup("differential")
    assert len(left) == 1
    assert social.stored(found["backup_id"]) == [own]
    assert len([path for path in social.tree() if path.endswith(".data")]) == 1


def test_a_full_goes_on_when_its_snapshot_is_there_and_else_starts_over(
    social: Social, monkeypatch: pytest.MonkeyPatch
) -> None:
    social.send(social.delta)

    with cut_off(monkeypatch, backup_snapshot, "run"):
        social.full()
    social.send(social.delta)
    with cut_off(monkeypatch, ending, "put_rows"):
        social.full()
    left = begun.found(open_storage(str(social.place)), "social")
    assert left is not None
    social.send(social.delta)
    found = social.full()
    assert (found["backup_id"], found["last_tid"]) == (left.backup_id, 2)
    snapshots = social.rows("SELECT backup_id FROM backups WHERE source = 'social.snapshot'")
    assert snapshots == [{"backup_id": found["snapshot"]}]
    assert social.stored(social.backup("differential")["backup_id"]) == [(social.delta, 0, 3)]


def test_a_full_is_not_ended_with_another_snapshot(social: Social, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each night a script puts a new snapshot in place of the one before."""

    def places(at: int) -> dict[tuple[str, int], tuple[int, int]]:
        return {(social.delta, 0): (at, at), (social.delta, 1): (0, 0), (social.journal, 0): (0, 0)}

    social.send(social.delta)
    social.tell(1, places(1))
    with cut_off(monkeypatch, ending, "put_rows"):
        social.full()
    social.send(social.delta)
    social.tell(2, places(2))
    (social.snapshot / "000002.sst").write_bytes(b"y" * 2000)
    found = social.full()
    assert found["last_tid"] == 2
    files = social.rows(
        f"SELECT f.name FROM snapshot_files AS f JOIN backups AS b ON b.source = f.source "
        f"AND b.backup_id = '{found['snapshot']}' AND f.added_in <= b.number ORDER BY f.name"
    )
    assert [row["name"] for row in files] == ["000001.sst", "000002.sst"]
    assert [row["backup_id"] for row in social.rows("SELECT backup_id FROM holds")] == [found["snapshot"]]
    # Where the engine says nothing, the folder tells.
    (social.snapshot.parent / "snapshot.json").unlink()
    with cut_off(monkeypatch, ending, "put_rows"):
        social.full()
    shutil.rmtree(social.snapshot)
    social.snapshot.mkdir()
    (social.snapshot / "000003.sst").write_bytes(b"z" * 3000)
    again = social.full()
    held = social.rows("SELECT name FROM snapshot_files WHERE gone_in IS NULL")
    assert held == [{"name": "000003.sst"}]
    assert [row["backup_id"] for row in social.rows("SELECT backup_id FROM holds ORDER BY at")] == [
        found["snapshot"],
        again["snapshot"],
    ]


def test_what_goes_on_has_the_engine_s_files_of_its_beginning(
    social: Social, monkeypatch: pytest.MonkeyPatch
) -> None:
    with cut_off(monkeypatch, ending, "put_rows"):
        social.full()
    social.config.write_text("engine: 5\n")
    social.schema.write_text(SCHEMA + "- {version: 2, tid: 9}\n")
    full = social.full()
    files = social.rows(
        f"SELECT path FROM files WHERE backup_id = '{full['backup_id']}' AND role IN ('config', 'schema') "
        "ORDER BY role"
    )
    assert [(social.place / file["path"]).read_text() for file in files] == ["engine: 4\n", SCHEMA]
    assert social.rows("SELECT version FROM queue_schemas") == [{"version": 1}]


def test_the_snapshot_of_a_full_that_came_to_nothing_is_held_no_more(
    social: Social, monkeypatch: pytest.MonkeyPatch
) -> None:
    with cut_off(monkeypatch, ending, "put_rows"):
        social.full()
    assert len(social.rows("SELECT backup_id FROM holds")) == 1
    with cut_off(monkeypatch, begun, "take_away"):
        social.full(note="another one")
    assert social.rows("SELECT backup_id FROM holds") == []
    # As it was begun it goes on, and is held again; what a person holds stays so.
    with cut_off(monkeypatch, ending, "put_rows"):
        social.full()
    snapshot = social.rows("SELECT backup_id FROM holds")[0]["backup_id"]
    policies.hold(str(social.place), None, snapshot, reason="for the auditors")
    social.full(note="another one")
    reasons = social.rows(f"SELECT reason FROM holds WHERE backup_id = '{snapshot}'")
    assert reasons == [{"reason": "for the auditors"}]


def test_a_snapshot_that_a_prune_took_before_it_was_held_is_taken_again(
    social: Social, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = backup_snapshot.run
    taken: list[str] = []

    def pruned_at_once(*arguments: Any, **named: Any) -> Any:
        told = whole(*arguments, **named)
        taken.append(told["backup_id"])
        if len(taken) == 1:
            writer = CatalogWriter.open(spark, str(social.place))
            writer.set_states(taken, "deleted", actor="prune", reason="redundancy")
        return told

    monkeypatch.setattr(backup_snapshot, "run", pruned_at_once)
    full = social.full()
    assert len(taken) == 2
    assert full["snapshot"] == taken[1]
    assert [row["backup_id"] for row in social.rows("SELECT backup_id FROM holds")] == taken[1:]
    assert social.rows("SELECT backup_id FROM unusable_backups") == []


# --- what is refused, and what nothing is written for


def test_only_a_full_needs_a_snapshot_json_that_is_right(social: Social) -> None:
    social.full()
    (social.snapshot.parent / "snapshot.json").write_text("{")
    own = social.send(social.delta)
    found = social.backup("auto", snapshot=str(social.snapshot))
    assert social.stored(found["backup_id"]) == [own]
    missing = str(social.folder / "none.json")
    assert social.backup("auto", snapshot=str(social.snapshot), positions=missing)["kind"] == "differential"
    with pytest.raises(UsageProblem, match="is not JSON"):
        social.full()
    with pytest.raises(NotFound, match=r"none\.json cannot be read"):
        social.full(positions=missing)


def test_a_message_without_a_tid_is_refused_by_its_place(social: Social) -> None:
    social.full()
    social.send(social.delta)
    social.producer.produce(social.delta, b"value", b"key", 0)
    social.producer.flush()
    with pytest.raises(Refused, match=rf"{social.delta}\[0\] at offset 1"):
        social.backup("differential")
    assert len(social.rows("SELECT 1 AS one FROM backups WHERE source = 'social'")) == 1


def test_a_run_that_waited_for_another_one_goes_on_from_there(
    social: Social, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where queues end is looked at when no other backup of them is at work any more."""
    social.full()
    acquire = Lease.acquire
    sent: list[Message] = []

    def behind_another(*arguments: Any, **named: Any) -> Lease:
        monkeypatch.undo()
        sent.append(social.send(social.delta))
        social.backup("incremental")
        return acquire(*arguments, **named)

    monkeypatch.setattr(Lease, "acquire", behind_another)
    found = social.backup("incremental")
    assert (len(sent), found["entries"]) == (1, 0)
    assert social.rows("SELECT COUNT(*) AS gaps FROM audit WHERE action = 'queue gap'") == [{"gaps": 0}]


def test_a_catalog_of_an_older_version_is_brought_up_to_date_first(
    social: Social, monkeypatch: pytest.MonkeyPatch
) -> None:
    full = social.full()
    own = social.send(social.delta)
    migrate = CatalogWriter.migrate
    sessions: list[CatalogWriter] = []

    def migrated(writer: CatalogWriter) -> Any:
        monkeypatch.undo()
        sessions.append(writer)
        return migrate(writer)

    monkeypatch.setattr(backup_queue, "names", lambda kind: [*names(kind), "0000_to_come"])
    monkeypatch.setattr(backup_queue._Run, "spark", None)
    monkeypatch.setattr(CatalogWriter, "migrate", migrated)
    found = social.backup("incremental")
    assert (len(sessions), found["parent"]) == (1, full["backup_id"])
    assert social.stored(found["backup_id"]) == [own]


def test_what_makes_no_sense_is_refused(social: Social) -> None:
    with pytest.raises(UsageProblem, match="needs a snapshot"):
        social.backup("full")
    with pytest.raises(UsageProblem, match="needs a snapshot"):
        social.backup("auto")
    for mode in ("differential", "incremental"):
        with pytest.raises(NeedsFull, match="no backup of social"):
            social.backup(mode)
    with pytest.raises(NotFound, match=r"nothing\.\*"):
        social.full(topics=("nothing.*",))
    with pytest.raises(NotFound, match=r"cannot be read"):
        social.full(config=str(social.folder / "none.yaml"))
    with pytest.raises(UsageProblem):
        social.full(source="not/a/name")
    assert social.tree() == {path for path in social.tree() if path.startswith("catalog/")}


def test_shell_patterns_name_queues(social: Social) -> None:
    found = social.full(topics=(f"{social.delta[:-2]}*", f"?{social.journal[1:]}"))
    assert found["topics"] == 2


def test_a_dry_run_writes_nothing(social: Social) -> None:
    social.send(social.delta)
    before = social.tree()
    told = social.full(dry_run=True)
    assert (told["dry_run"], told["kind"], told["snapshot"]["copied"]) == (True, "full", 1)
    assert social.tree() == before
    social.full()
    social.send(social.delta)
    before = social.tree()
    told = social.backup("differential", dry_run=True)
    assert (told["kind"], told["offsets"]) == ("cumulative", 1)
    assert social.tree() == before


def test_much_is_read_by_spark_and_comes_to_the_same(
    social: Social, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    front = social.send(social.delta, 0, "t1")
    social.send(social.delta, 0, "t2")
    social.send(social.delta, 0, "t2", "rollback")
    monkeypatch.setattr(planning, "HERE_OFFSETS", 1)
    monkeypatch.setattr(planning, "LEAST_OFFSETS_PER_TASK", 1)
    full = social.full(spark=spark)
    assert social.open_at(full["backup_id"]) == {"t1"}
    own = [social.send(social.delta, n % 2, "t3" if n else "") for n in range(5)]
    own.append(social.send(social.journal, 0, "t1", "commit"))
    found = social.backup("differential", spark=spark)
    assert social.stored(found["backup_id"]) == ordered(front, *own)
    assert social.open_at(found["backup_id"]) == {"t3"}
    assert (found["carried"], found["open_transactions"]) == (1, 1)


# --- the command


def command(social: Social, *arguments: str, **env: str) -> subprocess.CompletedProcess[str]:
    named = ["--topics", social.delta, "--topics", social.journal, "--bootstrap-server", social.bootstrap]
    return subprocess.run(
        [sys.executable, "-m", "lakebackup_jobs.cli", "backup", "queue", "social", *named, "--json",
         "--to", str(social.place), "--schema", str(social.schema), "--config", str(social.config),
         *arguments],
        capture_output=True, text=True, check=False, timeout=120, env=env or None,
    )  # fmt: skip


def test_by_command_without_java_and_with_exit_codes(social: Social) -> None:
    social.send(social.delta)
    # Nowhere could Java be found: little is done without it.
    bare = {"PATH": "", "HOME": "/nowhere"}
    done = command(social, "--snapshot", str(social.snapshot), **bare)
    assert (done.returncode, done.stderr) == (0, "")
    social.send(social.delta)
    done = command(social, "--mode", "differential", "--note", "hourly", **bare)
    assert (done.returncode, done.stderr) == (0, "")
    result = json.loads(done.stdout.splitlines()[-1])
    assert (result["event"], result["kind"], result["entries"]) == ("result", "cumulative", 1)
    assert social.rows("SELECT note FROM backups WHERE number = 2") == [{"note": "hourly"}]
    explained = command(social, "--explain", "--mode", "incremental")
    assert "queue_histories" in explained.stdout
    truth.delete_records(social.bootstrap, social.delta, {0: 2})
    social.send(social.delta)
    truth.delete_records(social.bootstrap, social.delta, {0: 3})
    done = command(social)
    assert done.returncode == 9
    assert "offsets [2, 3) were deleted" in done.stdout + done.stderr
    done = command(social, "--tid-header", "number", "--mode", "full", "--snapshot", str(social.snapshot))
    assert done.returncode == 0
    social.send(social.delta)
    done = command(social, "--tid-header", "number")
    assert done.returncode == 5


# --- restores that are at work, were left, or are of another catalog


def put_back(social: Social, into: str, **changes: Any) -> dict[str, Any]:
    """Restore the engine into its own queues, or into those that `maps` says."""
    request = QueueRestoreRequest(
        **{
            "destination": str(social.place),
            "source": "social",
            "target": f"kafka://{social.bootstrap}",
            "folder": str(social.folder / into),
            "maps": {},
            "append": True,
            **changes,
        }
    )
    return restore_queue.run(request, reporter=QuietReporter(io.StringIO(), social.warnings))


def left_half_done(social: Social, monkeypatch: pytest.MonkeyPatch) -> None:
    """A restore writes everything behind what its queues hold, and dies then; a backup finds it at work."""

    def dies(*_: Any) -> None:
        for mode in ("incremental", "differential", "auto"):
            with pytest.raises(
                Busy, match=rf"Restore .* is writing into topic ({social.delta}|{social.journal})"
            ):
                social.backup(mode)
        raise Cut

    with monkeypatch.context() as patch:
        patch.setattr(prepared, "write_done", dies)
        with pytest.raises(Cut):
            put_back(social, "put back")


def test_nothing_goes_on_from_a_restore_that_was_left_half_done(
    social: Social, monkeypatch: pytest.MonkeyPatch
) -> None:
    full = social.full()
    sent = [social.send(social.delta), social.send(social.delta, 1)]
    child = social.backup("incremental")
    left_half_done(social, monkeypatch)
    before = social.tree()
    for mode in ("incremental", "differential", "auto"):
        for dry_run in (False, True):
            with pytest.raises(Refused, match=r"Restore \S+ has begun to write into topic") as refused:
                social.backup(mode, dry_run=dry_run)
            assert "running its command again" in refused.value.hint
    assert social.tree() == before
    # Ended, it is what the next backup goes on behind: each message is stored once.
    restored = put_back(social, "put back")
    assert restored["resumed"]
    own = social.send(social.delta)
    found = social.backup("incremental")
    assert (found["restore"], found["parent"]) == (restored["restore_id"], child["backup_id"])
    assert social.stored(found["backup_id"]) == [own]
    again = social.backup("differential")
    assert again["parent"] == full["backup_id"]
    assert social.stored(again["backup_id"]) == ordered(*sent, own)


def test_a_new_full_ends_what_a_restore_left(social: Social, monkeypatch: pytest.MonkeyPatch) -> None:
    social.full()
    social.send(social.delta)
    social.backup("incremental")
    social.send(social.delta, 1, "left", "begin", tid=700)
    left_half_done(social, monkeypatch)
    full = social.full()
    # What stands before the watermark is of a history that was left.
    assert (full["last_tid"], full["open_transactions"]) == (1, 0)
    own = social.send(social.delta, tid=2)
    for mode in ("incremental", "differential"):
        found = social.backup(mode)
        assert (found["parent"], found["last_tid"]) == (full["backup_id"], 2)
        assert social.stored(found["backup_id"]) == [own]


def test_a_watermark_that_the_catalog_does_not_know_is_refused(social: Social) -> None:
    """Another copy of the destination was restored from into these queues."""
    social.full()
    social.send(social.delta, 0, "t1", "begin", tid=90)
    social.backup("incremental")
    social.send(social.delta, tid=91)
    for partition in range(2):
        social.mark("r-elsewhere", 20, social.delta, partition)
    social.send(social.delta, 0, "t2", "begin", tid=21)
    count = len(social.rows("SELECT 1 AS one FROM backups"))
    for mode in ("incremental", "incremental", "differential"):
        with pytest.raises(Refused, match=rf"{social.delta}\[[01]\] at offset [02]: .* restore r-elsewhere"):
            social.backup(mode)
    assert len(social.rows("SELECT 1 AS one FROM backups")) == count
    full = social.full()
    assert (full["last_tid"], social.open_at(full["backup_id"])) == (21, {"t2"})
    own = social.send(social.delta, 0, "t2", "commit", tid=22)
    found = social.backup("incremental")
    assert social.stored(found["backup_id"]) == [(social.delta, 0, 21), own]


def test_an_engine_that_was_put_back_may_stand_before_its_watermark(social: Social) -> None:
    """Its snapshot was taken before it had read anything of what the restore brought."""
    first = social.full()
    sent = social.send(social.delta)
    social.backup("incremental")
    restored = put_back(social, "put back")
    social.tell(0, {(social.delta, 0): (1, 1), (social.delta, 1): (0, 0), (social.journal, 0): (0, 0)})
    social.full()
    own = social.send(social.delta)
    for mode in ("incremental", "differential"):
        found = social.backup(mode)
        assert social.stored(found["backup_id"]) == [sent, own]
    assert restored["full"] == first["backup_id"]
    # One of before the restore is of the history that was left.
    social.tell(0, {(social.delta, 0): (0, 0), (social.delta, 1): (0, 0), (social.journal, 0): (0, 0)})
    social.full()
    with pytest.raises(Refused, match=restored["restore_id"]):
        social.backup("incremental")


# --- transactions whose end was seen before their messages


def test_what_comes_later_than_its_commit_is_of_that(social: Social) -> None:
    """A message comes to its queue, or to a partition that was not there, when the commit is backed up."""
    social.full()
    sent = [social.send(social.delta, 1, "t1", "begin", tid=1), social.send(social.journal, 0, "t1", tid=2)]
    sent.append(social.send(social.delta, 1, "t1", "commit", tid=5))
    sent.append(social.send(social.delta, 1, "t5", "begin", tid=7))
    first = social.backup("incremental")
    assert social.open_at(first["backup_id"]) == {"t5"}
    admin = AdminClient({"bootstrap.servers": social.bootstrap})
    admin.create_partitions([NewPartitions(social.delta, 3)])[social.delta].result(30)
    truth.until(
        lambda: len(admin.list_topics(timeout=10).topics[social.delta].partitions) == 3, "it is there"
    )
    social.producer = Producer({"bootstrap.servers": social.bootstrap})  # the other one knows of two
    late = [social.send(social.delta, 2, "t1", tid=4), social.send(social.delta, 0, "t1", tid=3)]
    sent += [*late, social.send(social.delta, 0, "t6", "begin", tid=8)]
    second = social.backup("incremental")
    assert social.stored(second["backup_id"]) == ordered(*late, sent[-1])
    assert social.open_at(second["backup_id"]) == {"t5", "t6"}
    maps = {name: f"{name}-restored" for name in (social.delta, social.journal)}
    try:
        put_back(social, "aside", maps=maps, append=False)
        found = [
            (name, record.partition, int(dict(record.headers)["tid"] or b""))
            for name, other in maps.items()
            for _, record in truth.read(social.bootstrap, other)
            if "tid" in dict(record.headers)
        ]
        assert sorted(found) == ordered(*(m for m in sent if m[2] not in (7, 8)))
    finally:
        for name in maps.values():
            truth.delete_topic(social.bootstrap, name)


def test_the_end_may_stand_far_before_what_is_read(social: Social, monkeypatch: pytest.MonkeyPatch) -> None:
    """A partition's last stable offset may stand still over many messages of others, and many backups."""
    social.full()
    late = social.send(social.delta, 0, "t1", "begin")
    social.send(social.delta, 1, "t1", "commit")
    whole = Cluster.positions

    def stands_still(self: Cluster, topics: Any, isolation: str) -> Any:
        ts, regions = whole(self, topics, isolation)
        return ts, [
            replace(r, end=0, high=0) if (r.scope, r.region) == (social.delta, "0") else r for r in regions
        ]

    with monkeypatch.context() as patch:
        patch.setattr(Cluster, "positions", stands_still)
        for _ in range(2):
            social.backup("incremental")
            for tid in range(social.tid + 1, social.tid + 60_001):
                social.producer.produce(social.delta, b"v", None, 1, headers=[("tid", str(tid).encode())])
                if tid % 10_000 == 0:
                    social.producer.flush()
            social.producer.flush()
            social.tid += 60_000
        social.backup("incremental")
    found = social.backup("incremental")
    assert social.stored(found["backup_id"]) == [late]
    assert social.open_at(found["backup_id"]) == set()


def test_an_end_of_before_a_watermark_ends_nothing(social: Social) -> None:
    """An engine that was put back gives ids anew that it had given in the history that was left."""
    social.send(social.delta, 0, "t17", "begin", tid=17)
    social.send(social.delta, 0, "t17", "commit", tid=18)
    social.mark("r1", 15, social.delta, 0)
    social.mark("r1", 15, social.delta, 1)
    front = social.send(social.delta, 0, "t17", "begin", tid=17)
    social.tell(17, {(social.delta, 0): (4, 3), (social.delta, 1): (1, 1), (social.journal, 0): (0, 0)})
    full = social.full()
    assert social.open_at(full["backup_id"]) == {"t17"}
    end = social.send(social.delta, 1, "t17", "commit", tid=19)
    assert social.stored(social.backup("differential")["backup_id"]) == [front, end]


def test_what_the_queues_delete_meanwhile_is_not_looked_through(
    social: Social, monkeypatch: pytest.MonkeyPatch
) -> None:
    for _ in range(3):
        social.send(social.journal)
    social.send(social.delta, 1, "t1", "commit", tid=9)
    social.full()
    late = social.send(social.delta, 0, "t1", "begin", tid=8)
    suspects = ending.Open.suspects

    def and_some_go(self: ending.Open, path: str) -> int | None:
        truth.delete_records(social.bootstrap, social.journal, {0: 2})
        return suspects(self, path)

    monkeypatch.setattr(ending.Open, "suspects", and_some_go)
    found = social.backup("incremental")
    assert social.stored(found["backup_id"]) == [late]
    assert social.open_at(found["backup_id"]) == set()


def test_a_snapshot_that_is_open_from_further_back_than_it_says_is_refused(social: Social) -> None:
    social.send(social.delta, 1, "t1", "begin")
    social.send(social.delta)
    social.send(social.delta, 0, "t1")
    places = {(social.delta, 0): (2, 1), (social.delta, 1): (1, 1), (social.journal, 0): (0, 0)}
    social.tell(3, places)
    with pytest.raises(Refused, match=rf"t1 has one at offset 0 of topic {social.delta}, partition 1"):
        social.full()
    social.tell(3, {**places, (social.delta, 1): (1, 0)})
    assert social.open_at(social.full()["backup_id"]) == {"t1"}


# --- what is gone from the queues


def test_a_full_lets_go_of_what_nobody_can_carry(social: Social) -> None:
    gone = social.send(social.delta, 0, "gone", "begin")
    social.full()
    social.send(social.delta, 1, "gone")
    social.send(social.delta)
    kept = social.send(social.delta, 0, "kept", "begin")
    found = social.backup("incremental")
    assert social.open_at(found["backup_id"]) == {"gone", "kept"}
    truth.delete_records(social.bootstrap, social.delta, {0: 1})
    # The backups have what the queues have not: those go on.
    social.send(social.delta, 1)
    assert social.open_at(social.backup("incremental")["backup_id"]) == {"gone", "kept"}
    assert social.warnings.getvalue() == ""
    full = social.full()
    assert social.open_at(full["backup_id"]) == {"kept"}
    assert "1 transactions are open and have messages that the queues hold no more, such as gone" in (
        social.warnings.getvalue()
    )
    own = social.send(social.delta)
    assert social.stored(social.backup("differential")["backup_id"]) == ordered(kept, own)
    assert gone[2] < kept[2]


def test_a_differential_of_what_backups_have_and_queues_have_not(social: Social) -> None:
    social.full()
    for _ in range(3):
        social.send(social.delta)
    social.backup("incremental")
    truth.delete_records(social.bootstrap, social.delta, {0: 2})
    with pytest.raises(
        NeedsFull, match=r"backups since have them: .*offsets \[0, 2\) were deleted"
    ) as refused:
        social.backup("differential")
    assert "--mode incremental" in refused.value.hint
    assert social.rows("SELECT 1 AS one FROM audit WHERE action = 'queue gap'") == []
    own = social.send(social.delta)
    assert social.stored(social.backup("incremental")["backup_id"]) == [own]
    social.send(social.delta)
    social.send(social.delta)
    truth.delete_records(social.bootstrap, social.delta, {0: 5})
    with pytest.raises(NeedsFull, match="were lost before they were backed up"):
        social.backup("differential")


# --- much and little


def test_nothing_to_look_for_is_written_by_spark_too(
    social: Social, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    for _ in range(4):
        social.send(social.delta, 1)
    social.full()
    monkeypatch.setattr(planning, "HERE_OFFSETS", 1)
    monkeypatch.setattr(planning, "LEAST_OFFSETS_PER_TASK", 1)
    own = [social.send(social.delta, n % 2, "t1") for n in range(4)]
    found = social.backup("incremental", spark=spark)
    assert social.stored(found["backup_id"]) == ordered(*own)
    assert social.open_at(found["backup_id"]) == {"t1"}


def test_what_is_looked_through_may_be_much_where_what_is_read_is_little(
    social: Social, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    for _ in range(9):
        social.send(social.delta)
    social.send(social.delta, 0, "done", "begin")
    social.send(social.delta, 1, "done", "commit")
    monkeypatch.setattr(planning, "HERE_OFFSETS", 3)
    monkeypatch.setattr(planning, "LEAST_OFFSETS_PER_TASK", 1)
    here: list[int] = []
    run = QueueCopyJob.run

    def counted(self: QueueCopyJob, task: int) -> dict[str, object]:
        here.append(task)
        return run(self, task)

    monkeypatch.setattr(QueueCopyJob, "run", counted)
    social.tell(11, {(social.delta, 0): (10, 9), (social.delta, 1): (1, 1), (social.journal, 0): (0, 0)})
    full = social.full(spark=spark)
    assert (here, full["open_transactions"]) == ([0], 0)
