"""Following topics, and logs that are cut behind what was backed up, by a disk or by a replica."""

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
from tests.support.faults import rows_of, shown
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


Make = Callable[..., str]


def test_batches_are_backups_that_continue_each_other(
    lab: Lab, topic: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    tidied: list[int] = []
    monkeypatch.setattr(stream, "SMALL_FILES", 2)
    monkeypatch.setattr(CatalogWriter, "merge_small_files", lambda _, most: tidied.append(most))
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
    assert tidied == [2] * (result["backups"] // 2)
    copy = topic("copy", partitions=2)
    lab.restore(name, maps={name: copy})
    assert truth.contents(lab.bootstrap, copy) == truth.contents(lab.bootstrap, name)
    before = shown(lab)
    (lab.folder / "catalog").rename(lab.folder.parent / "lost")
    rebuild(lab.spark, str(lab.folder))
    for relation, rows in shown(lab).items():
        assert sorted(map(str, rows)) == sorted(map(str, before[relation])), relation


@pytest.mark.long
def test_a_lost_checkpoint_loses_nothing(lab: Lab, topic: Make) -> None:
    name = topic("lost", partitions=2)
    for start in (0, 20):
        truth.produce(lab.bootstrap, name, rows_of(2, 20, start))
        with following(lab, name) as run:
            until_stored(run, lab, name)
        shutil.rmtree(lab.folder / "lab/follow")
    assert kinds(lab) == ["full", "log"]


@pytest.mark.long
def test_single_backups_and_following_continue_each_other(lab: Lab, topic: Make) -> None:
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
def test_new_topics_and_partitions_come_along(lab: Lab, topic: Make) -> None:
    prefix = topic("grow")
    with following(lab, patterns=(f"{prefix}.*",)):
        truth.until(lambda: len(shown(lab)["scopes"]) == 1, "the empty topic")
        truth.create_topic(lab.bootstrap, f"{prefix}-later", 3)
        truth.until(lambda: {s["regions"] for s in shown(lab)["scopes"]} == {1, 3}, "the new empty topic")
    truth.delete_topic(lab.bootstrap, f"{prefix}-later")


@pytest.mark.long
def test_what_refuses_a_backup_ends_following(lab: Lab, topic: Make) -> None:
    name = topic("purged")
    truth.produce(lab.bootstrap, name, rows_of(1, 20))
    lab.backup(name)
    truth.produce(lab.bootstrap, name, rows_of(1, 20, 20))
    truth.delete_records(lab.bootstrap, name, {0: 30})
    with following(lab, name, on_gap="fail") as run:
        ended = run.join()
        assert isinstance(ended, Refused)
        assert "[20, 30)" in ended.message
        assert "--on-gap" in ended.hint
    assert kinds(lab) == ["full"]
    with following(lab, name, on_gap="continue"):
        truth.until(lambda: len(shown(lab)["gaps"]) == 1, "the gap")
    assert kinds(lab) == ["full", "log"]


@pytest.mark.long
def test_following_goes_on_beside_a_hanging_transaction_and_catches_up_when_it_is_aborted(
    lab: Lab, topic: Make
) -> None:
    name, since = topic("hangs", partitions=2), now_ms() - 100_000
    hanging = Producer({"bootstrap.servers": lab.bootstrap, "transactional.id": f"h-{name}"})
    hanging.init_transactions(30)
    truth.produce(lab.bootstrap, name, rows_of(2, 20))
    hanging.begin_transaction()
    hanging.produce(name, b"never committed", partition=0, timestamp=since)
    hanging.flush(30)
    truth.produce(lab.bootstrap, name, [Record(0, b"k", b"behind", (), since + i) for i in range(5)])
    with following(lab, name) as run:
        until_stored(run, lab, name)
        for i in (1, 2):
            truth.produce(lab.bootstrap, name, [Record(1, b"k", b"beside %d" % i, (), since)])
            until_stored(run, lab, name)
        assert lab.warnings.getvalue().count(f"topic {name}, partition 0: the backup ends at offset") == 1
        assert lab.sql("SELECT restorable_ts FROM rpo") == [{"restorable_ts": since - 1}]
        hanging.abort_transaction(30)
        until_stored(run, lab, name)
        truth.until(lambda: lab.sql("SELECT restorable_ts FROM rpo")[0]["restorable_ts"] > since, "promised")
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
        self.bootstrap, self.written = bootstrap, 0
        self.admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})

    def make(self) -> None:
        config = {"unclean.leader.election.enable": "true", "retention.ms": "-1"}
        wanted = NewTopic(TOPIC, 2, replica_assignment=[[1, 2], [3, 2]], config=config)
        self.admin.create_topics([wanted])[TOPIC].result(30)
        truth.until(lambda: self.leader() == 1 and self.in_sync() == {1, 2}, "both have partition 0")

    def write(self, count: int, tag: str) -> None:
        rows = [
            Record(i % 2, b"k%d" % i, f"{tag} {i}".encode(), (), 1_700_000_000_000 + self.written + i)
            for i in range(count)
        ]
        self.written += count
        truth.produce(self.bootstrap, TOPIC, rows)

    def leader(self) -> int | None:
        found = self._partition()
        return found and int(found.leader)

    def in_sync(self) -> set[int]:
        found = self._partition()
        return set(found.isrs) if found else set()

    def elect(self, kind: ElectionType) -> None:
        self.admin.elect_leaders(kind, [TopicPartition(TOPIC, 0)]).result(30)

    def _partition(self) -> Any:
        """None while the brokers do not know of the topic yet."""
        return self.admin.list_topics(TOPIC, timeout=10).topics[TOPIC].partitions.get(0)


def set_aside(lab: Lab, kept: str, lost: list[str], backed_up_to: int, entries: int) -> dict[str, Any]:
    """The next backup goes on from `kept`, the last before the cut; the newest lost has `entries`."""
    with pytest.raises(Refused, match="topic orders, partition 0") as refused:
        lab.backup(TOPIC, on_fork="fail")
    assert kept in str(refused.value.hint)
    planned = lab.backup(TOPIC, dry_run=True)
    assert (planned["parent"], set(planned["fork"]["out_of_sync"])) == (kept, set(lost))
    assert "out_of_sync" not in states(lab)

    after = lab.backup(TOPIC)
    assert after["parent"] == kept
    assert after["fork"]["partitions"] == [{"topic": TOPIC, "partition": "0", "backed_up_to": backed_up_to}]
    assert after["fork"]["out_of_sync"] == lost[::-1]
    rows = {row["backup_id"]: row for row in reader(lab).rows("every_backup")}
    assert {name for name, row in rows.items() if row["state"] == "out_of_sync"} == set(lost)
    assert (rows[lost[-1]]["branch"], rows[after["backup_id"]]["branch"]) == (0, 1)
    assert "history was cut back" in lab.warnings.getvalue()
    lab.restore(TOPIC, maps={TOPIC: "now"})
    assert truth.contents(lab.bootstrap, "now") == truth.contents(lab.bootstrap, TOPIC)

    # Records that are nowhere else any more: by name, what is out of sync can still be read.
    chosen = f"SELECT path FROM files WHERE backup_id = '{lost[-1]}'"
    read = lab.restore(select=chosen, partial=True, target=f"dir:{lab.folder.parent / 'lost'}")
    assert read["entries"] == entries
    with pytest.raises(Refused, match="cut from the history of topic orders"):
        lab.restore(TOPIC, maps={TOPIC: "copy"}, continued=True)
    return after


def tree(lab: Lab) -> list[tuple[int, int]]:
    """Depth and number of each backup, as they are drawn."""
    drawn = in_order(reader(lab).rows("backup_tree", source="lab"))
    return [(depth, row["number"]) for depth, row in drawn]


@pytest.mark.long
def test_a_replica_that_is_behind_takes_over(week: Lab, cluster: Cluster) -> None:
    orders = Orders(cluster.bootstrap)
    first, second = cluster.nodes[:2]
    orders.make()
    orders.write(100, "sunday")
    week.backup(TOPIC, mode="full")
    orders.write(100, "monday")
    monday = week.backup(TOPIC)
    orders.write(20, "tuesday, early")
    second.kill()
    truth.until(lambda: orders.in_sync() == {1}, "the other replica is left behind")
    lost = []
    for count, day in ((80, "tuesday"), (100, "wednesday")):
        orders.write(count, day)
        lost.append(week.backup(TOPIC)["backup_id"])
    week.restore(TOPIC, maps={TOPIC: "copy"})

    first.kill()
    second.start()
    truth.until(lambda: orders.leader() == 2, "the replica that is behind leads")
    # Offsets that were backed up hold other records now: the end alone would not tell.
    orders.write(300, "thursday")
    thursday = set_aside(week, monday["backup_id"], lost, 200, 100)
    # What is on partition 1 was not cut, and was read again.
    assert thursday["entries"] == (10 + 150) + (10 + 40 + 50 + 150)
    assert tree(week) == [(0, 1), (1, 2), (2, 3), (3, 4), (1, 5)]

    # The old leader cuts its log and comes back as leader, in good order: that is no fork.
    first.start()
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
    """A broker of one node with the topic, and a destination."""
    with Broker(tmp_path / "broker") as broker:
        truth.create_topic(broker.bootstrap, TOPIC, 2, retention_ms="-1")
        yield broker, Lab(spark, broker.bootstrap, tmp_path / "backups", empty_catalog)


def write(lab: Lab, tag: str, count: int) -> None:
    rows = [Record(i % 2, None, f"{tag} {i}".encode(), (), 1_700_000_000_000) for i in range(count)]
    truth.produce(lab.bootstrap, TOPIC, rows)


def taken(lab: Lab, tag: str, *counts: int) -> list[str]:
    """A backup behind each so many records."""
    found = []
    for count in counts:
        write(lab, tag, count)
        found.append(lab.backup(TOPIC)["backup_id"])
    return found


def cut_back(broker: Broker, lab: Lab, *lost: int) -> list[str]:
    """Backups of so many records each, of which the disk loses those of partition 0."""
    log = broker.folder / "data" / f"{TOPIC}-0" / f"{0:020d}.log"
    size = log.stat().st_size
    gone = taken(lab, "lost", *lost)
    lab.restore(TOPIC, maps={TOPIC: "copy"})
    broker.kill()
    os.truncate(log, size)
    broker.start()
    # Offsets that were backed up hold other records now: the end alone would not tell.
    write(lab, "after", 100)
    return gone


@pytest.mark.long
def test_a_disk_loses_records(single: tuple[Broker, Lab]) -> None:
    broker, lab = single
    [kept] = taken(lab, "kept", 10)
    after = set_aside(lab, kept, cut_back(broker, lab, 20, 30), 30, 30)
    # What is on partition 1 was not cut, and was read again.
    assert after["entries"] == 50 + (10 + 15 + 50)
    assert tree(lab) == [(0, 1), (1, 2), (2, 3), (1, 4)]


@pytest.mark.long
def test_a_stopped_cluster_is_put_back_to_an_older_disk(single: tuple[Broker, Lab], tmp_path: Path) -> None:
    """Its leaders use the same epochs again, and the log grows past what was backed up: only records tell."""
    broker, lab = single
    [kept] = taken(lab, "kept", 10)
    broker.stop()
    shutil.copytree(broker.folder / "data", tmp_path / "disk")
    broker.start()
    lost = taken(lab, "lost", 20, 30)
    broker.stop()
    shutil.rmtree(broker.folder / "data")
    shutil.copytree(tmp_path / "disk", broker.folder / "data")
    broker.start()
    write(lab, "after", 100)

    epochs = reader(lab).rows("region_ends", source="lab", base=kept, link=3, backups=None)
    asked = LakeCluster({"bootstrap.servers": broker.bootstrap})
    _, regions = asked.positions(asked.describe([TOPIC]), "read_committed")
    assert {row["leader_epoch"] for row in epochs} == {r.leader_epoch for r in regions}
    after = lab.backup(TOPIC)
    assert (after["parent"], after["fork"]["out_of_sync"]) == (kept, lost[::-1])
    lab.restore(TOPIC, maps={TOPIC: "now"})
    assert truth.contents(broker.bootstrap, "now") == truth.contents(broker.bootstrap, TOPIC)
    assert lab.backup(TOPIC)["fork"] is None


@pytest.mark.long
def test_following_goes_on_behind_a_disk_that_lost_records(single: tuple[Broker, Lab]) -> None:
    broker, lab = single
    [kept] = taken(lab, "kept", 10)
    [lost] = cut_back(broker, lab, 10)
    with following(lab, TOPIC) as run:

        def there() -> bool:
            assert not run.ended, str(run.ended[0])
            return states(lab) == {"complete": 2, "out_of_sync": 1}

        truth.until(there, "it goes on", 180)
    *_, last = reader(lab).rows("every_backup")
    assert (last["kind"], last["parent"]) == ("log", kept)
    (gone,) = (row for row in reader(lab).rows("every_backup") if row["state"] == "out_of_sync")
    assert gone["backup_id"] == lost


def reader(lab: Lab) -> CatalogReader:
    return CatalogReader(str(lab.folder))


def states(lab: Lab) -> dict[str, int]:
    return dict(Counter(row["state"] for row in reader(lab).rows("every_backup")))
