"""Consumer groups of a lost cluster continue in another one, message by message. Tests each outcome once."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest
from tests.support import consumers, translated
from tests.support import kafka_truth as truth
from tests.support.kafka_truth import Record
from tests.support.runs import Lab, now_ms

from lakebackup.errors import Incomplete, NotFound, Refused, UsageProblem
from lakebackup.recovery.rebuild import rebuild
from lakebackup.store.reader import CatalogReader

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.kafka]

MakeTopic = Callable[..., str]
START_MS = 1_600_000_000_000


def make_records(count: int, partitions: int = 1, first: int = 0) -> list[Record]:
    return [
        Record(i % partitions, b"key %d" % (i % 17), b"message %d" % i, (), START_MS + i)
        for i in range(first, first + count)
    ]


def with_holes(bootstrap: str, name: str) -> list[Record]:
    """Write committed and aborted transactions, whose records and markers leave holes in the offsets.

    Returns the committed records.
    """
    committed_records = []
    for number in range(12):
        batch, commit = make_records(1 + number * 5 % 7, first=100 * number), number % 3 != 1
        truth.produce(bootstrap, name, batch, commit=commit, **{"transactional.id": f"holes-{name}"})
        committed_records += batch if commit else []
    return committed_records


@pytest.mark.long
def test_groups_read_each_message_once_across_a_continued_copy(
    lab: Lab, topic: MakeTopic, spark: SparkSession
) -> None:
    """The groups stop at the start, among holes and at the end. Each reads every message once."""
    name = topic("holes")
    copy_topic, groups = f"copy-of-{name}", {word: f"{name}-{word}" for word in ("start", "hole", "end")}
    records = with_holes(lab.bootstrap, name)
    lab.backup(name)
    lab.restore(name, maps={name: copy_topic})
    records += make_records(10, first=5000)
    truth.produce(lab.bootstrap, name, records[-10:])
    records_before: dict[str, list[tuple[int, bytes | None]]] = {"start": []}
    for word, count in (("hole", 9), ("end", len(records))):
        config = {"metadata": f"of {word}", "auto.offset.reset": "earliest"}
        records_before[word] = consumers.read_on(lab.bootstrap, groups[word], name, count, **config)
    consumers.commit(lab.bootstrap, groups["start"], {(name, 0): 0})
    lab.backup(name, groups="all")
    restore = lab.restore(name, continued=True, maps={name: copy_topic}, groups=(f"{name}-.*",))
    assert (restore["entries"], restore["outcomes"]) == (10, {"moved": 3})
    metadata = {word: consumers.committed(lab.bootstrap, groups[word])[copy_topic, 0][1] for word in groups}
    assert metadata == {"start": None, "hole": "of hole", "end": "of end"}
    records_after = {
        word: consumers.read_on(
            lab.bootstrap, groups[word], copy_topic, len(records) - len(records_before[word])
        )
        for word in ("start", "hole")
    }
    for word, later_records in records_after.items():
        assert records_before[word] + later_records == [(0, r.value) for r in records], word

    # The catalog is lost and rebuilt. The groups have read on since, so no group is moved back.
    translation_rows = translated.rows(lab, name, copy_topic)
    shutil.rmtree(lab.folder / "catalog")
    rebuild(spark, str(lab.folder))
    assert translated.rows(lab, name, copy_topic) == translation_rows
    assert outcomes(lab.restore_groups(*groups.values())) == {
        groups["start"]: "ahead", groups["hole"]: "ahead", groups["end"]: "unchanged",
    }  # fmt: skip
    with pytest.raises(NotFound, match=f"Did you mean .*{groups['hole']}"):
        lab.restore_groups(groups["hole"][:-1])
    second_group = f"{name}-second"
    moved = lab.restore_groups(
        groups["hole"], maps={name: copy_topic}, group_maps={groups["hole"]: second_group}
    )
    assert moved["outcomes"] == {"moved": 1}
    assert (
        consumers.read_on(lab.bootstrap, second_group, copy_topic, len(records_after["hole"]))
        == records_after["hole"]
    )
    truth.produce(lab.bootstrap, copy_topic, make_records(1, first=6000))
    assert consumers.read_on(lab.bootstrap, groups["end"], copy_topic, 1) == [(0, b"message 6000")]
    truth.delete_topic(lab.bootstrap, copy_topic)


def outcomes(result: dict[str, Any]) -> dict[str, str]:
    return {entry["group"]: entry["outcome"] for entry in result["groups"]}


def test_each_outcome_of_restored_groups(lab: Lab, topic: MakeTopic) -> None:
    name, other_topic, copy_topic = topic("outcomes"), topic("unrestored"), f"copy-of-{topic('x')}"
    truth.produce(lab.bootstrap, name, make_records(20))
    truth.produce(lab.bootstrap, other_topic, make_records(2))
    groups = {word: f"{name}-{word}" for word in ("here", "gap", "beyond", "active", "else", "gone")}
    lab.backup(name, groups="none")
    truth.produce(lab.bootstrap, name, make_records(20, first=20))
    truth.delete_records(lab.bootstrap, name, {0: 30})
    for word, offset in (("here", 35), ("gap", 25), ("active", 33), ("gone", 31)):
        consumers.commit(lab.bootstrap, groups[word], {(name, 0): offset})
    consumers.commit(lab.bootstrap, groups["else"], {(other_topic, 0): 1})
    lab.backup(name, other_topic, groups="all", on_gap="continue")
    until_ts = now_ms()
    # For the catalog, this commit is after the end positions that it knows.
    truth.produce(lab.bootstrap, name, make_records(7, first=40))
    consumers.commit(lab.bootstrap, groups["beyond"], {(name, 0): 47})
    assert lab.restore(name, maps={name: copy_topic}, allow_gaps=True)["entries"] == 30

    group_ids = tuple(groups[word] for word in ("here", "gap", "active", "else"))
    plan = lab.restore_groups(*group_ids, dry_run=True)
    assert outcomes(plan) == {
        groups["here"]: "moved",
        groups["gap"]: "in_gap",
        groups["active"]: "moved",
        groups["else"]: "not_restored",
    }
    assert next(entry for entry in plan["groups"] if entry["group"] == groups["gap"])["offsets"] == 5
    for group in group_ids:
        assert (copy_topic, 0) not in consumers.committed(lab.bootstrap, group)

    with (
        consumers.member(lab.bootstrap, groups["active"], copy_topic),
        pytest.raises(Incomplete, match="has members in the target"),
    ):
        lab.restore_groups(*group_ids)
    restore = lab.restore_groups(*group_ids)
    assert outcomes(restore) == {
        groups["here"]: "unchanged",
        groups["gap"]: "unchanged",
        groups["active"]: "moved",
        groups["else"]: "not_restored",
    }
    assert consumers.read_on(lab.bootstrap, groups["here"], copy_topic, 5) == [
        (0, b"message %d" % i) for i in range(35, 40)
    ]
    assert consumers.read_on(lab.bootstrap, groups["gap"], copy_topic, 1) == [(0, b"message 30")]
    assert outcomes(lab.restore_groups(groups["here"])) == {groups["here"]: "ahead"}
    assert outcomes(lab.restore_groups(groups["here"], force=True)) == {groups["here"]: "moved"}
    assert outcomes(lab.restore_groups(groups["here"])) == {groups["here"]: "unchanged"}

    # A group further than the restored records moves to their end. The result says by how many offsets.
    lab.backup(name, groups="all")
    late_restore = lab.restore_groups(groups["beyond"])
    assert outcomes(late_restore) == {groups["beyond"]: "at_end"}
    assert late_restore["groups"][0]["offsets"] == 7
    truth.produce(lab.bootstrap, copy_topic, make_records(1, first=99))
    assert consumers.read_on(lab.bootstrap, groups["beyond"], copy_topic, 1) == [(0, b"message 99")]

    # After its topic was recreated, a group can be restored as it was at a time.
    truth.delete_topic(lab.bootstrap, name)
    truth.create_topic(lab.bootstrap, name, retention_ms="-1")
    truth.produce(lab.bootstrap, name, make_records(3))
    consumers.commit(lab.bootstrap, groups["gone"], {(name, 0): 2})
    lab.backup(name, groups="all")
    assert outcomes(lab.restore_groups(groups["gone"])) == {groups["gone"]: "topic_deleted"}
    assert outcomes(lab.restore_groups(groups["gone"], at_ts=until_ts)) == {groups["gone"]: "moved"}
    assert consumers.read_on(lab.bootstrap, groups["gone"], copy_topic, 1) == [(0, b"message 31")]

    catalog = CatalogReader.require(str(lab.folder))
    audits = catalog.select("SELECT * FROM audit WHERE action = 'restore groups'").read_all()
    assert len(audits) >= 5


@pytest.mark.long
def test_unsafe_continuations_are_refused(lab: Lab, topic: MakeTopic, tmp_path: Path) -> None:
    name, copy_topic, full_topic = topic("refused"), f"{topic('y')}-copy", topic("strangers")
    truth.produce(lab.bootstrap, name, make_records(10))
    truth.produce(lab.bootstrap, full_topic, make_records(3))
    lab.backup(name)
    with pytest.raises(UsageProblem, match="--continue"):
        lab.restore(name, continued=True, target=f"dir:{tmp_path}/out")
    with pytest.raises(Refused, match="no restore that is known brought them"):
        lab.restore(name, continued=True, maps={name: full_topic})
    lab.restore(name, continued=True, maps={name: copy_topic}, to_ts=START_MS + 4)
    with pytest.raises(Refused, match="records after that were left out"):
        lab.restore(name, continued=True, maps={name: copy_topic})
    part_topic, newest_files = (
        f"{copy_topic}-part",
        f"SELECT * FROM files WHERE scope = '{name}' AND start_position > 0",
    )
    truth.produce(lab.bootstrap, name, make_records(2, first=10))
    lab.backup(name)
    lab.restore(select=newest_files, partial=True, maps={name: part_topic})
    with pytest.raises(Refused, match="in part: some records were left out"):
        lab.restore(name, continued=True, maps={name: part_topic})
    whole_topic = f"{copy_topic}-whole"
    assert lab.restore(name, continued=True, maps={name: whole_topic})["entries"] == 12
    with pytest.raises(Refused, match="--from-time would leave out"):
        lab.restore(name, continued=True, maps={name: whole_topic}, from_ts=START_MS)
    assert lab.restore(name, continued=True, maps={name: whole_topic})["entries"] == 0
    truth.produce(lab.bootstrap, name, make_records(4, first=12))
    lab.backup(name)
    plan = lab.restore(name, continued=True, maps={name: whole_topic}, dry_run=True)
    assert plan["entries_in_files"] == 4
    assert lab.restore(name, continued=True, maps={name: whole_topic})["entries"] == 4
    # A new chain holds all records again. Only the new ones are restored.
    truth.produce(lab.bootstrap, name, make_records(2, first=16))
    lab.backup(name, mode="full")
    assert lab.restore(name, continued=True, maps={name: whole_topic})["entries"] == 2
    assert translated.assert_exact(lab, name, whole_topic) == 18
    truth.delete_topic(lab.bootstrap, name)
    truth.create_topic(lab.bootstrap, name, retention_ms="-1")
    truth.produce(lab.bootstrap, name, make_records(2))
    lab.backup(name)
    with pytest.raises(Refused, match="deleted and recreated"):
        lab.restore(name, continued=True, maps={name: whole_topic}, allow_gaps=True)


def java_partition(key: bytes, partitions: int) -> int:
    """The partition of a key by the Java producer's default partitioner (murmur2, by its definition)."""
    mask, mixer = 0xFFFFFFFF, 0x5BD1E995
    hash_value = 0x9747B28C ^ len(key)
    aligned_length = len(key) // 4 * 4
    for i in range(0, aligned_length, 4):
        block = int.from_bytes(key[i : i + 4], "little") * mixer & mask
        block = (block ^ block >> 24) * mixer & mask
        hash_value = (hash_value * mixer & mask) ^ block
    if key[aligned_length:]:
        hash_value = (hash_value ^ int.from_bytes(key[aligned_length:], "little")) * mixer & mask
    hash_value = (hash_value ^ hash_value >> 13) * mixer & mask
    return ((hash_value ^ hash_value >> 15) & 0x7FFFFFFF) % partitions


def test_repartitioned_keys_follow_java_and_keep_their_order(lab: Lab, topic: MakeTopic) -> None:
    # The Java client's own tests contain these values: murmur2 of "21" and of "foobar".
    assert java_partition(b"21", 2**31) == -973932308 & 0x7FFFFFFF
    assert java_partition(b"foobar", 2**31) == -790332482 & 0x7FFFFFFF
    name, narrow_topic, wide_topic = (
        topic("spread", partitions=3),
        topic("fewer", partitions=2),
        f"{topic('z')}-more",
    )
    keys = [b"", b"a", *(b"key %d" % i for i in range(40))]
    records = [
        Record(
            java_partition(keys[i % 42], 3), keys[i % 42], b"value %d" % i, (("h", b"%d" % i),), START_MS + i
        )
        for i in range(800)
    ] + [Record(i % 3, None, b"no key %d" % i, (), START_MS + i) for i in range(30)]
    truth.produce(lab.bootstrap, name, records)
    group = f"{name}-group"
    consumers.commit(lab.bootstrap, group, {(name, p): 5 for p in range(3)})
    lab.backup(name, groups="all", target_bytes=4_000)

    for bad_topic in (narrow_topic, topic("more", partitions=4)):
        with pytest.raises(Refused, match=r"partitions, the backup 3"):
            lab.restore(name, maps={name: bad_topic})
    with pytest.raises(UsageProblem, match="--repartition"):
        lab.restore(name, maps={name: wide_topic}, partitions=5)
    with pytest.raises(Incomplete, match="keys changed partitions"):
        lab.restore(name, maps={name: wide_topic}, repartition=True, partitions=5, groups=(group,))

    for target, count in ((wide_topic, 5), (narrow_topic, 2)):
        if target == narrow_topic:
            assert lab.restore(name, maps={name: narrow_topic}, repartition=True)["entries"] == 830
        restored = [r for p in truth.contents(lab.bootstrap, target).values() for r in p]
        assert len({r.partition for r in restored}) == count
        for key in keys:
            key_records = [r for r in restored if r.key == key]
            assert {r.partition for r in key_records} == {java_partition(key, count)}
            assert [(r.value, r.headers, r.timestamp) for r in key_records] == [
                (r.value, r.headers, r.timestamp) for r in records if r.key == key
            ]
        assert sorted(r.value or b"" for r in restored if r.key is None) == sorted(
            r.value or b"" for r in records if r.key is None
        )
    assert lab.restore(name, maps={name: wide_topic}, repartition=True, continued=True)["entries"] == 0
