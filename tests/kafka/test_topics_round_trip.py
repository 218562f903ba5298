"""Topics backed up, lost and restored on a real broker, judged by confluent-kafka alone."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable
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
from tests.support.faults import rows_of, shown, stored
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


Make = Callable[..., str]


def mixed(partition: int, count: int, start: int = 1_600_000_000_000) -> list[Record]:
    """Null keys, tombstones, empty values and keys, duplicate and null headers, times that run backwards."""
    rows = []
    for i in range(count):
        key = None if i % 7 == 0 else b"" if i % 11 == 0 else b"key-%d" % (i % 50)
        value = None if i % 5 == 3 and key is not None else b"" if i % 13 == 0 else b"value %d " % i * (i % 9)
        headers: tuple[tuple[str, bytes | None], ...] = ()
        if i % 4 == 0:
            headers = (("h", b"1"), ("h", None), ("", b""), ("h", b"2"))
        rows.append(Record(partition, key, value, headers, start + (i * 7919) % 100_000))
    return rows


def reader(lab: Lab) -> CatalogReader:
    return CatalogReader.require(str(lab.folder), None)


OLD, LATER = 1_600_000_000_000, 1_700_000_000_000


@dataclass(frozen=True)
class Kept:
    """Three backups of one topic, for tests that only read them."""

    lab: Lab
    name: str
    rows: dict[int, list[Record]]
    done: list[dict[str, Any]]


@pytest.fixture(scope="module")
def kept(
    spark: SparkSession, broker: Broker, empty_catalog: Path, tmp_path_factory: pytest.TempPathFactory
) -> Kept:
    lab = Lab(spark, broker.bootstrap, tmp_path_factory.mktemp("kept") / "backups", empty_catalog)
    name = f"kept-{uuid4().hex[:8]}"
    truth.create_topic(broker.bootstrap, name, 2, retention_ms="-1")
    first, later = mixed(0, 400) + mixed(1, 60), mixed(1, 40, start=LATER)
    done = []
    for rows in (first, later, []):
        truth.produce(broker.bootstrap, name, rows)
        done.append(lab.backup(name))
    truth.delete_topic(broker.bootstrap, name)
    return Kept(lab, name, {p: [r for r in first + later if r.partition == p] for p in (0, 1)}, done)


def test_every_kind_of_record_comes_back_in_order(lab: Lab, topic: Make) -> None:
    name = topic("mixed", partitions=3, **{"max.message.bytes": "2000000"})
    rows = [r for p in range(3) for r in mixed(p, 500)]
    rows.append(Record(1, b"large", b"x" * 1_000_000, (), 1_600_000_000_000))
    truth.produce(lab.bootstrap, name, rows)
    before = truth.contents(lab.bootstrap, name)
    settings = truth.settings(lab.bootstrap, name)

    done = lab.backup(name)
    assert (done["kind"], done["entries"], done["files"]) == ("full", 1501, 3)
    truth.delete_topic(lab.bootstrap, name)
    restored = lab.restore(name)

    assert restored["entries"] == 1501
    assert truth.contents(lab.bootstrap, name) == before
    assert truth.settings(lab.bootstrap, name) == settings


def test_a_second_backup_holds_only_what_is_new_and_the_chain_restores_both(kept: Kept, topic: Make) -> None:
    first, second, third = kept.done
    assert (second["kind"], second["parent"], second["entries"]) == ("differential", first["backup_id"], 40)
    assert (third["kind"], third["entries"], third["files"]) == ("differential", 0, 0)
    paths = sorted(
        row["path"].rpartition("/")[2]
        for row in reader(kept.lab).rows("list_files", backup_id=second["backup_id"])
    )
    assert paths == [f"{kept.name}+1-0000000001.data"]

    copy = topic("copy", partitions=2)
    kept.lab.restore(kept.name, maps={kept.name: copy})
    assert truth.contents(kept.lab.bootstrap, copy) == kept.rows
    # A target that holds records is refused until it is said that they may be appended to.
    with pytest.raises(Refused, match="holds records already"):
        kept.lab.restore(kept.name, maps={kept.name: copy}, to_ts=OLD + 1)
    kept.lab.restore(kept.name, maps={kept.name: copy}, to_ts=OLD + 1, append=True)
    early = {p: [r for r in rows if r.timestamp <= OLD + 1] for p, rows in kept.rows.items()}
    assert truth.contents(kept.lab.bootstrap, copy) == {p: kept.rows[p] + early[p] for p in (0, 1)}


def test_a_little_of_a_topic_without_a_file_needs_no_spark(lab: Lab, topic: Make) -> None:
    lab.make_catalog()
    known, new = topic("known"), topic("new")

    def taken(*names: str, **changes: Any) -> dict[str, Any]:
        return backup.run(lab.topics_request(names, **changes), reporter=lab.reporter)

    truth.produce(lab.bootstrap, known, [Record(0, b"k", b"v", (), OLD)])
    taken(known, runner="local")
    truth.produce(lab.bootstrap, new, mixed(0, 100))
    done = taken(known, new)
    assert (done["kind"], done["entries"]) == ("differential", 100)
    assert [row["runner"] for row in lab.sql("SELECT DISTINCT runner FROM backups")] == ["local"]


def test_a_restore_to_a_time_keeps_the_records_at_or_before_it(kept: Kept, topic: Make) -> None:
    copy = topic("then", partitions=2)
    after, until = kept.rows[0][10].timestamp, kept.rows[0][11].timestamp
    assert OLD < after < until < OLD + 100_000
    kept.lab.restore(kept.name, maps={kept.name: copy}, from_ts=after, to_ts=until)
    assert truth.contents(kept.lab.bootstrap, copy) == {
        p: [r for r in rows if after < r.timestamp <= until] for p, rows in kept.rows.items()
    }


def test_uncommitted_and_aborted_records_are_left_out_and_an_open_transaction_comes_next_time(
    lab: Lab, topic: Make
) -> None:
    name, copy = topic("transactions"), topic("transactions-copy")
    truth.produce(lab.bootstrap, name, mixed(0, 10), **{"transactional.id": f"a-{name}"})
    lost = [Record(0, b"k", b"aborted", (), OLD)]
    truth.produce(lab.bootstrap, name, lost, commit=False, **{"transactional.id": f"a-{name}"})
    aborting = Producer({"bootstrap.servers": lab.bootstrap, "transactional.id": f"b-{name}"})
    aborting.init_transactions(30)
    aborting.begin_transaction()
    aborting.produce(name, b"still open", b"k", 0, timestamp=1_600_000_000_000)
    aborting.flush(30)

    assert lab.backup(name)["entries"] == 10
    aborting.commit_transaction(30)
    assert lab.backup(name)["entries"] == 1
    lab.restore(name, maps={name: copy})
    assert truth.contents(lab.bootstrap, copy) == truth.contents(lab.bootstrap, name)


def test_what_a_hanging_transaction_hides_is_reported_and_promised_by_no_view(lab: Lab, topic: Make) -> None:
    name, since = topic("hangs"), now_ms() - 100_000
    promised = f"SELECT restorable_ts, covered_ts FROM rpo WHERE scope = '{name}'"
    truth.produce(lab.bootstrap, name, mixed(0, 10))
    hanging = Producer({"bootstrap.servers": lab.bootstrap, "transactional.id": f"h-{name}"})
    hanging.init_transactions(30)
    hanging.begin_transaction()
    hanging.produce(name, b"hidden", partition=0, timestamp=since)
    hanging.flush(30)
    truth.produce(lab.bootstrap, name, mixed(0, 20, since + 1))
    result = lab.backup(name)
    (sentence,) = result["open_transactions"]
    assert f"topic {name}, partition 0: the backup ends at offset 10" in sentence
    assert "20 offsets after it" in sentence
    assert lab.sql(promised) == [{"restorable_ts": since - 1, "covered_ts": since - 1}]
    with pytest.raises(Refused, match=f"{name} is covered until"):
        lab.restore(name, to_ts=since, dry_run=True)
    hanging.commit_transaction(30)
    result = lab.backup(name)
    assert (result["open_transactions"], result["entries"]) == ([], 21)
    assert lab.sql(promised) == [{"restorable_ts": result["end_ts"], "covered_ts": result["end_ts"]}]


def test_log_append_time_topics_keep_their_times_and_their_setting(lab: Lab, topic: Make) -> None:
    name = topic("appended", **{"message.timestamp.type": "LogAppendTime"})
    truth.produce(lab.bootstrap, name, mixed(0, 50))
    before = truth.contents(lab.bootstrap, name)
    lab.backup(name)
    truth.delete_topic(lab.bootstrap, name)
    lab.restore(name)
    assert truth.contents(lab.bootstrap, name) == before
    assert truth.settings(lab.bootstrap, name)["message.timestamp.type"] == "LogAppendTime"


@pytest.mark.long
def test_deleted_records_are_a_gap_and_their_topic_starts_over_unless_the_chain_goes_on(
    lab: Lab, topic: Make
) -> None:
    # Offsets 0 to 19 are backed up, 20 to 39 produced, everything below 30 deleted.
    name, copy = topic("gap"), topic("gap-copy")
    truth.produce(lab.bootstrap, name, mixed(0, 20))
    lab.backup(name)
    between = now_ms()
    truth.produce(lab.bootstrap, name, mixed(0, 20))
    truth.delete_records(lab.bootstrap, name, {0: 30})
    done = lab.backup(name)

    assert (done["kind"], done["entries"]) == ("differential", 10)
    assert done["generations"] == [{"topic": name, "generation": 1, "because": "purged"}]
    assert f"topic {name}, partition 0: offsets [20, 30) were deleted" in lab.warnings.getvalue()
    (gap,) = reader(lab).rows("restore_gaps", source="lab", scopes=name, to_ts=between)
    assert (gap["from_position"], gap["to_position"], gap["reason"]) == (20, 30, "purged")
    with pytest.raises(Refused, match=r"nearest restorable time before: .* after: "):
        lab.restore(name, maps={name: copy}, to_ts=between)
    lab.restore(name, maps={name: copy})
    assert truth.contents(lab.bootstrap, copy) == truth.contents(lab.bootstrap, name)

    # A chain goes on over the next one, and restores only when holes are accepted.
    truth.produce(lab.bootstrap, name, mixed(0, 20))
    truth.delete_records(lab.bootstrap, name, {0: 50})
    assert lab.backup(name, on_gap="continue")["kind"] == "differential"
    out = f"dir:{lab.folder.parent / 'out'}"
    with pytest.raises(Refused, match="offsets from 40 to 50 were deleted"):
        lab.restore(name, target=out)
    assert lab.restore(name, target=out, allow_gaps=True)["entries"] == 10 + 10
    (audit,) = DeltaTable(str(lab.folder / "catalog" / "audit")).to_pyarrow_table().to_pylist()
    assert (audit["action"], len(json.loads(audit["detail"]))) == ("restore with gaps", 1)


def test_a_dry_run_says_what_it_would_do_and_writes_nothing(lab: Lab, topic: Make) -> None:
    name = topic("dry", partitions=2)
    truth.produce(lab.bootstrap, name, mixed(0, 10))
    planned = lab.backup(name, dry_run=True)
    assert (planned["kind"], planned["offsets"]) == ("full", 10)
    assert not lab.folder.exists() or not any(lab.folder.rglob("*"))
    lab.backup(name)
    before = sorted(lab.folder.rglob("*"))
    planned = lab.restore(name, dry_run=True, maps={name: "elsewhere"})
    assert "SELECT" in planned["selection"]
    assert planned["topics"][0] | {"reaches": None, "bytes": None} == {
        "topic": name, "target": "elsewhere", "backup_id": planned["topics"][0]["backup_id"],
        "partitions": 2, "files": 1, "bytes": None, "entries": 10, "reaches": None,
    }  # fmt: skip
    assert planned["target_topics"] == [{"target": "elsewhere", "action": "create", "refused_because": None}]
    assert sorted(lab.folder.rglob("*")) == before


def test_a_select_chooses_exactly_the_files_and_an_incomplete_choice_is_refused(
    kept: Kept, topic: Make, tmp_path: Path
) -> None:
    lab, copy = kept.lab, topic("chosen-copy", partitions=2)
    whole = f"SELECT * FROM files WHERE scope = '{kept.name}' AND region = '1'"
    assert lab.restore(select=whole, maps={kept.name: copy})["entries"] == 100
    assert truth.contents(lab.bootstrap, copy) == {1: kept.rows[1]}
    late = f"SELECT destination, path FROM files WHERE scope = '{kept.name}' AND min_ts >= {LATER}"
    with pytest.raises(Refused, match="takes 1 of the 2 files"):
        lab.restore(select=late, target=f"dir:{tmp_path / 'out'}")
    assert lab.restore(select=late, partial=True, target=f"dir:{tmp_path / 'out'}")["entries"] == 40
    with pytest.raises(UsageProblem):
        lab.restore(select="SELECT * FROM read_parquet('/etc/passwd')")


@pytest.mark.long
def test_into_a_delta_table(kept: Kept, spark: SparkSession, tmp_path: Path) -> None:
    path = tmp_path / "table"
    kept.lab.restore(kept.name, target=f"delta:{path}", maps={kept.name: "renamed"})
    table = spark.read.format("delta").load(str(path)).orderBy("partition", "offset").collect()
    assert {row.topic for row in table} == {"renamed"}
    found = [
        Record(
            r.partition,
            None if r.key is None else bytes(r.key),
            None if r.value is None else bytes(r.value),
            tuple((h.key, None if h.value is None else bytes(h.value)) for h in r.headers),
            r.timestamp,
        )
        for r in table
    ]
    assert found == kept.rows[0] + kept.rows[1]
    with pytest.raises(Refused, match="there is a Delta table"):
        kept.lab.restore(kept.name, target=f"delta:{path}")
    # What is added is counted, not what was there.
    again: dict[str, Any] = {"target": f"delta:{path}", "maps": {kept.name: "renamed"}, "append": True}
    early = sum(row.timestamp <= OLD + 1 for rows in kept.rows.values() for row in rows)
    assert kept.lab.restore(kept.name, to_ts=OLD + 1, **again)["entries"] == early
    assert spark.read.format("delta").load(str(path)).count() == len(table) + early


# The records of a real broker in each form; those of a SELECT come from Spark.
def test_into_one_file_of_each_form(kept: Kept, tmp_path: Path) -> None:
    expected = [record for partition in sorted(kept.rows) for record in kept.rows[partition]]
    for form in ("csv", "json", "parquet"):
        path = tmp_path / f"records.{form}"
        assert kept.lab.restore(kept.name, target=f"{form}:{path}")["entries"] == len(expected)
        assert file_records(path, form) == expected
    query = f"SELECT partition, key, upper(value) AS value, headers, ts FROM records('{kept.name}')"
    path = tmp_path / "selected.parquet"
    kept.lab.restore(records=query, target=f"parquet:{path}")
    assert file_records(path, "parquet") == [replace(r, value=r.value and r.value.upper()) for r in expected]


def file_records(path: Path, form: str) -> list[Record]:
    """The records of a file, read by Python's and pyarrow's own readers. None of them is like a formula."""
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
def test_a_backup_moved_to_another_place_still_restores_and_verifies(lab: Lab, topic: Make) -> None:
    name, copy = topic("moved"), topic("moved-copy")
    truth.produce(lab.bootstrap, name, mixed(0, 10))
    lab.backup(name)
    lab.folder = lab.folder.rename(lab.folder.with_name("elsewhere"))
    assert lab.restore(name, maps={name: copy})["entries"] == 10
    tried = lab.verify(mode="restore")
    assert (tried["ok"], tried["damaged"], tried["missing"]) == (3, 0, 0)


def test_damage_is_found_before_a_record_of_it_becomes_visible_and_by_verify(lab: Lab, topic: Make) -> None:
    name, copy = topic("verify", partitions=3), topic("verify-copy", partitions=3)
    truth.produce(lab.bootstrap, name, mixed(0, 50) + mixed(1, 50) + mixed(2, 50))
    done = lab.backup(name)
    whole = lab.verify(mode="decode")
    assert (whole["ok"], whole["missing"], whole["changed"], whole["orphan"]) == (4, 0, 0, 0)
    zero, one, _ = sorted(lab.folder.glob("lab/*/topics/*/partition=*/*.data"))
    flip(one, -20)
    with pytest.raises(Damaged, match=r"is not what was written"):
        lab.restore(name, maps={name: copy})
    assert 1 not in truth.contents(lab.bootstrap, copy)

    zero.unlink()
    (one.parent / "stray.data").write_bytes(b"left over")
    found = lab.verify()
    assert (found["missing"], found["changed"], found["orphan"]) == (1, 1, 1)
    with pytest.raises(Refused, match="was missing when it was last checked"):
        lab.restore(name, target="dir:" + str(lab.folder.parent / "out"))
    assert done["backup_id"] in {finding["backup_id"] for finding in found["findings"]}


def test_a_backup_closes_files_by_the_topics_own_retention(lab: Lab, topic: Make) -> None:
    """A tenth of it; not at all where nothing is deleted by time, and as told where something is told."""
    year = 365 * 24 * 3_600_000
    own = topic("own", **{"retention.ms": str(20 * year)})
    kept, compacted = topic("kept"), topic("compacted", **{"cleanup.policy": "compact"})
    for name in (own, kept, compacted):
        times = (OLD, OLD + year, OLD + 2 * year, OLD + 2 * year + 1)
        truth.produce(lab.bootstrap, name, [Record(0, b"k%d" % ts, b"v", (), ts) for ts in times])
    assert lab.backup(own, kept, compacted, groups="none")["files"] == 2 + 1 + 1
    assert lab.backup(own, mode="full", roll_ms=0, groups="none")["files"] == 1
    assert lab.backup(own, kept, mode="full", roll_ms=year, groups="none")["files"] == 4


def planned(value: bytes, count: int) -> list[Record]:
    return [Record(i % 2, b"k%d" % i, value, (), 1_600_000_000_000 + i) for i in range(count)]


@pytest.mark.long
def test_a_plan_is_carried_out_and_goes_on_with_its_files(
    lab: Lab, topic: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    name, copy = topic("planned", partitions=2), topic("copy", partitions=2)
    truth.produce(lab.bootstrap, name, planned(b"first", 60))
    lab.backup(name)
    wanted = truth.contents(lab.bootstrap, name)
    plan = str(tmp_path / "plan.json")
    told = lab.restore(name, maps={name: copy}, dry_run=True, save_plan=plan)
    assert (told["files"], told["entries_in_files"]) == (2, 60)

    def die(*_given: Any) -> None:
        raise EnvironmentProblem("the power went out")

    with monkeypatch.context() as patch:
        patch.setattr(kafka.KafkaTarget, "write", die)
        with pytest.raises(EnvironmentProblem, match="power"):
            lab.restore(plan=plan)
    truth.produce(lab.bootstrap, name, planned(b"later", 10))
    lab.backup(name)
    done = lab.restore(plan=plan)
    assert (done["resumed"], done["entries"]) == (True, 60)
    assert truth.contents(lab.bootstrap, copy) == wanted
    with pytest.raises(Refused, match="2 files that it did not have came in"):
        lab.restore(plan=plan)
    # What came in since counts as not restored yet.
    assert lab.restore(name, maps={name: copy}, continued=True)["entries"] == 10
    assert truth.contents(lab.bootstrap, copy) == truth.contents(lab.bootstrap, name)


def partitions(bootstrap: str, topic: str) -> int:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    return len(admin.list_topics(topic, timeout=30).topics[topic].partitions)


@pytest.mark.long
def test_two_sources_in_one_catalog(lab: Lab, topic: Make) -> None:
    """Backups of two sources have a topic of the same name; each source's come back as they found it."""
    name = topic("orders", partitions=3)
    truth.produce(lab.bootstrap, name, rows_of(2, 20))  # the last partition stays empty
    lab.backup(name, source="east")
    east = truth.contents(lab.bootstrap, name)
    truth.produce(lab.bootstrap, name, rows_of(2, 30, 20))
    lab.backup(name, source="west")
    assert sorted((b["source"], b["number"], b["kind"]) for b in shown(lab)["backups"]) == [
        ("east", 1, "full"),
        ("west", 1, "full"),
    ]
    with pytest.raises(LakebackupError, match=r"east.*west|west.*east"):
        lab.restore(name)
    for source, held in (("east", east), ("west", truth.contents(lab.bootstrap, name))):
        copy = f"{name}-of-{source}"
        lab.restore(name, source=source, maps={name: copy})
        assert truth.contents(lab.bootstrap, copy) == held
        assert partitions(lab.bootstrap, copy) == 3
        truth.delete_topic(lab.bootstrap, copy)


def test_topics_that_may_not_be_read(lab: Lab, topic: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    """They are left out and named. The broker of test_secured.py refuses them; here the answer is made up."""
    prefix = f"shop-{uuid4().hex[:8]}"
    readable, unreadable = topic(f"{prefix}-readable", partitions=2), topic(f"{prefix}-unreadable")
    truth.produce(lab.bootstrap, readable, rows_of(2, 20))
    truth.produce(lab.bootstrap, unreadable, rows_of(1, 20))
    why = {unreadable: "this user lacks the right Read"}
    monkeypatch.setattr(Cluster, "denied", lambda _, names: {n: why[n] for n in names if n in why})
    with pytest.raises(EnvironmentProblem, match="nothing that this user may back up"):
        lab.backup(unreadable)
    with pytest.raises(Incomplete):
        lab.backup(patterns=(f"{prefix}.*",))
    assert f"topic {unreadable} is left out: this user lacks the right Read" in lab.warnings.getvalue()
    assert [scope["scope"] for scope in shown(lab)["scopes"]] == [readable]
    assert stored(lab) == truth.contents(lab.bootstrap, readable)
    why.clear()
    done = lab.backup(readable, unreadable)
    assert (done["kind"], done["topics"], done["entries"]) == ("differential", 2, 20)


def test_topics_come_and_go(lab: Lab, topic: Make) -> None:
    """A pattern takes up new topics; one that went stays restorable; what is empty comes back empty."""
    prefix = f"app-{uuid4().hex[:8]}"
    goes, empty = topic(f"{prefix}-goes", partitions=2), topic(f"{prefix}-empty", partitions=3)
    truth.produce(lab.bootstrap, goes, rows_of(2, 20))
    before = truth.contents(lab.bootstrap, goes)
    pattern = (f"{prefix}-.*",)
    assert lab.backup(patterns=pattern)["topics"] == 2
    truth.delete_topic(lab.bootstrap, goes)
    comes = topic(f"{prefix}-comes", **{"max.message.bytes": "123456"})
    truth.produce(lab.bootstrap, comes, rows_of(1, 20))
    second = lab.backup(patterns=pattern)
    assert (second["kind"], second["topics"], second["entries"], second["gaps"]) == ("differential", 2, 20, 0)

    copies = {name: f"{name}-copy" for name in (goes, empty, comes)}
    lab.restore(goes, empty, comes, maps=copies)
    assert truth.contents(lab.bootstrap, copies[goes]) == before
    assert truth.contents(lab.bootstrap, copies[comes]) == truth.contents(lab.bootstrap, comes)
    assert truth.contents(lab.bootstrap, copies[empty]) == {}
    assert [partitions(lab.bootstrap, copies[name]) for name in (goes, empty, comes)] == [2, 3, 1]
    assert truth.settings(lab.bootstrap, copies[comes])["max.message.bytes"] == "123456"
    for copy in copies.values():
        truth.delete_topic(lab.bootstrap, copy)
