"""Following topics, and logs that a disk or a replica truncates below what was backed up (forks)."""

from __future__ import annotations

import os
import shutil
from collections import Counter
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import ElectionType, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewPartitions, NewTopic
from tests.support import kafka_truth as truth
from tests.support.clusters import Cluster
from tests.support.faults import catalog_rows, rows_of
from tests.support.following import Following, following, kinds, until_stored
from tests.support.kafka_truth import Record
from tests.support.runs import Lab, now_ms

from lakebackup.errors import Busy, Refused
from lakebackup.recovery.rebuild import rebuild
from lakebackup.store.reader import CatalogReader
from lakebackup.store.writer import CatalogWriter
from lakebackup_jobs.cli.look.tree import in_order
from lakebackup_jobs.demo.broker import Broker
from lakebackup_jobs.kafka.admin.cluster import Cluster as LakeCluster
from lakebackup_jobs.lifecycle import stream

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.kafka]


MakeTopic = Callable[..., str]


def test_batches_are_backups_that_continue_each_other(
    lab: Lab, topic: MakeTopic, monkeypatch: pytest.MonkeyPatch
) -> None:
    folded_tables: list[str] = []
    monkeypatch.setattr(stream, "FOLD_EVERY", 2)
    monkeypatch.setattr(CatalogWriter, "fold", lambda _, table: folded_tables.append(table))
    name = topic("follow", partitions=2)
    with following(lab, name) as run:
        for start in (0, 20, 40):
            truth.produce(lab.bootstrap, name, rows_of(2, 20, start))
            until_stored(run, lab, name)
        # Only one process follows a source.
        assert isinstance(Following(lab, name).join(), Busy)
    result = run.join()
    assert isinstance(result, dict), result
    assert kinds(lab) == ["full"] + ["log"] * (result["backups"] - 1)
    assert result["entries"] == 120
    assert folded_tables == ["log_regions"] * (result["backups"] // 2)
    copy_topic = topic("copy", partitions=2)
    lab.restore(name, maps={name: copy_topic})
    assert truth.contents(lab.bootstrap, copy_topic) == truth.contents(lab.bootstrap, name)
    rows_before = catalog_rows(lab)
    (lab.folder / "catalog").rename(lab.folder.parent / "lost")
    rebuild(lab.spark, str(lab.folder))
    for relation, rows in catalog_rows(lab).items():
        assert sorted(map(str, rows)) == sorted(map(str, rows_before[relation])), relation


@pytest.mark.long
def test_a_lost_checkpoint_loses_nothing(lab: Lab, topic: MakeTopic) -> None:
    name = topic("lost", partitions=2)
    for start in (0, 20):
        truth.produce(lab.bootstrap, name, rows_of(2, 20, start))
        with following(lab, name) as run:
            until_stored(run, lab, name)
        shutil.rmtree(lab.folder / "lab/follow")
    assert kinds(lab) == ["full", "log"]


@pytest.mark.long
def test_single_backups_and_following_continue_each_other(lab: Lab, topic: MakeTopic) -> None:
    name = topic("both", partitions=2)
    truth.produce(lab.bootstrap, name, rows_of(2, 20))
    lab.backup(name)
    truth.produce(lab.bootstrap, name, rows_of(2, 20, 20))
    with following(lab, name) as run:
        until_stored(run, lab, name)
        assert kinds(lab) == ["full", "log"]
    truth.produce(lab.bootstrap, name, rows_of(2, 20, 40))
    lab.backup(name)
    with following(lab, name) as run:
        truth.produce(lab.bootstrap, name, rows_of(2, 20, 60))
        until_stored(run, lab, name)
    assert kinds(lab)[:3] == ["full", "log", "differential"]
    assert set(kinds(lab)[3:]) == {"log"}


@pytest.mark.long
def test_following_includes_new_topics_and_partitions(lab: Lab, topic: MakeTopic) -> None:
    prefix = topic("grow")
    with following(lab, patterns=(f"{prefix}.*",)):
        truth.until(lambda: len(catalog_rows(lab)["scopes"]) == 1, "the empty topic")
        truth.create_topic(lab.bootstrap, f"{prefix}-later", 3)
        truth.until(
            lambda: {s["regions"] for s in catalog_rows(lab)["scopes"]} == {1, 3}, "the new empty topic"
        )
    truth.delete_topic(lab.bootstrap, f"{prefix}-later")


@pytest.mark.long
def test_a_refused_backup_ends_following(lab: Lab, topic: MakeTopic) -> None:
    name = topic("purged")
    truth.produce(lab.bootstrap, name, rows_of(1, 20))
    lab.backup(name)
    truth.produce(lab.bootstrap, name, rows_of(1, 20, 20))
    truth.delete_records(lab.bootstrap, name, {0: 30})
    with following(lab, name, on_gap="fail") as run:
        error = run.join()
        assert isinstance(error, Refused)
        assert "[20, 30)" in error.message
        assert "--on-gap" in error.hint
    assert kinds(lab) == ["full"]
    with following(lab, name, on_gap="continue"):
        truth.until(lambda: len(catalog_rows(lab)["gaps"]) == 1, "the gap")
    assert kinds(lab) == ["full", "log"]


@pytest.mark.long
def test_following_continues_beside_an_open_transaction_and_catches_up_after_its_abort(
    lab: Lab, topic: MakeTopic
) -> None:
    name, since_ts = topic("hangs", partitions=2), now_ms() - 100_000
    producer = Producer({"bootstrap.servers": lab.bootstrap, "transactional.id": f"h-{name}"})
    producer.init_transactions(30)
    truth.produce(lab.bootstrap, name, rows_of(2, 20))
    producer.begin_transaction()
    producer.produce(name, b"never committed", partition=0, timestamp=since_ts)
    producer.flush(30)
    truth.produce(lab.bootstrap, name, [Record(0, b"k", b"behind", (), since_ts + i) for i in range(5)])
    with following(lab, name) as run:
        until_stored(run, lab, name)
        for i in (1, 2):
            truth.produce(lab.bootstrap, name, [Record(1, b"k", b"beside %d" % i, (), since_ts)])
            until_stored(run, lab, name)
        assert lab.warnings.getvalue().count(f"topic {name}, partition 0: the backup ends at offset") == 1
        assert lab.sql("SELECT restorable_ts FROM rpo") == [{"restorable_ts": since_ts - 1}]
        producer.abort_transaction(30)
        until_stored(run, lab, name)
        truth.until(
            lambda: lab.sql("SELECT restorable_ts FROM rpo")[0]["restorable_ts"] > since_ts, "promised"
        )
    assert sum(row.value == b"behind" for row in truth.contents(lab.bootstrap, name)[0]) == 5
    result = run.join()
    assert isinstance(result, dict), result
    assert result["entries"] == 2 * 20 + 2 + 5


TOPIC = "orders"


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with Cluster(tmp_path_factory.mktemp("cluster")) as running:
        yield running


@pytest.fixture
def week(spark: SparkSession, cluster: Cluster, empty_catalog: Path, tmp_path: Path) -> Lab:
    return Lab(spark, cluster.bootstrap, tmp_path / "backups", empty_catalog)


class Orders:
    """The topic: partition 0 on nodes 1 and 2, partition 1 on nodes 3 and 2."""

    def __init__(self, bootstrap: str) -> None:
        self.bootstrap, self.record_count = bootstrap, 0
        self.admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})

    def make(self) -> None:
        config = {"unclean.leader.election.enable": "true", "retention.ms": "-1"}
        new_topic = NewTopic(TOPIC, 2, replica_assignment=[[1, 2], [3, 2]], config=config)
        self.admin.create_topics([new_topic])[TOPIC].result(30)
        truth.until(lambda: self.leader() == 1 and self.in_sync() == {1, 2}, "both have partition 0")

    def write(self, count: int, tag: str) -> None:
        records = [
            Record(i % 2, b"k%d" % i, f"{tag} {i}".encode(), (), 1_700_000_000_000 + self.record_count + i)
            for i in range(count)
        ]
        self.record_count += count
        truth.produce(self.bootstrap, TOPIC, records)

    def leader(self) -> int | None:
        partition = self._partition()
        return partition and int(partition.leader)

    def in_sync(self) -> set[int]:
        partition = self._partition()
        return set(partition.isrs) if partition else set()

    def elect(self, kind: ElectionType) -> None:
        self.admin.elect_leaders(kind, [TopicPartition(TOPIC, 0)]).result(30)

    def _partition(self) -> Any:
        """None while the brokers do not know of the topic yet."""
        return self.admin.list_topics(TOPIC, timeout=10).topics[TOPIC].partitions.get(0)


def check_fork(
    lab: Lab, parent_id: str, lost_ids: list[str], backed_up_to: int, entries: int
) -> dict[str, Any]:
    """Check the next backup after a fork, and return its result.

    It must continue from the backup `parent_id`, the last before the truncation, and set `lost_ids` out of
    sync. The newest of these has `entries` entries.
    """
    with pytest.raises(Refused, match="topic orders, partition 0") as refused:
        lab.backup(TOPIC, on_fork="fail")
    assert parent_id in str(refused.value.hint)
    plan = lab.backup(TOPIC, dry_run=True)
    assert (plan["parent"], set(plan["fork"]["out_of_sync"])) == (parent_id, set(lost_ids))
    assert "out_of_sync" not in states(lab)

    backup = lab.backup(TOPIC)
    assert backup["parent"] == parent_id
    assert backup["fork"]["partitions"] == [{"topic": TOPIC, "partition": "0", "backed_up_to": backed_up_to}]
    assert backup["fork"]["out_of_sync"] == lost_ids[::-1]
    rows_by_id = {row["backup_id"]: row for row in reader(lab).rows("every_backup")}
    assert {backup_id for backup_id, row in rows_by_id.items() if row["state"] == "out_of_sync"} == set(
        lost_ids
    )
    assert (rows_by_id[lost_ids[-1]]["branch"], rows_by_id[backup["backup_id"]]["branch"]) == (0, 1)
    assert "history was cut back" in lab.warnings.getvalue()
    lab.restore(TOPIC, maps={TOPIC: "now"})
    assert truth.contents(lab.bootstrap, "now") == truth.contents(lab.bootstrap, TOPIC)

    # An out_of_sync backup holds records that are nowhere else. It can still be restored by its name.
    select = f"SELECT path FROM files WHERE backup_id = '{lost_ids[-1]}'"
    restore = lab.restore(select=select, partial=True, target=f"dir:{lab.folder.parent / 'lost'}")
    assert restore["entries"] == entries
    with pytest.raises(Refused, match="cut from the history of topic orders"):
        lab.restore(TOPIC, maps={TOPIC: "copy"}, continued=True)
    return backup


def tree(lab: Lab) -> list[tuple[int, int]]:
    """The depth and the number of each backup, in the order in which the tree is drawn."""
    entries = in_order(reader(lab).rows("backup_tree", source="lab"))
    return [(depth, row["number"]) for depth, row in entries]


@pytest.mark.long
def test_a_lagging_replica_that_becomes_leader_starts_a_fork(week: Lab, cluster: Cluster) -> None:
    orders = Orders(cluster.bootstrap)
    first_node, second_node = cluster.nodes[:2]
    orders.make()
    orders.write(100, "sunday")
    week.backup(TOPIC, mode="full")
    orders.write(100, "monday")
    monday = week.backup(TOPIC)
    orders.write(20, "tuesday, early")
    second_node.kill()
    truth.until(lambda: orders.in_sync() == {1}, "the other replica is left behind")
    lost_ids = []
    for count, day in ((80, "tuesday"), (100, "wednesday")):
        orders.write(count, day)
        lost_ids.append(week.backup(TOPIC)["backup_id"])
    week.restore(TOPIC, maps={TOPIC: "copy"})

    first_node.kill()
    second_node.start()
    truth.until(lambda: orders.leader() == 2, "the replica that is behind leads")
    # New records fill the truncated offsets, so the end offset alone does not show the fork.
    orders.write(300, "thursday")
    thursday = check_fork(week, monday["backup_id"], lost_ids, 200, 100)
    # Partition 1 was not truncated. Its records are read again.
    assert thursday["entries"] == (10 + 150) + (10 + 40 + 50 + 150)
    assert tree(week) == [(0, 1), (1, 2), (2, 3), (3, 4), (1, 5)]

    # The old leader truncates its log and becomes leader again. That is a clean change of leaders, no fork.
    first_node.start()
    truth.until(lambda: orders.in_sync() == {1, 2}, "the old leader has caught up")
    orders.elect(ElectionType.PREFERRED)
    truth.until(lambda: orders.leader() == 1, "it leads again")
    orders.write(50, "friday")
    orders.admin.create_partitions([NewPartitions(TOPIC, 3, [[2, 3]])])[TOPIC].result(30)
    friday = week.backup(TOPIC)
    assert (friday["parent"], friday["fork"], friday["entries"]) == (thursday["backup_id"], None, 50)
    assert friday["partitions"] == 3

    truth.delete_topic(cluster.bootstrap, TOPIC)
    orders.make()
    orders.write(10, "saturday")
    saturday = week.backup(TOPIC)
    assert (saturday["parent"], saturday["fork"], saturday["entries"]) == (friday["backup_id"], None, 10)
    assert saturday["gaps"] == 3, "what came after the last backup of each partition is unknown"
    assert states(week) == {"complete": 5, "out_of_sync": 2}


@pytest.fixture
def single(spark: SparkSession, empty_catalog: Path, tmp_path: Path) -> Iterator[tuple[Broker, Lab]]:
    """A broker of one node with the topic, and a lab."""
    with Broker(tmp_path / "broker") as broker:
        truth.create_topic(broker.bootstrap, TOPIC, 2, retention_ms="-1")
        yield broker, Lab(spark, broker.bootstrap, tmp_path / "backups", empty_catalog)


def write(lab: Lab, tag: str, count: int) -> None:
    records = [Record(i % 2, None, f"{tag} {i}".encode(), (), 1_700_000_000_000) for i in range(count)]
    truth.produce(lab.bootstrap, TOPIC, records)


def back_up(lab: Lab, tag: str, *counts: int) -> list[str]:
    """Back up after writing each number of records. Returns the ids of the backups."""
    backup_ids = []
    for count in counts:
        write(lab, tag, count)
        backup_ids.append(lab.backup(TOPIC)["backup_id"])
    return backup_ids


def cut_back(broker: Broker, lab: Lab, *counts: int) -> list[str]:
    """Back up each number of records, then let the disk lose those of partition 0.

    Returns the ids of these backups.
    """
    log = broker.folder / "data" / f"{TOPIC}-0" / f"{0:020d}.log"
    size = log.stat().st_size
    lost_ids = back_up(lab, "lost", *counts)
    lab.restore(TOPIC, maps={TOPIC: "copy"})
    broker.kill()
    os.truncate(log, size)
    broker.start()
    # New records fill the truncated offsets, so the end offset alone does not show the fork.
    write(lab, "after", 100)
    return lost_ids


@pytest.mark.long
def test_a_disk_that_loses_records_starts_a_fork(single: tuple[Broker, Lab]) -> None:
    broker, lab = single
    [parent_id] = back_up(lab, "kept", 10)
    backup = check_fork(lab, parent_id, cut_back(broker, lab, 20, 30), 30, 30)
    # Partition 1 was not truncated. Its records are read again.
    assert backup["entries"] == 50 + (10 + 15 + 50)
    assert tree(lab) == [(0, 1), (1, 2), (2, 3), (1, 4)]


@pytest.mark.long
def test_an_older_disk_of_a_stopped_cluster_starts_a_fork(single: tuple[Broker, Lab], tmp_path: Path) -> None:
    """The leaders use the same epochs again, and the log grows past the end of the backups.

    Only a comparison of records shows the fork.
    """
    broker, lab = single
    [parent_id] = back_up(lab, "kept", 10)
    broker.stop()
    shutil.copytree(broker.folder / "data", tmp_path / "disk")
    broker.start()
    lost_ids = back_up(lab, "lost", 20, 30)
    broker.stop()
    shutil.rmtree(broker.folder / "data")
    shutil.copytree(tmp_path / "disk", broker.folder / "data")
    broker.start()
    write(lab, "after", 100)

    epochs = reader(lab).rows("region_ends", source="lab", base=parent_id, link=3, backups=None)
    kafka = LakeCluster({"bootstrap.servers": broker.bootstrap})
    _, regions = kafka.positions(kafka.describe([TOPIC]), "read_committed")
    assert {row["leader_epoch"] for row in epochs} == {r.leader_epoch for r in regions}
    backup = lab.backup(TOPIC)
    assert (backup["parent"], backup["fork"]["out_of_sync"]) == (parent_id, lost_ids[::-1])
    lab.restore(TOPIC, maps={TOPIC: "now"})
    assert truth.contents(broker.bootstrap, "now") == truth.contents(broker.bootstrap, TOPIC)
    assert lab.backup(TOPIC)["fork"] is None


@pytest.mark.long
def test_following_continues_after_a_disk_lost_records(single: tuple[Broker, Lab]) -> None:
    broker, lab = single
    [parent_id] = back_up(lab, "kept", 10)
    [lost_id] = cut_back(broker, lab, 10)
    with following(lab, TOPIC) as run:

        def continued() -> bool:
            assert not run.outcomes, str(run.outcomes[0])
            return states(lab) == {"complete": 2, "out_of_sync": 1}

        truth.until(continued, "it goes on", 180)
    *_, last_backup = reader(lab).rows("every_backup")
    assert (last_backup["kind"], last_backup["parent"]) == ("log", parent_id)
    (lost_backup,) = (row for row in reader(lab).rows("every_backup") if row["state"] == "out_of_sync")
    assert lost_backup["backup_id"] == lost_id


def reader(lab: Lab) -> CatalogReader:
    return CatalogReader(str(lab.folder))


def states(lab: Lab) -> dict[str, int]:
    return dict(Counter(row["state"] for row in reader(lab).rows("every_backup")))
