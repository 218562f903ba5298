"""Consumer groups of a cluster that was lost read on in another, message by message; every outcome once."""

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

Make = Callable[..., str]
START = 1_600_000_000_000


def rows(count: int, partitions: int = 1, first: int = 0) -> list[Record]:
    return [
        Record(i % partitions, b"key %d" % (i % 17), b"message %d" % i, (), START + i)
        for i in range(first, first + count)
    ]


def with_holes(bootstrap: str, name: str) -> list[Record]:
    """Committed and aborted transactions after each other: control records and lost ones leave holes."""
    kept = []
    for number in range(12):
        some, commit = rows(1 + number * 5 % 7, first=100 * number), number % 3 != 1
        truth.produce(bootstrap, name, some, commit=commit, **{"transactional.id": f"holes-{name}"})
        kept += some if commit else []
    return kept


@pytest.mark.long
def test_groups_read_on_in_a_copy_that_goes_on(lab: Lab, topic: Make, spark: SparkSession) -> None:
    """Before all, among holes and at the end: what they read before and after is every message once."""
    name = topic("holes")
    copy, g = f"copy-of-{name}", {word: f"{name}-{word}" for word in ("start", "hole", "end")}
    written = with_holes(lab.bootstrap, name)
    lab.backup(name)
    lab.restore(name, maps={name: copy})
    written += rows(10, first=5000)
    truth.produce(lab.bootstrap, name, written[-10:])
    before: dict[str, list[tuple[int, bytes | None]]] = {"start": []}
    for word, count in (("hole", 9), ("end", len(written))):
        config = {"metadata": f"of {word}", "auto.offset.reset": "earliest"}
        before[word] = consumers.read_on(lab.bootstrap, g[word], name, count, **config)
    consumers.commit(lab.bootstrap, g["start"], {(name, 0): 0})
    lab.backup(name, groups="all")
    done = lab.restore(name, continued=True, maps={name: copy}, groups=(f"{name}-.*",))
    assert (done["entries"], done["outcomes"]) == (10, {"moved": 3})
    metadata = {word: consumers.committed(lab.bootstrap, g[word])[copy, 0][1] for word in g}
    assert metadata == {"start": None, "hole": "of hole", "end": "of end"}
    after = {
        word: consumers.read_on(lab.bootstrap, g[word], copy, len(written) - len(before[word]))
        for word in ("start", "hole")
    }
    for word, rest in after.items():
        assert before[word] + rest == [(0, r.value) for r in written], word

    # The catalog is lost as well; and the groups have moved on, so nothing is put back.
    known = translated.rows(lab, name, copy)
    shutil.rmtree(lab.folder / "catalog")
    rebuild(spark, str(lab.folder))
    assert translated.rows(lab, name, copy) == known
    assert outcomes(lab.restore_groups(*g.values())) == {
        g["start"]: "ahead", g["hole"]: "ahead", g["end"]: "unchanged",
    }  # fmt: skip
    with pytest.raises(NotFound, match=f"Did you mean .*{g['hole']}"):
        lab.restore_groups(g["hole"][:-1])
    second = f"{name}-second"
    moved = lab.restore_groups(g["hole"], maps={name: copy}, group_maps={g["hole"]: second})
    assert moved["outcomes"] == {"moved": 1}
    assert consumers.read_on(lab.bootstrap, second, copy, len(after["hole"])) == after["hole"]
    truth.produce(lab.bootstrap, copy, rows(1, first=6000))
    assert consumers.read_on(lab.bootstrap, g["end"], copy, 1) == [(0, b"message 6000")]
    truth.delete_topic(lab.bootstrap, copy)


def outcomes(result: dict[str, Any]) -> dict[str, str]:
    return {g["group"]: g["outcome"] for g in result["groups"]}


def test_every_outcome(lab: Lab, topic: Make) -> None:
    name, other, copy = topic("outcomes"), topic("unrestored"), f"copy-of-{topic('x')}"
    truth.produce(lab.bootstrap, name, rows(20))
    truth.produce(lab.bootstrap, other, rows(2))
    g = {word: f"{name}-{word}" for word in ("here", "gap", "beyond", "active", "else", "gone")}
    lab.backup(name, groups="none")
    truth.produce(lab.bootstrap, name, rows(20, first=20))
    truth.delete_records(lab.bootstrap, name, {0: 30})
    for word, offset in (("here", 35), ("gap", 25), ("active", 33), ("gone", 31)):
        consumers.commit(lab.bootstrap, g[word], {(name, 0): offset})
    consumers.commit(lab.bootstrap, g["else"], {(other, 0): 1})
    lab.backup(name, other, groups="all", on_gap="continue")
    until = now_ms()
    # Committed after the end positions were read, as far as the catalog is concerned.
    truth.produce(lab.bootstrap, name, rows(7, first=40))
    consumers.commit(lab.bootstrap, g["beyond"], {(name, 0): 47})
    assert lab.restore(name, maps={name: copy}, allow_gaps=True)["entries"] == 30

    asked = tuple(g[word] for word in ("here", "gap", "active", "else"))
    plan = lab.restore_groups(*asked, dry_run=True)
    assert outcomes(plan) == {
        g["here"]: "moved", g["gap"]: "in_gap", g["active"]: "moved", g["else"]: "not_restored",
    }  # fmt: skip
    assert next(x for x in plan["groups"] if x["group"] == g["gap"])["offsets"] == 5
    for group in asked:
        assert (copy, 0) not in consumers.committed(lab.bootstrap, group)

    with (
        consumers.member(lab.bootstrap, g["active"], copy),
        pytest.raises(Incomplete, match="has members in the target"),
    ):
        lab.restore_groups(*asked)
    done = lab.restore_groups(*asked)
    assert outcomes(done) == {
        g["here"]: "unchanged", g["gap"]: "unchanged", g["active"]: "moved", g["else"]: "not_restored",
    }  # fmt: skip
    assert consumers.read_on(lab.bootstrap, g["here"], copy, 5) == [
        (0, b"message %d" % i) for i in range(35, 40)
    ]
    assert consumers.read_on(lab.bootstrap, g["gap"], copy, 1) == [(0, b"message 30")]
    assert outcomes(lab.restore_groups(g["here"])) == {g["here"]: "ahead"}
    assert outcomes(lab.restore_groups(g["here"], force=True)) == {g["here"]: "moved"}
    assert outcomes(lab.restore_groups(g["here"])) == {g["here"]: "unchanged"}

    # Further than what was restored: to its end, and by how much.
    lab.backup(name, groups="all")
    late = lab.restore_groups(g["beyond"])
    assert outcomes(late) == {g["beyond"]: "at_end"}
    assert late["groups"][0]["offsets"] == 7
    truth.produce(lab.bootstrap, copy, rows(1, first=99))
    assert consumers.read_on(lab.bootstrap, g["beyond"], copy, 1) == [(0, b"message 99")]

    # As it stood at a time, after its topic was deleted and made again.
    truth.delete_topic(lab.bootstrap, name)
    truth.create_topic(lab.bootstrap, name, retention_ms="-1")
    truth.produce(lab.bootstrap, name, rows(3))
    consumers.commit(lab.bootstrap, g["gone"], {(name, 0): 2})
    lab.backup(name, groups="all")
    assert outcomes(lab.restore_groups(g["gone"])) == {g["gone"]: "topic_deleted"}
    assert outcomes(lab.restore_groups(g["gone"], at_ts=until)) == {g["gone"]: "moved"}
    assert consumers.read_on(lab.bootstrap, g["gone"], copy, 1) == [(0, b"message 31")]

    opened = CatalogReader.require(str(lab.folder))
    audits = opened.select("SELECT * FROM audit WHERE action = 'restore groups'").read_all()
    assert len(audits) >= 5


@pytest.mark.long
def test_continuing_is_refused_where_it_could_not_be_right(lab: Lab, topic: Make, tmp_path: Path) -> None:
    name, copy, full = topic("refused"), f"{topic('y')}-copy", topic("strangers")
    truth.produce(lab.bootstrap, name, rows(10))
    truth.produce(lab.bootstrap, full, rows(3))
    lab.backup(name)
    with pytest.raises(UsageProblem, match="--continue"):
        lab.restore(name, continued=True, target=f"dir:{tmp_path}/out")
    with pytest.raises(Refused, match="no restore that is known brought them"):
        lab.restore(name, continued=True, maps={name: full})
    lab.restore(name, continued=True, maps={name: copy}, to_ts=START + 4)
    with pytest.raises(Refused, match="records after that were left out"):
        lab.restore(name, continued=True, maps={name: copy})
    part, newest = f"{copy}-part", f"SELECT * FROM files WHERE scope = '{name}' AND start_position > 0"
    truth.produce(lab.bootstrap, name, rows(2, first=10))
    lab.backup(name)
    lab.restore(select=newest, partial=True, maps={name: part})
    with pytest.raises(Refused, match="in part: some records were left out"):
        lab.restore(name, continued=True, maps={name: part})
    whole = f"{copy}-whole"
    assert lab.restore(name, continued=True, maps={name: whole})["entries"] == 12
    with pytest.raises(Refused, match="--from-time would leave out"):
        lab.restore(name, continued=True, maps={name: whole}, from_ts=START)
    assert lab.restore(name, continued=True, maps={name: whole})["entries"] == 0
    truth.produce(lab.bootstrap, name, rows(4, first=12))
    lab.backup(name)
    shown = lab.restore(name, continued=True, maps={name: whole}, dry_run=True)
    assert shown["entries_in_files"] == 4
    assert lab.restore(name, continued=True, maps={name: whole})["entries"] == 4
    # A new chain holds all records again; only those that are new are brought.
    truth.produce(lab.bootstrap, name, rows(2, first=16))
    lab.backup(name, mode="full")
    assert lab.restore(name, continued=True, maps={name: whole})["entries"] == 2
    assert translated.assert_exact(lab, name, whole) == 18
    truth.delete_topic(lab.bootstrap, name)
    truth.create_topic(lab.bootstrap, name, retention_ms="-1")
    truth.produce(lab.bootstrap, name, rows(2))
    lab.backup(name)
    with pytest.raises(Refused, match="deleted and recreated"):
        lab.restore(name, continued=True, maps={name: whole}, allow_gaps=True)


def java_partition(key: bytes, partitions: int) -> int:
    """Where the Java producer's default partitioner puts a key (murmur2, by its definition)."""
    mask, mixer = 0xFFFFFFFF, 0x5BD1E995
    h = 0x9747B28C ^ len(key)
    whole = len(key) // 4 * 4
    for i in range(0, whole, 4):
        k = int.from_bytes(key[i : i + 4], "little") * mixer & mask
        k = (k ^ k >> 24) * mixer & mask
        h = (h * mixer & mask) ^ k
    if key[whole:]:
        h = (h ^ int.from_bytes(key[whole:], "little")) * mixer & mask
    h = (h ^ h >> 13) * mixer & mask
    return ((h ^ h >> 15) & 0x7FFFFFFF) % partitions


def test_keys_go_where_java_would_put_them_and_keep_their_order(lab: Lab, topic: Make) -> None:
    # Known values of the Java client's own tests: murmur2 of "21" and of "foobar".
    assert java_partition(b"21", 2**31) == -973932308 & 0x7FFFFFFF
    assert java_partition(b"foobar", 2**31) == -790332482 & 0x7FFFFFFF
    name, fewer, copy = topic("spread", partitions=3), topic("fewer", partitions=2), f"{topic('z')}-more"
    keys = [b"", b"a", *(b"key %d" % i for i in range(40))]
    wanted = [
        Record(java_partition(keys[i % 42], 3), keys[i % 42], b"value %d" % i, (("h", b"%d" % i),), START + i)
        for i in range(800)
    ] + [Record(i % 3, None, b"no key %d" % i, (), START + i) for i in range(30)]
    truth.produce(lab.bootstrap, name, wanted)
    group = f"{name}-group"
    consumers.commit(lab.bootstrap, group, {(name, p): 5 for p in range(3)})
    lab.backup(name, groups="all", target_bytes=4_000)

    for wrong in (fewer, topic("more", partitions=4)):
        with pytest.raises(Refused, match=r"partitions, the backup 3"):
            lab.restore(name, maps={name: wrong})
    with pytest.raises(UsageProblem, match="--repartition"):
        lab.restore(name, maps={name: copy}, partitions=5)
    with pytest.raises(Incomplete, match="keys changed partitions"):
        lab.restore(name, maps={name: copy}, repartition=True, partitions=5, groups=(group,))

    for target, count in ((copy, 5), (fewer, 2)):
        if target == fewer:
            assert lab.restore(name, maps={name: fewer}, repartition=True)["entries"] == 830
        found = [r for p in truth.contents(lab.bootstrap, target).values() for r in p]
        assert len({r.partition for r in found}) == count
        for key in keys:
            there = [r for r in found if r.key == key]
            assert {r.partition for r in there} == {java_partition(key, count)}
            assert [(r.value, r.headers, r.timestamp) for r in there] == [
                (r.value, r.headers, r.timestamp) for r in wanted if r.key == key
            ]
        assert sorted(r.value or b"" for r in found if r.key is None) == sorted(
            r.value or b"" for r in wanted if r.key is None
        )
    assert lab.restore(name, maps={name: copy}, repartition=True, continued=True)["entries"] == 0
