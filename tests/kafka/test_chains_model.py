"""Checks chains of backups against a model: random writes, losses, backups, merges, prunes, interruptions.

The model (tests/support/chains.py) knows the records of each backup: those of its parent, and those written
since that the broker still had. A merge holds what its last member holds. After each step, the catalog must
promise exactly the backups that are intact down to their full, and each must give back exactly its records. A
restore to a time must give the records up to that time of the first promised backup that ends then or later.
A prune must delete no backup that has to stay.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from confluent_kafka.admin import AdminClient
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule
from tests.support import kafka_truth as truth
from tests.support.chains import PARTITIONS, ExpectedBackup, Mode, Model, ModelBackup, Records, until
from tests.support.faults import Steps
from tests.support.kafka_truth import Record
from tests.support.lives import dying, live, read_draft
from tests.support.runs import Lab, now_ms

from lakebackup.errors import Refused, UsageProblem
from lakebackup.plan.topics.request import RestoreRequest, plan_restore
from lakebackup.plan.topics.restore import require_restorable
from lakebackup.rows.upkeep import Hold, Policy
from lakebackup.storage import open_storage
from lakebackup.store import tombstones
from lakebackup.store.reader import CatalogReader
from lakebackup.store.writer import CatalogWriter
from lakebackup_jobs.query import record_query as ask
from lakebackup_jobs.topics.backup import TopicsBackup
from lakebackup_jobs.upkeep import policies

pytestmark = [pytest.mark.spark, pytest.mark.kafka]

OLD_MS = 1_600_000_000_000

BACKUP_DIES = (
    "put begun.json",
    "put data",
    "put manifest.json",
    "commit files",
    "commit backups",
    "put complete",
)
MERGE_DIES = (
    "put merge.json",
    "put data",
    "put manifest.json",
    "commit files",
    "commit backups",
    "put complete",
)
PRUNE_DIES = (
    "put prune.json",
    "commit backups",
    "commit removals",
    "commit audit",
    "delete data",
    "put done",
)


record_lists = st.lists(
    st.builds(
        Record,
        partition=st.integers(0, PARTITIONS - 1),
        key=st.sampled_from([None, b"k", b"another"]),
        value=st.sampled_from([None, b"", b"v", b"x" * 500]),
        headers=st.sampled_from([(), (("h", None),)]),
        timestamp=st.integers(-2_000, 2_000) | st.just(-10_000_000),
    ),
    max_size=5,
)
modes: st.SearchStrategy[Mode] = st.sampled_from(["incr-diff", "incr-diff", "incr-accu", "full", "auto"])
levels = st.sampled_from([None, 1, 1, 2, 2, 3])
indexes = st.integers(0, 30)


class Chains(RuleBasedStateMachine):
    """One topic and one repository. Hypothesis calls the rules in any order."""

    def __init__(self, lab: Lab, folder: Path) -> None:
        super().__init__()
        self.folder = Path(tempfile.mkdtemp(dir=folder))
        self.lab = Lab(lab.spark, lab.bootstrap, self.folder / "backups", lab._empty_catalog)
        self.admin = AdminClient({"bootstrap.servers": lab.bootstrap})
        self.topic = f"chains-{uuid4().hex[:8]}"
        self.model = Model()
        self.interrupted: tuple[str, ExpectedBackup] | None = None
        self.unmarked: tuple[object, str] | None = (
            None  # the request and the id of a backup that lacks its marker only
        )
        self.died = False
        self.records_by_file: dict[tuple[Any, ...], list[tuple[int, Record]]] = {}

    @initialize(
        records=record_lists,
        later_backups=st.lists(st.tuples(record_lists, modes, levels), min_size=2, max_size=4),
    )
    def create(
        self, records: list[Record], later_backups: list[tuple[list[Record], Mode, int | None]]
    ) -> None:
        truth.create_topic(self.lab.bootstrap, self.topic, PARTITIONS, retention_ms="-1")
        self.backup(records, "auto", None, "full", None)
        for later_records, mode, level in later_backups:
            self.backup(later_records, mode, level, "full", None)

    def produce(self, records: list[Record]) -> None:
        now_ts = now_ms()
        dated_records = [
            replace(draft, timestamp=now_ts + draft.timestamp if draft.timestamp >= -2_000 else OLD_MS)
            for draft in records
        ]
        truth.produce(self.lab.bootstrap, self.topic, dated_records)
        for record in dated_records:
            self.model.logs[record.partition].rows.append(record)

    @rule(
        records=record_lists,
        mode=modes,
        level=levels,
        on_gap=st.sampled_from(["full", "continue"]),
        dies=st.none() | st.none() | st.sampled_from(BACKUP_DIES),
    )
    def backup(
        self, records: list[Record], mode: Mode, level: int | None, on_gap: str, dies: str | None
    ) -> None:
        self.produce(records)
        self.run_backup(mode, None if mode == "full" else level, None, on_gap, dies)

    @rule(records=record_lists, level=levels, parent_index=indexes, cumulative=st.booleans())
    def backup_from(
        self, records: list[Record], level: int | None, parent_index: int, cumulative: bool
    ) -> None:
        self.produce(records)
        parent = self.model.backups[parent_index % len(self.model.backups)] if self.model.backups else None
        self.run_backup("incr-accu" if cumulative else "incr-diff", level, parent, "full", None)

    def run_backup(
        self, mode: Mode, level: int | None, parent: ModelBackup | None, on_gap: str, dies: str | None
    ) -> None:
        error: Exception | None = None
        with self.dying(dies) as steps:
            try:
                self.lab.backup(
                    self.topic, mode=mode, level=level, parent=parent and parent.backup_id, on_gap=on_gap
                )
            except (Refused, UsageProblem) as refused:
                error = refused
        new_rows, request = self.new_backups(), (mode, level, parent and parent.backup_id)
        draft = read_draft(open_storage(str(self.lab.folder)), "lab", TopicsBackup) if steps.dead else None
        # If the request of a backup that lacked only its marker is repeated, the run completes that backup.
        # Records since then go into another backup after it.
        is_repeat = self.unmarked is not None and self.unmarked[0] == request and error is None
        if is_repeat and mode == "full" and not new_rows:
            if draft is None:
                self.unmarked = self.interrupted = None
            self.check()
            return
        if self.interrupted and new_rows and new_rows[0]["backup_id"] == self.interrupted[0]:
            self.add(new_rows.pop(0), self.interrupted[1])  # the completed backup of the run that died
            self.interrupted, is_repeat = None, True
        if is_repeat:
            mode, parent = "incr-diff", None
        if not (draft and self.unmarked and draft.backup_id == self.unmarked[1]):
            self.unmarked = (request, new_rows[-1]["backup_id"]) if steps.dead and new_rows else None
        expected = self.model.next(mode, level, parent, on_gap)
        if isinstance(expected, type):
            assert isinstance(error, expected) or steps.dead, (error, expected)
            assert not new_rows
        elif new_rows:
            assert error is None
            (row,) = new_rows
            self.add(row, expected)
        elif not steps.dead:
            assert error is None, error
            assert is_repeat
            assert not expected.entries, "it said nothing of what was new"
        if draft is None:
            self.interrupted = None
        elif not isinstance(expected, type) and (
            not self.interrupted or draft.backup_id != self.interrupted[0]
        ):
            self.interrupted = draft.backup_id, expected
        self.check()

    def add(self, row: dict[str, Any], backup: ExpectedBackup) -> None:
        parent = backup.parent
        expected_columns = (backup.kind, backup.level, parent and parent.backup_id, backup.entries)
        assert tuple(row[n] for n in ("kind", "level", "parent", "entries")) == expected_columns
        number = 1 + max((t.number for t in self.model.backups), default=0)
        assert (row["number"], row["place"], row["parent_place"]) == (
            number,
            number,
            parent and parent.position,
        )
        base = parent.base if parent else row["backup_id"]
        self.model.holes += [(gap_start_ts, row["end_ts"]) for gap_start_ts in backup.gap_start_ts]
        self.model.backups.append(
            ModelBackup(
                row["backup_id"], number, number, parent.position if parent else 0, base, backup.level,
                backup.kind, row["end_ts"], backup.ends, backup.records, backup.over,
            )
        )  # fmt: skip

    @precondition(lambda self: self.model.backups)
    @rule(partition=st.integers(0, PARTITIONS - 1), quarters=st.integers(1, 4))
    def purge(self, partition: int, quarters: int) -> None:
        log = self.model.logs[partition]
        low = log.low + (len(log.rows) - log.low) * quarters // 4
        if low > log.low:
            truth.delete_records(self.lab.bootstrap, self.topic, {partition: low})
            log.low = low

    @precondition(lambda self: len(self.model.backups) > 1)
    @rule(
        level=st.sampled_from([1, 2, 2, 3]),
        until_index=st.none() | indexes,
        dies=st.none() | st.none() | st.sampled_from(MERGE_DIES),
    )
    def merge(self, level: int, until_index: int | None, dies: str | None) -> None:
        backups = self.model.backups
        last_member = backups[until_index % len(backups)] if until_index is not None else None
        members = self.model.merged(level, last_member)
        refused = False
        with self.dying(dies) as steps:
            try:
                self.lab.merge(level, until=last_member and last_member.backup_id)
            except Refused:
                refused = True
        new_rows = self.new_backups()
        if isinstance(members, type) or not members:
            assert refused == isinstance(members, type) or steps.dead
            assert not new_rows
        elif new_rows:
            (row,) = new_rows
            self.add_merge(row, level, members)
        else:
            assert steps.dead
        self.check()

    def add_merge(self, row: dict[str, Any], level: int, members: list[ModelBackup]) -> None:
        first_member, last_member = members[0], members[-1]
        parent = [t for t in self.model.path(last_member) or () if t.position == first_member.parent_place]
        is_next_level = bool(parent) and parent[0].level == level - 1
        kind = "full" if not parent else "differential" if is_next_level else "cumulative"
        merge = replace(
            last_member,
            backup_id=row["backup_id"],
            number=1 + max(t.number for t in self.model.backups),
            parent_place=first_member.parent_place,
            base=last_member.base if parent else row["backup_id"],
            level=level - 1,
            kind=kind,
        )
        names = ("number", "kind", "level", "base", "end_ts")
        assert [row[name] for name in names] == [getattr(merge, name) for name in names]
        assert row["place"] == merge.position
        assert row["parent"] == (parent[0].backup_id if parent else None)
        self.model.backups.append(merge)

    @precondition(lambda self: self.model.backups)
    @rule(fulls=st.sampled_from([None, 1, 1, 2]), index=indexes, hold=st.booleans())
    def policy(self, fulls: int | None, index: int, hold: bool) -> None:
        """Change what must stay: the number of fulls, and whether one backup is on hold."""
        writer = CatalogWriter(None, str(self.lab.folder))
        now_us = time.time_ns() // 1000
        if fulls != self.model.redundancy:
            removed = fulls is None
            writer.record(Policy(source="lab", at=now_us, actor="me", redundancy=fulls, removed=removed))
            self.model.redundancy = fulls
        backup_id = self.model.backups[index % len(self.model.backups)].backup_id
        if hold != (backup_id in self.model.held_ids) and backup_id not in self.model.leaving:
            writer.record(
                Hold(
                    backup_id=backup_id, source="lab", at=now_us, actor="me", reason="why", released=not hold
                )
            )
            self.model.held_ids ^= {backup_id}

    @precondition(lambda self: len(self.model.backups) > 1)
    @rule(days=st.sampled_from([None, None, 0]), dies=st.none() | st.sampled_from(PRUNE_DIES))
    def prune(self, days: int | None, dies: str | None) -> None:
        staying = self.model.staying(days)
        planned = {b["backup_id"] for b in self.lab.prune(days=days, delete=False)["backups"]}
        assert not planned & staying
        deleted_before = {backup.backup_id for backup in self.model.backups if backup.is_deleted}
        with self.dying(dies) as steps:
            self.lab.prune(days=days)
        deleted = {
            row["backup_id"] for row in self.sql("SELECT backup_id FROM backups WHERE state = 'deleted'")
        }
        for backup in self.model.backups:
            backup.is_deleted = backup.backup_id in deleted
        assert deleted <= planned | self.model.leaving | deleted_before
        if steps.dead:
            storage = open_storage(str(self.lab.folder))
            unfinished = [tombstones.read_prune(storage, name) for name in tombstones.incomplete(storage)]
            self.model.leaving = {name for prune in unfinished for name, _ in prune.backups}
        else:
            assert deleted >= planned | self.model.leaving
            self.model.leaving = set()
            if days is None:
                assert not self.sql("SELECT backup_id FROM obsolete_backups WHERE status = 'OBSOLETE'")
        self.check()
        if not self.died:
            stored_paths = {
                f"{p.relative_to(self.lab.folder)}" for p in self.lab.folder.glob("lab/*/topics/**/*.data")
            }
            assert stored_paths == {row["path"] for row in self.sql("SELECT path FROM files")}

    @precondition(lambda self: self.model.backups)
    @rule(
        point_index=indexes,
        offset_ms=st.sampled_from([-1, 0, 0, 1]),
        halfway=st.booleans(),
        by_id=st.booleans(),
    )
    def check_point(self, point_index: int, offset_ms: int, halfway: bool, by_id: bool) -> None:
        """Read one restore point as a user does: by a time near it, or by its backup id."""
        points = self.model.points()
        point = points[point_index % len(points)]
        if by_id:
            rows = (
                ask.select(
                    self.reader(),
                    f"SELECT partition, kafka_offset FROM records('{self.topic}', '{point.backup_id}')",
                )
                .rows.read_all()
                .to_pylist()
            )
            expected = [
                (partition, offset)
                for partition, records in enumerate(point.records)
                for offset, _ in records
            ]
            assert sorted((r["partition"], r["kafka_offset"]) for r in rows) == expected
        else:
            previous_point = points[points.index(point) - 1]
            self.check_time(
                (point.end_ts + previous_point.end_ts) // 2 if halfway else point.end_ts + offset_ms
            )

    def check_time(self, to_ts: int | None) -> None:
        reader = self.reader()
        request = RestoreRequest(
            destination=str(self.lab.folder), target="dir:x", topics=(self.topic,), to_ts=to_ts
        )
        expected = self.model.restore_at(to_ts)
        if expected is None:
            with pytest.raises(Refused):
                plan_restore(request, reader)
            return
        plan = plan_restore(request, reader)
        expected_records, has_gap = expected
        if any(obstacle.reason == "older" for obstacle in plan.obstacles):
            assert not any(expected_records), "something as old is held"
            return
        if has_gap:
            with pytest.raises(Refused):
                require_restorable(plan, {"empty"})
        require_restorable(plan, {"empty", "gap"} if has_gap else {"empty"})
        assert (
            until(self.rows_of(f["path"] for f in plan.file.table().to_pylist()), to_ts) == expected_records
        )

    def check(self) -> None:
        """The catalog must promise exactly the model's restore points, and each must give its records."""
        points = self.model.points()
        states = self.sql("SELECT backup_id, intact FROM backups")
        assert {row["backup_id"] for row in states if row["intact"]} == {t.backup_id for t in points}
        file_rows = self.sql(
            "SELECT t.backup_id, t.covers_from, t.covers_to, f.path FROM restore_points AS t "
            "LEFT JOIN backups AS b ON b.base = t.base AND b.link <= t.link AND t.link < b.unlinked "
            "AND b.state = 'complete' LEFT JOIN files AS f ON f.backup_id = b.backup_id "
            f"WHERE t.scope = '{self.topic}'"
        )
        paths: dict[str, set[str]] = {}
        covers = {}
        for row in file_rows:
            paths.setdefault(row["backup_id"], set()).update([row["path"]] if row["path"] else [])
            covers[row["backup_id"]] = row["covers_from"], row["covers_to"]
        assert set(paths) == {t.backup_id for t in points}
        covers_from = -1
        for point, next_point in zip(points, [*points[1:], None], strict=True):
            covers_to = point.end_ts - bool(next_point and next_point.end_ts == point.end_ts)
            assert covers[point.backup_id] == (covers_from, covers_to)
            covers_from = covers_to
            assert self.rows_of(paths[point.backup_id]) == point.records, point.number

    def rows_of(self, paths: Any) -> Records:
        """The records of data files by partition, decoded by fastavro alone."""
        records: Records = [[] for _ in range(PARTITIONS)]
        for path in paths:
            for offset, record in self.read_file(self.lab.folder / path):
                records[record.partition].append((offset, record))
        return [sorted(partition_records, key=lambda pair: pair[0]) for partition_records in records]

    def read_file(self, path: Path) -> list[tuple[int, Record]]:
        stat = path.stat()
        cache_key = (path, stat.st_mtime_ns, stat.st_size)
        if cache_key not in self.records_by_file:
            self.records_by_file[cache_key] = list(truth.records_in(path))
        return self.records_by_file[cache_key]

    @contextmanager
    def dying(self, step: str | None) -> Iterator[Steps]:
        with dying(self.lab.folder, step) as steps:
            yield steps
        self.died |= steps.dead

    def new_backups(self) -> list[dict[str, Any]]:
        """The catalog's rows of backups that the model does not know yet."""
        known_ids = {backup.backup_id for backup in self.model.backups}
        if not (self.lab.folder / "catalog").exists():
            return []
        rows = self.sql("SELECT * FROM backups ORDER BY number")
        return [row for row in rows if row["backup_id"] not in known_ids]

    def reader(self) -> CatalogReader:
        catalog = CatalogReader.open(str(self.lab.folder))
        assert catalog is not None
        return catalog

    def sql(self, text: str) -> list[dict[str, Any]]:
        return self.lab.sql(text)

    def restore_and_compare(self) -> None:
        """Restore the middle restore point into a folder, and compare its records with the model's."""
        points = self.model.points()
        to_ts = points[len(points) // 2].end_ts
        expected = self.model.restore_at(to_ts)
        assert expected is not None
        target = self.folder / "out"
        self.lab.restore(
            self.topic, to_ts=to_ts, target=f"dir:{target}", allow_gaps=expected[1], allow_empty=True
        )
        assert self.rows_of(target.glob("topics/*/partition=*/*.data")) == expected[0]

    def teardown(self) -> None:
        try:
            if self.model.backups:
                self.check_time(None)
                self.restore_and_compare()
        finally:
            if self.topic in self.admin.list_topics(timeout=30).topics:
                self.admin.delete_topics([self.topic])[self.topic].result(30)


@pytest.fixture
def life(lab: Lab, tmp_path: Path) -> Iterator[Chains]:
    """A state machine with one full backup. The test continues it."""
    chains = Chains(lab, tmp_path)
    chains.create([record(0), record(1)], [])
    yield chains
    chains.teardown()


def record(partition: int) -> Record:
    return Record(partition, b"k", b"v", (), 0)


@pytest.mark.long
def test_a_chain_with_a_gap_a_branch_a_merge_and_an_interrupted_prune(life: Chains) -> None:
    model = life.model
    life.produce([record(0)] * 4)
    life.purge(0, 4)
    life.backup([record(0)], "auto", None, "full", None)
    assert model.holes
    life.backup([record(0)], "incr-diff", 2, "full", None)
    life.backup([record(0)], "incr-diff", 2, "full", None)
    life.backup_from([record(1)], 2, 2, cumulative=False)
    life.merge(2, 3, None)
    assert len(model.backups) == 5, "it was refused: a later backup goes on from what is before it"
    life.merge(2, None, None)
    assert [t.kind for t in model.backups] == ["full", "full"] + 3 * ["differential"] + ["cumulative"]
    for point in model.points():
        for shift in (-1, 0, 1):
            life.check_time(point.end_ts + shift)
    life.check_point(3, 0, halfway=False, by_id=True)

    life.backup([record(0)], "full", None, "full", None)
    life.policy(1, 0, hold=True)
    life.prune(None, "put audit")
    assert model.leaving
    with pytest.raises(Refused, match="was interrupted while it deleted backup"):
        policies.hold(str(life.lab.folder), None, model.backups[1].backup_id, reason="too late")
    life.backup_from([record(1)], 1, 1, cumulative=False)
    assert len(model.backups) == 7, "no backup continues one that a prune is deleting"
    life.prune(None, None)
    first, second = model.points()
    life.check_time((first.end_ts + second.end_ts) // 2)


@pytest.mark.long
def test_many_chains(lab: Lab, tmp_path: Path) -> None:
    live(lambda: Chains(lab, tmp_path), 12, 25)
