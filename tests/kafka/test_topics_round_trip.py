"""Topics backed up, lost and restored on a real broker, judged by confluent-kafka alone."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable, Collection
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import pyarrow.parquet as pq
import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from deltalake import DeltaTable
from tests.support import kafka_truth as truth
from tests.support.disks import flip
from tests.support.faults import catalog_rows, rows_of, stored_records
from tests.support.kafka_truth import Record
from tests.support.runs import Lab, now_ms

from lakebackup.errors import Damaged, EnvironmentProblem, Incomplete, LakebackupError, Refused, UsageProblem
from lakebackup.store.reader import CatalogReader
from lakebackup_jobs.kafka.admin.cluster import Cluster
from lakebackup_jobs.targets import kafka
from lakebackup_jobs.topics import backup

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

    from lakebackup_jobs.demo.broker import Broker

pytestmark = [pytest.mark.spark, pytest.mark.kafka]


MakeTopic = Callable[..., str]


def mixed_records(partition: int, count: int, start: int = 1_600_000_000_000) -> list[Record]:
    """Records with null keys, tombstones, empty values and keys, odd headers, and unordered times."""
    records = []
    for i in range(count):
        key = None if i % 7 == 0 else b"" if i % 11 == 0 else b"key-%d" % (i % 50)
        value = None if i % 5 == 3 and key is not None else b"" if i % 13 == 0 else b"value %d " % i * (i % 9)
        headers: tuple[tuple[str, bytes | None], ...] = ()
        if i % 4 == 0:
            headers = (("h", b"1"), ("h", None), ("", b""), ("h", b"2"))
        records.append(Record(partition, key, value, headers, start + (i * 7919) % 100_000))
    return records


def reader(lab: Lab) -> CatalogReader:
    return CatalogReader.require(str(lab.folder), None)


OLD_MS, LATER_MS = 1_600_000_000_000, 1_700_000_000_000


@dataclass(frozen=True)
class SharedBackups:
    """Three backups of one topic, shared by tests that only read them."""

    lab: Lab
    name: str
    rows: dict[int, list[Record]]
    backups: list[dict[str, Any]]


@pytest.fixture(scope="module")
def shared(
    spark: SparkSession, broker: Broker, empty_catalog: Path, tmp_path_factory: pytest.TempPathFactory
) -> SharedBackups:
    lab = Lab(spark, broker.bootstrap, tmp_path_factory.mktemp("kept") / "backups", empty_catalog)
    name = f"kept-{uuid4().hex[:8]}"
    truth.create_topic(broker.bootstrap, name, 2, retention_ms="-1")
    first_records, later_records = (
        mixed_records(0, 400) + mixed_records(1, 60),
        mixed_records(1, 40, start=LATER_MS),
    )
    backups = []
    for records in (first_records, later_records, []):
        truth.produce(broker.bootstrap, name, records)
        backups.append(lab.backup(name))
    truth.delete_topic(broker.bootstrap, name)
    return SharedBackups(
        lab,
        name,
        {
            partition: [r for r in first_records + later_records if r.partition == partition]
            for partition in (0, 1)
        },
        backups,
    )


def test_records_of_every_kind_are_restored_in_order(lab: Lab, topic: MakeTopic) -> None:
    name = topic("mixed", partitions=3, **{"max.message.bytes": "2000000"})
    records = [r for partition in range(3) for r in mixed_records(partition, 500)]
    records.append(Record(1, b"large", b"x" * 1_000_000, (), 1_600_000_000_000))
    truth.produce(lab.bootstrap, name, records)
    records_before = truth.contents(lab.bootstrap, name)
    settings = truth.settings(lab.bootstrap, name)

    result = lab.backup(name)
    assert (result["kind"], result["entries"], result["files"]) == ("full", 1501, 3)
    truth.delete_topic(lab.bootstrap, name)
    restored = lab.restore(name)

    assert restored["entries"] == 1501
    assert truth.contents(lab.bootstrap, name) == records_before
    assert truth.settings(lab.bootstrap, name) == settings


def test_a_second_backup_holds_only_new_records_and_the_chain_restores_both(
    shared: SharedBackups, topic: MakeTopic
) -> None:
    first_backup, second_backup, third_backup = shared.backups
    assert (second_backup["kind"], second_backup["parent"], second_backup["entries"]) == (
        "differential",
        first_backup["backup_id"],
        40,
    )
    assert (third_backup["kind"], third_backup["entries"], third_backup["files"]) == ("differential", 0, 0)
    paths = sorted(
        row["path"].rpartition("/")[2]
        for row in reader(shared.lab).rows("list_files", backup_id=second_backup["backup_id"])
    )
    assert paths == [f"{shared.name}+1-0000000001.data"]

    copy_topic = topic("copy", partitions=2)
    shared.lab.restore(shared.name, maps={shared.name: copy_topic})
    assert truth.contents(shared.lab.bootstrap, copy_topic) == shared.rows
    # A target that holds records is refused without `append`.
    with pytest.raises(Refused, match="holds records already"):
        shared.lab.restore(shared.name, maps={shared.name: copy_topic}, to_ts=OLD_MS + 1)
    shared.lab.restore(shared.name, maps={shared.name: copy_topic}, to_ts=OLD_MS + 1, append=True)
    early_records = {
        partition: [r for r in rows if r.timestamp <= OLD_MS + 1] for partition, rows in shared.rows.items()
    }
    assert truth.contents(shared.lab.bootstrap, copy_topic) == {
        partition: shared.rows[partition] + early_records[partition] for partition in (0, 1)
    }


def test_a_small_backup_of_a_topic_without_files_needs_no_spark(lab: Lab, topic: MakeTopic) -> None:
    lab.make_catalog()
    known_topic, new_topic = topic("known"), topic("new")

    def run_backup(*names: str, **changes: Any) -> dict[str, Any]:
        return backup.run(lab.topics_request(names, **changes), reporter=lab.reporter)

    truth.produce(lab.bootstrap, known_topic, [Record(0, b"k", b"v", (), OLD_MS)])
    run_backup(known_topic, runner="local")
    truth.produce(lab.bootstrap, new_topic, mixed_records(0, 100))
    result = run_backup(known_topic, new_topic)
    assert (result["kind"], result["entries"]) == ("differential", 100)
    assert [row["runner"] for row in lab.sql("SELECT DISTINCT runner FROM backups")] == ["local"]


def test_a_restore_to_a_time_keeps_the_records_at_or_before_it(
    shared: SharedBackups, topic: MakeTopic
) -> None:
    copy_topic = topic("then", partitions=2)
    from_ts, to_ts = shared.rows[0][10].timestamp, shared.rows[0][11].timestamp
    assert OLD_MS < from_ts < to_ts < OLD_MS + 100_000
    shared.lab.restore(shared.name, maps={shared.name: copy_topic}, from_ts=from_ts, to_ts=to_ts)
    assert truth.contents(shared.lab.bootstrap, copy_topic) == {
        partition: [r for r in rows if from_ts < r.timestamp <= to_ts]
        for partition, rows in shared.rows.items()
    }


def test_uncommitted_records_are_left_out_until_their_transaction_commits(lab: Lab, topic: MakeTopic) -> None:
    name, copy_topic = topic("transactions"), topic("transactions-copy")
    truth.produce(lab.bootstrap, name, mixed_records(0, 10), **{"transactional.id": f"a-{name}"})
    aborted_records = [Record(0, b"k", b"aborted", (), OLD_MS)]
    truth.produce(lab.bootstrap, name, aborted_records, commit=False, **{"transactional.id": f"a-{name}"})
    producer = Producer({"bootstrap.servers": lab.bootstrap, "transactional.id": f"b-{name}"})
    producer.init_transactions(30)
    producer.begin_transaction()
    producer.produce(name, b"still open", b"k", 0, timestamp=1_600_000_000_000)
    producer.flush(30)

    assert lab.backup(name)["entries"] == 10
    producer.commit_transaction(30)
    assert lab.backup(name)["entries"] == 1
    lab.restore(name, maps={name: copy_topic})
    assert truth.contents(lab.bootstrap, copy_topic) == truth.contents(lab.bootstrap, name)


def test_records_after_an_open_transaction_are_reported_and_not_promised(lab: Lab, topic: MakeTopic) -> None:
    name, since_ts = topic("hangs"), now_ms() - 100_000
    rpo_query = f"SELECT restorable_ts, covered_ts FROM rpo WHERE scope = '{name}'"
    truth.produce(lab.bootstrap, name, mixed_records(0, 10))
    producer = Producer({"bootstrap.servers": lab.bootstrap, "transactional.id": f"h-{name}"})
    producer.init_transactions(30)
    producer.begin_transaction()
    producer.produce(name, b"hidden", partition=0, timestamp=since_ts)
    producer.flush(30)
    truth.produce(lab.bootstrap, name, mixed_records(0, 20, since_ts + 1))
    result = lab.backup(name)
    (sentence,) = result["open_transactions"]
    assert f"topic {name}, partition 0: the backup ends at offset 10" in sentence
    assert "20 offsets after it" in sentence
    assert lab.sql(rpo_query) == [{"restorable_ts": since_ts - 1, "covered_ts": since_ts - 1}]
    with pytest.raises(Refused, match=f"{name} is covered until"):
        lab.restore(name, to_ts=since_ts, dry_run=True)
    producer.commit_transaction(30)
    result = lab.backup(name)
    assert (result["open_transactions"], result["entries"]) == ([], 21)
    assert lab.sql(rpo_query) == [{"restorable_ts": result["end_ts"], "covered_ts": result["end_ts"]}]


def test_topics_with_log_append_time_keep_their_times_and_their_setting(lab: Lab, topic: MakeTopic) -> None:
    name = topic("appended", **{"message.timestamp.type": "LogAppendTime"})
    truth.produce(lab.bootstrap, name, mixed_records(0, 50))
    records_before = truth.contents(lab.bootstrap, name)
    lab.backup(name)
    truth.delete_topic(lab.bootstrap, name)
    lab.restore(name)
    assert truth.contents(lab.bootstrap, name) == records_before
    assert truth.settings(lab.bootstrap, name)["message.timestamp.type"] == "LogAppendTime"


@pytest.mark.long
def test_deleted_records_are_a_gap_and_start_a_new_generation_by_default(lab: Lab, topic: MakeTopic) -> None:
    # Offsets 0 to 19 are backed up, 20 to 39 produced, everything below 30 deleted.
    name, copy_topic = topic("gap"), topic("gap-copy")
    truth.produce(lab.bootstrap, name, mixed_records(0, 20))
    lab.backup(name)
    between_ts = now_ms()
    truth.produce(lab.bootstrap, name, mixed_records(0, 20))
    truth.delete_records(lab.bootstrap, name, {0: 30})
    result = lab.backup(name)

    assert (result["kind"], result["entries"]) == ("differential", 10)
    assert result["generations"] == [{"topic": name, "generation": 1, "because": "purged"}]
    assert f"topic {name}, partition 0: offsets [20, 30) were deleted" in lab.warnings.getvalue()
    (gap,) = reader(lab).rows("restore_gaps", source="lab", scopes=name, to_ts=between_ts)
    assert (gap["from_position"], gap["to_position"], gap["reason"]) == (20, 30, "purged")
    with pytest.raises(Refused, match=r"nearest restorable time before: .* after: "):
        lab.restore(name, maps={name: copy_topic}, to_ts=between_ts)
    lab.restore(name, maps={name: copy_topic})
    assert truth.contents(lab.bootstrap, copy_topic) == truth.contents(lab.bootstrap, name)

    # With on_gap="continue" the chain continues over the next gap, and a restore must allow gaps.
    truth.produce(lab.bootstrap, name, mixed_records(0, 20))
    truth.delete_records(lab.bootstrap, name, {0: 50})
    assert lab.backup(name, on_gap="continue")["kind"] == "differential"
    target = f"dir:{lab.folder.parent / 'out'}"
    with pytest.raises(Refused, match="offsets from 40 to 50 were deleted"):
        lab.restore(name, target=target)
    assert lab.restore(name, target=target, allow_gaps=True)["entries"] == 10 + 10
    (audit,) = DeltaTable(str(lab.folder / "catalog" / "audit")).to_pyarrow_table().to_pylist()
    assert (audit["action"], len(json.loads(audit["detail"]))) == ("restore with gaps", 1)


def test_a_dry_run_shows_its_plan_and_writes_nothing(lab: Lab, topic: MakeTopic) -> None:
    name = topic("dry", partitions=2)
    truth.produce(lab.bootstrap, name, mixed_records(0, 10))
    plan = lab.backup(name, dry_run=True)
    assert (plan["kind"], plan["offsets"]) == ("full", 10)
    assert not lab.folder.exists() or not any(lab.folder.rglob("*"))
    lab.backup(name)
    paths_before = sorted(lab.folder.rglob("*"))
    plan = lab.restore(name, dry_run=True, maps={name: "elsewhere"})
    assert "SELECT" in plan["selection"]
    assert plan["topics"][0] | {"reaches": None, "bytes": None} == {
        "topic": name, "target": "elsewhere", "backup_id": plan["topics"][0]["backup_id"],
        "partitions": 2, "files": 1, "bytes": None, "entries": 10, "reaches": None,
    }  # fmt: skip
    assert plan["target_topics"] == [{"target": "elsewhere", "action": "create", "refused_because": None}]
    assert sorted(lab.folder.rglob("*")) == paths_before


def test_a_select_chooses_exact_files_and_an_incomplete_choice_is_refused(
    shared: SharedBackups, topic: MakeTopic, tmp_path: Path
) -> None:
    lab, copy_topic = shared.lab, topic("chosen-copy", partitions=2)
    partition_select = f"SELECT * FROM files WHERE scope = '{shared.name}' AND region = '1'"
    assert lab.restore(select=partition_select, maps={shared.name: copy_topic})["entries"] == 100
    assert truth.contents(lab.bootstrap, copy_topic) == {1: shared.rows[1]}
    late_select = (
        f"SELECT destination, path FROM files WHERE scope = '{shared.name}' AND min_ts >= {LATER_MS}"
    )
    with pytest.raises(Refused, match="takes 1 of the 2 files"):
        lab.restore(select=late_select, target=f"dir:{tmp_path / 'out'}")
    assert lab.restore(select=late_select, partial=True, target=f"dir:{tmp_path / 'out'}")["entries"] == 40
    with pytest.raises(UsageProblem):
        lab.restore(select="SELECT * FROM read_parquet('/etc/passwd')")


@pytest.mark.long
def test_a_topic_is_restored_into_a_delta_table(
    shared: SharedBackups, spark: SparkSession, tmp_path: Path
) -> None:
    path = tmp_path / "table"
    shared.lab.restore(shared.name, target=f"delta:{path}", maps={shared.name: "renamed"})
    table = spark.read.format("delta").load(str(path)).orderBy("partition", "offset").collect()
    assert {row.topic for row in table} == {"renamed"}
    restored = [
        Record(
            r.partition,
            None if r.key is None else bytes(r.key),
            None if r.value is None else bytes(r.value),
            tuple((h.key, None if h.value is None else bytes(h.value)) for h in r.headers),
            r.timestamp,
        )
        for r in table
    ]
    assert restored == shared.rows[0] + shared.rows[1]
    with pytest.raises(Refused, match="there is a Delta table"):
        shared.lab.restore(shared.name, target=f"delta:{path}")
    # Only the added rows are counted.
    options: dict[str, Any] = {"target": f"delta:{path}", "maps": {shared.name: "renamed"}, "append": True}
    early_count = sum(row.timestamp <= OLD_MS + 1 for rows in shared.rows.values() for row in rows)
    assert shared.lab.restore(shared.name, to_ts=OLD_MS + 1, **options)["entries"] == early_count
    assert spark.read.format("delta").load(str(path)).count() == len(table) + early_count


# The records of a topic are written in each format. Those of a SELECT come from Spark.
def test_a_topic_is_restored_into_one_file_of_each_format(shared: SharedBackups, tmp_path: Path) -> None:
    expected = [record for partition in sorted(shared.rows) for record in shared.rows[partition]]
    for form in ("csv", "json", "parquet"):
        path = tmp_path / f"records.{form}"
        assert shared.lab.restore(shared.name, target=f"{form}:{path}")["entries"] == len(expected)
        assert file_records(path, form) == expected
    query = f"SELECT partition, key, upper(value) AS value, headers, ts FROM records('{shared.name}')"
    path = tmp_path / "selected.parquet"
    shared.lab.restore(records=query, target=f"parquet:{path}")
    assert file_records(path, "parquet") == [replace(r, value=r.value and r.value.upper()) for r in expected]


def file_records(path: Path, form: str) -> list[Record]:
    """The records of a file, read by Python's and pyarrow's own readers. No value looks like a formula."""
    if form == "parquet":
        return [
            Record(
                row["partition"], row["key"], row["value"],
                tuple((pair["key"], pair["value"]) for pair in row["headers"]), row["ts"],
            )
            for row in pq.read_table(path).to_pylist()
        ]  # fmt: skip
    with path.open(encoding="utf-8", newline="") as lines:
        rows = [*csv.DictReader(lines)] if form == "csv" else [json.loads(line) for line in lines]
    return [
        Record(
            int(row["partition"]),
            row["key"].encode() if row["key_encoding"] else None,
            row["value"].encode() if row["value_encoding"] else None,
            tuple(
                (name, None if value is None else value.encode())
                for name, value in (json.loads(row["headers"]) if form == "csv" else row["headers"])
            ),
            int(row["ts"]),
        )
        for row in rows
    ]


@pytest.mark.long
def test_a_backup_moved_to_another_place_still_restores_and_verifies(lab: Lab, topic: MakeTopic) -> None:
    name, copy_topic = topic("moved"), topic("moved-copy")
    truth.produce(lab.bootstrap, name, mixed_records(0, 10))
    lab.backup(name)
    lab.folder = lab.folder.rename(lab.folder.with_name("elsewhere"))
    assert lab.restore(name, maps={name: copy_topic})["entries"] == 10
    verification = lab.verify(mode="restore")
    assert (verification["ok"], verification["damaged"], verification["missing"]) == (3, 0, 0)


def test_damage_is_detected_by_a_restore_and_by_verify(lab: Lab, topic: MakeTopic) -> None:
    name, copy_topic = topic("verify", partitions=3), topic("verify-copy", partitions=3)
    truth.produce(lab.bootstrap, name, mixed_records(0, 50) + mixed_records(1, 50) + mixed_records(2, 50))
    result = lab.backup(name)
    first_check = lab.verify(mode="decode")
    assert (first_check["ok"], first_check["missing"], first_check["changed"], first_check["orphan"]) == (
        4,
        0,
        0,
        0,
    )
    first_file, second_file, _ = sorted(lab.folder.glob("lab/*/topics/*/partition=*/*.data"))
    flip(second_file, -20)
    with pytest.raises(Damaged, match=r"is not what was written"):
        lab.restore(name, maps={name: copy_topic})
    assert 1 not in truth.contents(lab.bootstrap, copy_topic)

    first_file.unlink()
    (second_file.parent / "stray.data").write_bytes(b"left over")
    second_check = lab.verify()
    assert (second_check["missing"], second_check["changed"], second_check["orphan"]) == (1, 1, 1)
    with pytest.raises(Refused, match="was missing when it was last checked"):
        lab.restore(name, target="dir:" + str(lab.folder.parent / "out"))
    assert result["backup_id"] in {finding["backup_id"] for finding in second_check["findings"]}


def test_files_are_rolled_by_the_retention_of_the_topic(lab: Lab, topic: MakeTopic) -> None:
    """A file spans a tenth of the retention. It is not limited if nothing is deleted by time.

    An explicit roll_ms replaces this.
    """
    year_ms = 365 * 24 * 3_600_000
    own_topic = topic("own", **{"retention.ms": str(20 * year_ms)})
    kept_topic, compacted_topic = topic("kept"), topic("compacted", **{"cleanup.policy": "compact"})
    for name in (own_topic, kept_topic, compacted_topic):
        times = (OLD_MS, OLD_MS + year_ms, OLD_MS + 2 * year_ms, OLD_MS + 2 * year_ms + 1)
        truth.produce(lab.bootstrap, name, [Record(0, b"k%d" % ts, b"v", (), ts) for ts in times])
    assert lab.backup(own_topic, kept_topic, compacted_topic, groups="none")["files"] == 2 + 1 + 1
    assert lab.backup(own_topic, mode="full", roll_ms=0, groups="none")["files"] == 1
    assert lab.backup(own_topic, kept_topic, mode="full", roll_ms=year_ms, groups="none")["files"] == 4


def numbered_records(value: bytes, count: int) -> list[Record]:
    return [Record(i % 2, b"k%d" % i, value, (), 1_600_000_000_000 + i) for i in range(count)]


@pytest.mark.long
def test_a_saved_plan_is_executed_and_resumed_with_its_files(
    lab: Lab, topic: MakeTopic, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    name, copy_topic = topic("planned", partitions=2), topic("copy", partitions=2)
    truth.produce(lab.bootstrap, name, numbered_records(b"first", 60))
    lab.backup(name)
    expected = truth.contents(lab.bootstrap, name)
    plan_path = str(tmp_path / "plan.json")
    plan = lab.restore(name, maps={name: copy_topic}, dry_run=True, save_plan=plan_path)
    assert (plan["files"], plan["entries_in_files"]) == (2, 60)

    def die(*_arguments: Any) -> None:
        raise EnvironmentProblem("the power went out")

    with monkeypatch.context() as patch:
        patch.setattr(kafka.KafkaTarget, "write", die)
        with pytest.raises(EnvironmentProblem, match="power"):
            lab.restore(plan=plan_path)
    truth.produce(lab.bootstrap, name, numbered_records(b"later", 10))
    lab.backup(name)
    restore = lab.restore(plan=plan_path)
    assert (restore["resumed"], restore["entries"]) == (True, 60)
    assert truth.contents(lab.bootstrap, copy_topic) == expected
    with pytest.raises(Refused, match="2 files that it did not have came in"):
        lab.restore(plan=plan_path)
    # Records of later backups count as not restored yet.
    assert lab.restore(name, maps={name: copy_topic}, continued=True)["entries"] == 10
    assert truth.contents(lab.bootstrap, copy_topic) == truth.contents(lab.bootstrap, name)


def partitions(bootstrap: str, topic: str) -> int:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    return len(admin.list_topics(topic, timeout=30).topics[topic].partitions)


@pytest.mark.long
def test_two_sources_in_one_catalog(lab: Lab, topic: MakeTopic) -> None:
    """Two sources have a topic of the same name. Each restore gives the records of its own source."""
    name = topic("orders", partitions=3)
    truth.produce(lab.bootstrap, name, rows_of(2, 20))  # the last partition stays empty
    lab.backup(name, source="east")
    east_records = truth.contents(lab.bootstrap, name)
    truth.produce(lab.bootstrap, name, rows_of(2, 30, 20))
    lab.backup(name, source="west")
    assert sorted((b["source"], b["number"], b["kind"]) for b in catalog_rows(lab)["backups"]) == [
        ("east", 1, "full"),
        ("west", 1, "full"),
    ]
    with pytest.raises(LakebackupError, match=r"east.*west|west.*east"):
        lab.restore(name)
    for source, expected in (("east", east_records), ("west", truth.contents(lab.bootstrap, name))):
        copy_topic = f"{name}-of-{source}"
        lab.restore(name, source=source, maps={name: copy_topic})
        assert truth.contents(lab.bootstrap, copy_topic) == expected
        assert partitions(lab.bootstrap, copy_topic) == 3
        truth.delete_topic(lab.bootstrap, copy_topic)


def test_unreadable_topics_are_left_out_and_reported(
    lab: Lab, topic: MakeTopic, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Here the answer about rights is a stand-in; test_secured.py has a broker that refuses access."""
    prefix = f"shop-{uuid4().hex[:8]}"
    readable, unreadable = topic(f"{prefix}-readable", partitions=2), topic(f"{prefix}-unreadable")
    truth.produce(lab.bootstrap, readable, rows_of(2, 20))
    truth.produce(lab.bootstrap, unreadable, rows_of(1, 20))
    reasons = {unreadable: "this user lacks the right Read"}
    describe = Cluster._readable

    def describe_but_one(cluster: Cluster, names: Collection[str]) -> tuple[dict[str, Any], dict[str, str]]:
        descriptions, _ = describe(cluster, names)
        return (
            {name: description for name, description in descriptions.items() if name not in reasons},
            {name: reasons[name] for name in names if name in reasons},
        )

    monkeypatch.setattr(Cluster, "_readable", describe_but_one)
    with pytest.raises(EnvironmentProblem, match="nothing that this user may back up"):
        lab.backup(unreadable)
    with pytest.raises(Incomplete):
        lab.backup(patterns=(f"{prefix}.*",))
    assert f"topic {unreadable} is left out: this user lacks the right Read" in lab.warnings.getvalue()
    assert [scope["scope"] for scope in catalog_rows(lab)["scopes"]] == [readable]
    assert stored_records(lab) == truth.contents(lab.bootstrap, readable)
    reasons.clear()
    result = lab.backup(readable, unreadable)
    assert (result["kind"], result["topics"], result["entries"]) == ("differential", 2, 20)


def test_patterns_follow_new_and_deleted_topics(lab: Lab, topic: MakeTopic) -> None:
    """A pattern includes new topics, a deleted topic stays restorable, and an empty one is restored empty."""
    prefix = f"app-{uuid4().hex[:8]}"
    deleted_topic, empty_topic = topic(f"{prefix}-goes", partitions=2), topic(f"{prefix}-empty", partitions=3)
    truth.produce(lab.bootstrap, deleted_topic, rows_of(2, 20))
    deleted_records = truth.contents(lab.bootstrap, deleted_topic)
    pattern = (f"{prefix}-.*",)
    assert lab.backup(patterns=pattern)["topics"] == 2
    truth.delete_topic(lab.bootstrap, deleted_topic)
    new_topic = topic(f"{prefix}-comes", **{"max.message.bytes": "123456"})
    truth.produce(lab.bootstrap, new_topic, rows_of(1, 20))
    result = lab.backup(patterns=pattern)
    assert (result["kind"], result["topics"], result["entries"], result["gaps"]) == ("differential", 2, 20, 0)

    copy_topics = {name: f"{name}-copy" for name in (deleted_topic, empty_topic, new_topic)}
    lab.restore(deleted_topic, empty_topic, new_topic, maps=copy_topics)
    assert truth.contents(lab.bootstrap, copy_topics[deleted_topic]) == deleted_records
    assert truth.contents(lab.bootstrap, copy_topics[new_topic]) == truth.contents(lab.bootstrap, new_topic)
    assert truth.contents(lab.bootstrap, copy_topics[empty_topic]) == {}
    assert [
        partitions(lab.bootstrap, copy_topics[name]) for name in (deleted_topic, empty_topic, new_topic)
    ] == [2, 3, 1]
    assert truth.settings(lab.bootstrap, copy_topics[new_topic])["max.message.bytes"] == "123456"
    for copy_topic in copy_topics.values():
        truth.delete_topic(lab.bootstrap, copy_topic)
