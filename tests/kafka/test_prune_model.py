"""Any sequence of writing, losing, backing up and pruning leaves restorable what a model says must be.

The model knows every record that was written. After a prune, restoring any backup gives of each partition an
end of what that backup held then: what is missing in front is older than some prune was told to keep, or
lies in front of files that together are as large as it was told to keep. Nothing more is missing, and of a
restore that is refused nothing of some partition could have been given.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from uuid import uuid4

import pytest
from confluent_kafka.admin import AdminClient
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule
from tests.support import kafka_truth as truth
from tests.support.kafka_truth import Record
from tests.support.lives import live, planned
from tests.support.runs import Lab, now_ms

from lakebackup.errors import Refused
from lakebackup.rules.retention import Limits

pytestmark = [pytest.mark.spark, pytest.mark.kafka]

PARTITIONS = 2
STEP_MS = 100_000  # records are some of these old, and files hold no more than one of them
Make = Callable[..., str]
Row = tuple[int, int, bytes]  # offset, timestamp, value


@dataclass
class Taken:
    """A backup as the model has it: what its chain held of each partition when it was taken."""

    end_ts: int
    base: int
    held: list[list[Row]]


@dataclass
class Log:
    """One partition: what was written, what the broker still has, what prunes may have deleted."""

    rows: list[Row] = field(default_factory=list)
    low: int = 0
    backed_up: int = 0
    older_than: int = -1
    below: int = 0

    def may_be_gone(self, row: Row) -> bool:
        return row[1] < self.older_than or row[0] < self.below


class Cycles(RuleBasedStateMachine):
    """One topic over many cycles of its retention."""

    def __init__(self, lab: Lab, make: Path) -> None:
        super().__init__()
        self.lab = Lab(lab.spark, lab.bootstrap, make / uuid4().hex, lab._empty_catalog)
        self.admin = AdminClient({"bootstrap.servers": lab.bootstrap})
        self.topic = f"cycles-{uuid4().hex[:8]}"
        self.logs = [Log() for _ in range(PARTITIONS)]
        self.taken: list[Taken] = []

    @initialize()
    def topic_is_made(self) -> None:
        truth.create_topic(self.lab.bootstrap, self.topic, PARTITIONS, retention_ms="-1")

    @rule(
        ages=st.lists(st.tuples(st.integers(0, PARTITIONS - 1), st.integers(0, 20)), min_size=1, max_size=12)
    )
    def produce(self, ages: list[tuple[int, int]]) -> None:
        now = now_ms()
        records = []
        for partition, age in ages:
            log = self.logs[partition]
            row = (len(log.rows), now - age * STEP_MS, uuid4().bytes * (1 + age * 5))
            log.rows.append(row)
            records.append(Record(partition, b"k", row[2], (), row[1]))
        truth.produce(self.lab.bootstrap, self.topic, records)

    @precondition(lambda self: any(log.rows for log in self.logs))
    @rule(mode=st.sampled_from(["auto", "auto", "full"]))
    def backup(self, mode: str) -> None:
        done = self.lab.backup(self.topic, mode=mode, roll_ms=STEP_MS, groups="none")
        full = done["kind"] == "full"
        before = None if full else self.taken[-1]
        held = []
        for partition, log in enumerate(self.logs):
            start = log.low if before is None else log.backed_up
            held.append(
                [*(before.held[partition] if before else []), *(row for row in log.rows if row[0] >= start)]
            )
            log.backed_up = len(log.rows)
        base = len(self.taken) if before is None else before.base
        self.taken.append(Taken(done["end_ts"], base, held))

    @precondition(lambda self: self.taken)
    @rule(part=st.integers(1, 4))
    def broker_deletes(self, part: int) -> None:
        """What the topic's own retention does: only what was backed up, so that there is no gap."""
        wanted = {p: max(log.low, log.backed_up * part // 5) for p, log in enumerate(self.logs)}
        truth.delete_records(self.lab.bootstrap, self.topic, wanted)
        for partition, low in wanted.items():
            self.logs[partition].low = low

    @precondition(lambda self: self.taken)
    @rule(keep=st.integers(0, 25), size=st.none() | st.integers(0, 3000))
    def prune(self, keep: int, size: int | None) -> None:
        keep_ms = keep * STEP_MS + STEP_MS // 2
        cutoff = self.taken[-1].end_ts - keep_ms
        for partition, log in enumerate(self.logs):
            log.older_than = max(log.older_than, cutoff)
            if size is not None:
                log.below = max(log.below, self.large_enough_from(partition, size))
        expected = self.lab.prune(limits=Limits(keep_ms, size), delete=False)
        done = self.lab.prune(limits=Limits(keep_ms, size))
        assert [done[k] for k in ("files", "bytes")] == [expected[k] for k in ("files", "bytes")]
        self.nothing_old_is_left(cutoff)
        self.check()

    def large_enough_from(self, partition: int, size: int) -> int:
        """Where the newest files of the newest chain begin that together are as large."""
        newest = self.lab.sql("SELECT base FROM restore_points WHERE newest")[0]["base"]
        files = self.lab.sql(
            "SELECT f.start_position, f.end_position, f.bytes FROM files AS f JOIN backups AS b "
            f"ON f.backup_id = b.backup_id WHERE b.base = '{newest}' AND f.region = '{partition}' "
            "ORDER BY f.start_position DESC"
        )
        total, floor = 0, max((f["end_position"] for f in files), default=0)
        for file in files:
            if total >= size:
                break
            total, floor = total + file["bytes"], file["start_position"]
        return floor

    def nothing_old_is_left(self, cutoff: int) -> None:
        """No file stays for no reason: none is old and lies wholly in front of the first young one."""
        for partition in range(PARTITIONS):
            files = self.lab.sql(f"SELECT * FROM files WHERE region = '{partition}'")
            young = [f["start_position"] for f in files if f["max_ts"] >= cutoff]
            first = min(young, default=max((f["end_position"] for f in files), default=0))
            assert [f["path"] for f in files if f["end_position"] <= first] == []
        there = {f"{p.relative_to(self.lab.folder)}" for p in self.lab.folder.glob("lab/*/topics/**/*.data")}
        assert there == {row["path"] for row in self.lab.sql("SELECT path FROM files")}

    def check(self) -> None:
        for taken in self.taken:
            self.check_restore(taken, taken.end_ts)
        self.check_restore(self.taken[-1], None)

    def check_restore(self, taken: Taken, to_ts: int | None) -> None:
        expected = [[row for row in rows if to_ts is None or row[1] <= to_ts] for rows in taken.held]
        try:
            found = self.restored(to_ts)
        except Refused:
            assert to_ts is not None
            gone = [
                bool(rows) and all(log.may_be_gone(row) for row in rows)
                for log, rows in zip(self.logs, expected, strict=True)
            ]
            assert any(gone), f"refused at {to_ts}, though something of each partition must be there"
            return
        for log, rows, given in zip(self.logs, expected, found, strict=True):
            assert given == rows[len(rows) - len(given) :]
            assert [row for row in rows[: len(rows) - len(given)] if not log.may_be_gone(row)] == []

    def restored(self, to_ts: int | None) -> list[list[Row]]:
        found = planned(self.lab, self.topic, to_ts, PARTITIONS)
        return [[(offset, r.timestamp, r.value or b"") for offset, r in rows] for rows in found]

    def teardown(self) -> None:
        if self.taken:
            self.check()
        if self.topic in self.admin.list_topics(timeout=30).topics:
            self.admin.delete_topics([self.topic])[self.topic].result(30)


@pytest.mark.long
def test_a_prune_by_age_and_by_size(lab: Lab, tmp_path: Path) -> None:
    life = Cycles(lab, tmp_path)
    try:
        life.topic_is_made()
        life.produce([(p, age) for age in (20, 18, 18, 15, 16, 12, 3, 11) for p in (0, 1)])
        life.backup("auto")
        life.broker_deletes(4)
        life.produce([(0, 9), (0, 10), (1, 9), (0, 8), (0, 0)])
        life.backup("auto")
        life.produce([(1, 2), (0, 2), (0, 1), (1, 1)])
        life.backup("full")
        before = life.lab.sql("SELECT path FROM files")
        life.prune(keep=9, size=1_500)
        assert len(life.lab.sql("SELECT path FROM files")) < len(before)
    finally:
        life.teardown()


@pytest.mark.long
def test_many_cycles(lab: Lab, tmp_path: Path) -> None:
    live(lambda: Cycles(lab, tmp_path), 10, 30)


@pytest.mark.long
def test_what_is_left_comes_back_into_a_topic(lab: Lab, topic: Make) -> None:
    """A retention of seven of ten records' ages, a broker that deleted them too, and a new topic."""
    name = topic("retained", **{"retention.ms": str(7 * STEP_MS)})
    now = now_ms()
    ages = [9, 8, 7, 6, 5, 4, 3, 2, 1]
    records = [Record(0, b"k%d" % age, b"v", (), now - age * STEP_MS) for age in ages]
    truth.produce(lab.bootstrap, name, records)
    lab.backup(name, roll_ms=STEP_MS // 2, groups="none")
    truth.delete_records(lab.bootstrap, name, {0: 5})
    truth.produce(lab.bootstrap, name, [Record(0, b"new", b"v", (), now)])
    assert lab.backup(name, groups="none")["kind"] == "differential"
    done = lab.prune()
    assert (done["files"], done["partitions"][0]["floor"]) == (3, 3)
    restored = lab.restore(name, maps={name: f"{name}-copy"})
    assert restored["entries"] == 7
    copy = truth.contents(lab.bootstrap, f"{name}-copy")
    assert [r.key for r in copy[0]] == [b"k%d" % age for age in ages if age < 7] + [b"new"]
    assert lab.verify(mode="decode")["damaged"] == 0
    with pytest.raises(Refused, match="partition 0: what it held then was pruned"):
        lab.restore(name, maps={name: f"{name}-old"}, to_ts=now - 8 * STEP_MS)
