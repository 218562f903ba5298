"""Checks prunes against a model, after random sequences of writes, losses, backups and prunes.

The model knows every record that was written. After a prune, a restore of any backup must give the last rows
of what the backup held of each partition. Each row that is missing before them must be older than the age
limit of a prune, or before the newest files that together reach the size limit of a prune. A restore may be
refused only if the prunes may have deleted all rows of a partition.
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
STEP_MS = 100_000  # the age of a record is a number of steps; a file spans one step at most
MakeTopic = Callable[..., str]
Row = tuple[int, int, bytes]  # offset, timestamp, value


@dataclass
class ModelBackup:
    """A backup in the model, with the rows of each partition that its chain held when it was taken."""

    end_ts: int
    base: int
    rows_by_partition: list[list[Row]]


@dataclass
class Log:
    """One partition: all written rows, the broker's first offset, and which rows prunes may have deleted."""

    rows: list[Row] = field(default_factory=list)
    low: int = 0
    backed_up: int = 0
    older_than: int = -1
    below: int = 0

    def may_be_gone(self, row: Row) -> bool:
        return row[1] < self.older_than or row[0] < self.below


class Cycles(RuleBasedStateMachine):
    """One topic through many cycles of its retention."""

    def __init__(self, lab: Lab, folder: Path) -> None:
        super().__init__()
        self.lab = Lab(lab.spark, lab.bootstrap, folder / uuid4().hex, lab._empty_catalog)
        self.admin = AdminClient({"bootstrap.servers": lab.bootstrap})
        self.topic = f"cycles-{uuid4().hex[:8]}"
        self.logs = [Log() for _ in range(PARTITIONS)]
        self.backups: list[ModelBackup] = []

    @initialize()
    def begin(self) -> None:
        truth.create_topic(self.lab.bootstrap, self.topic, PARTITIONS, retention_ms="-1")

    @rule(
        ages=st.lists(st.tuples(st.integers(0, PARTITIONS - 1), st.integers(0, 20)), min_size=1, max_size=12)
    )
    def produce(self, ages: list[tuple[int, int]]) -> None:
        now_ts = now_ms()
        records = []
        for partition, age in ages:
            log = self.logs[partition]
            row = (len(log.rows), now_ts - age * STEP_MS, uuid4().bytes * (1 + age * 5))
            log.rows.append(row)
            records.append(Record(partition, b"k", row[2], (), row[1]))
        truth.produce(self.lab.bootstrap, self.topic, records)

    @precondition(lambda self: any(log.rows for log in self.logs))
    @rule(mode=st.sampled_from(["auto", "auto", "full"]))
    def backup(self, mode: str) -> None:
        result = self.lab.backup(self.topic, mode=mode, roll_ms=STEP_MS, groups="none")
        is_full = result["kind"] == "full"
        previous_backup = None if is_full else self.backups[-1]
        rows_by_partition = []
        for partition, log in enumerate(self.logs):
            start = log.low if previous_backup is None else log.backed_up
            rows_by_partition.append(
                [
                    *(previous_backup.rows_by_partition[partition] if previous_backup else []),
                    *(row for row in log.rows if row[0] >= start),
                ]
            )
            log.backed_up = len(log.rows)
        base = len(self.backups) if previous_backup is None else previous_backup.base
        self.backups.append(ModelBackup(result["end_ts"], base, rows_by_partition))

    @precondition(lambda self: self.backups)
    @rule(part=st.integers(1, 4))
    def broker_deletes(self, part: int) -> None:
        """Delete records as the topic's own retention does, but only backed-up ones: so no gap appears."""
        low_offsets = {p: max(log.low, log.backed_up * part // 5) for p, log in enumerate(self.logs)}
        truth.delete_records(self.lab.bootstrap, self.topic, low_offsets)
        for partition, low in low_offsets.items():
            self.logs[partition].low = low

    @precondition(lambda self: self.backups)
    @rule(keep=st.integers(0, 25), size=st.none() | st.integers(0, 3000))
    def prune(self, keep: int, size: int | None) -> None:
        keep_ms = keep * STEP_MS + STEP_MS // 2
        cutoff = self.backups[-1].end_ts - keep_ms
        for partition, log in enumerate(self.logs):
            log.older_than = max(log.older_than, cutoff)
            if size is not None:
                log.below = max(log.below, self.size_floor(partition, size))
        plan = self.lab.prune(limits=Limits(keep_ms, size), delete=False)
        result = self.lab.prune(limits=Limits(keep_ms, size))
        assert [result[name] for name in ("files", "bytes")] == [plan[name] for name in ("files", "bytes")]
        self.check_old_files_are_deleted(cutoff)
        self.check()

    def size_floor(self, partition: int, size: int) -> int:
        """The start of the newest files of the newest chain that together have at least `size` bytes."""
        newest_base = self.lab.sql("SELECT base FROM restore_points WHERE newest")[0]["base"]
        files = self.lab.sql(
            "SELECT f.start_position, f.end_position, f.bytes FROM files AS f JOIN backups AS b "
            f"ON f.backup_id = b.backup_id WHERE b.base = '{newest_base}' AND f.region = '{partition}' "
            "ORDER BY f.start_position DESC"
        )
        total, floor = 0, max((f["end_position"] for f in files), default=0)
        for file in files:
            if total >= size:
                break
            total, floor = total + file["bytes"], file["start_position"]
        return floor

    def check_old_files_are_deleted(self, cutoff: int) -> None:
        """No remaining file ends before the first young file, and each data file is in the catalog."""
        for partition in range(PARTITIONS):
            files = self.lab.sql(f"SELECT * FROM files WHERE region = '{partition}'")
            young_starts = [f["start_position"] for f in files if f["max_ts"] >= cutoff]
            first_young = min(young_starts, default=max((f["end_position"] for f in files), default=0))
            assert [f["path"] for f in files if f["end_position"] <= first_young] == []
        stored_paths = {
            f"{p.relative_to(self.lab.folder)}" for p in self.lab.folder.glob("lab/*/topics/**/*.data")
        }
        assert stored_paths == {row["path"] for row in self.lab.sql("SELECT path FROM files")}

    def check(self) -> None:
        for backup in self.backups:
            self.check_restore(backup, backup.end_ts)
        self.check_restore(self.backups[-1], None)

    def check_restore(self, backup: ModelBackup, to_ts: int | None) -> None:
        expected = [
            [row for row in rows if to_ts is None or row[1] <= to_ts] for rows in backup.rows_by_partition
        ]
        try:
            restored = self.planned_rows(to_ts)
        except Refused:
            assert to_ts is not None
            may_be_empty = [
                bool(rows) and all(log.may_be_gone(row) for row in rows)
                for log, rows in zip(self.logs, expected, strict=True)
            ]
            assert any(may_be_empty), f"refused at {to_ts}, though something of each partition must be there"
            return
        for log, rows, restored_rows in zip(self.logs, expected, restored, strict=True):
            assert restored_rows == rows[len(rows) - len(restored_rows) :]
            assert [row for row in rows[: len(rows) - len(restored_rows)] if not log.may_be_gone(row)] == []

    def planned_rows(self, to_ts: int | None) -> list[list[Row]]:
        planned_records = planned(self.lab, self.topic, to_ts, PARTITIONS)
        return [[(offset, r.timestamp, r.value or b"") for offset, r in rows] for rows in planned_records]

    def teardown(self) -> None:
        if self.backups:
            self.check()
        if self.topic in self.admin.list_topics(timeout=30).topics:
            self.admin.delete_topics([self.topic])[self.topic].result(30)


@pytest.mark.long
def test_a_prune_by_age_and_by_size(lab: Lab, tmp_path: Path) -> None:
    cycles = Cycles(lab, tmp_path)
    try:
        cycles.begin()
        cycles.produce([(p, age) for age in (20, 18, 18, 15, 16, 12, 3, 11) for p in (0, 1)])
        cycles.backup("auto")
        cycles.broker_deletes(4)
        cycles.produce([(0, 9), (0, 10), (1, 9), (0, 8), (0, 0)])
        cycles.backup("auto")
        cycles.produce([(1, 2), (0, 2), (0, 1), (1, 1)])
        cycles.backup("full")
        files_before = cycles.lab.sql("SELECT path FROM files")
        cycles.prune(keep=9, size=1_500)
        assert len(cycles.lab.sql("SELECT path FROM files")) < len(files_before)
    finally:
        cycles.teardown()


@pytest.mark.long
def test_many_cycles(lab: Lab, tmp_path: Path) -> None:
    live(lambda: Cycles(lab, tmp_path), 10, 30)


@pytest.mark.long
def test_the_records_left_by_a_prune_are_restored_into_a_topic(lab: Lab, topic: MakeTopic) -> None:
    """The retention keeps seven of ten records. The broker deleted older ones too."""
    name = topic("retained", **{"retention.ms": str(7 * STEP_MS)})
    now_ts = now_ms()
    ages = [9, 8, 7, 6, 5, 4, 3, 2, 1]
    records = [Record(0, b"k%d" % age, b"v", (), now_ts - age * STEP_MS) for age in ages]
    truth.produce(lab.bootstrap, name, records)
    lab.backup(name, roll_ms=STEP_MS // 2, groups="none")
    truth.delete_records(lab.bootstrap, name, {0: 5})
    truth.produce(lab.bootstrap, name, [Record(0, b"new", b"v", (), now_ts)])
    assert lab.backup(name, groups="none")["kind"] == "differential"
    pruned = lab.prune()
    assert (pruned["files"], pruned["partitions"][0]["floor"]) == (3, 3)
    restored = lab.restore(name, maps={name: f"{name}-copy"})
    assert restored["entries"] == 7
    copy_records = truth.contents(lab.bootstrap, f"{name}-copy")
    assert [r.key for r in copy_records[0]] == [b"k%d" % age for age in ages if age < 7] + [b"new"]
    assert lab.verify(mode="decode")["damaged"] == 0
    with pytest.raises(Refused, match="partition 0: what it held then was pruned"):
        lab.restore(name, maps={name: f"{name}-old"}, to_ts=now_ts - 8 * STEP_MS)
