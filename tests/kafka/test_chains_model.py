"""Whatever is written, lost, backed up at any level, merged, pruned and cut off: what was promised stays.

The model (tests/support/chains.py) knows what a topic held when each backup was taken: what its parent held,
and what came in behind it that the broker still had. A merge holds what its last member holds. Whatever is
done, the catalog promises the backups that are whole, down to their full, and each of them gives exactly
that; a time gives what the first promised backup at or behind it holds up to that time. A prune deletes none
that has to stay.
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
from tests.support.chains import PARTITIONS, Held, Made, Mode, Model, Taken, until
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


some = st.lists(
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
nth = st.integers(0, 30)


class Chains(RuleBasedStateMachine):
    """One topic and one destination, done to in any order."""

    def __init__(self, lab: Lab, folder: Path) -> None:
        super().__init__()
        self.folder = Path(tempfile.mkdtemp(dir=folder))
        self.lab = Lab(lab.spark, lab.bootstrap, self.folder / "backups", lab._empty_catalog)
        self.admin = AdminClient({"bootstrap.servers": lab.bootstrap})
        self.topic = f"chains-{uuid4().hex[:8]}"
        self.model = Model()
        self.begun: tuple[str, Made] | None = None
        self.unmarked: tuple[object, str] | None = (
            None  # a backup that lacks its marker only, and its request
        )
        self.died = False
        self.read: dict[tuple[Any, ...], list[tuple[int, Record]]] = {}

    @initialize(rows=some, more=st.lists(st.tuples(some, modes, levels), min_size=2, max_size=4))
    def made(self, rows: list[Record], more: list[tuple[list[Record], Mode, int | None]]) -> None:
        truth.create_topic(self.lab.bootstrap, self.topic, PARTITIONS, retention_ms="-1")
        self.backup(rows, "auto", None, "full", None)
        for then, mode, level in more:
            self.backup(then, mode, level, "full", None)

    def produce(self, rows: list[Record]) -> None:
        now = now_ms()
        dated = [replace(r, timestamp=now + r.timestamp if r.timestamp >= -2_000 else OLD_MS) for r in rows]
        truth.produce(self.lab.bootstrap, self.topic, dated)
        for row in dated:
            self.model.logs[row.partition].rows.append(row)

    @rule(
        rows=some,
        mode=modes,
        level=levels,
        on_gap=st.sampled_from(["full", "continue"]),
        dies=st.none() | st.none() | st.sampled_from(BACKUP_DIES),
    )
    def backup(
        self, rows: list[Record], mode: Mode, level: int | None, on_gap: str, dies: str | None
    ) -> None:
        self.produce(rows)
        self.take(mode, None if mode == "full" else level, None, on_gap, dies)

    @rule(rows=some, level=levels, parent=nth, accu=st.booleans())
    def backup_from(self, rows: list[Record], level: int | None, parent: int, accu: bool) -> None:
        self.produce(rows)
        asked = self.model.taken[parent % len(self.model.taken)] if self.model.taken else None
        self.take("incr-accu" if accu else "incr-diff", level, asked, "full", None)

    def take(self, mode: Mode, level: int | None, asked: Taken | None, on_gap: str, dies: str | None) -> None:
        error: Exception | None = None
        with self.dying(dies) as steps:
            try:
                self.lab.backup(
                    self.topic, mode=mode, level=level, parent=asked and asked.backup_id, on_gap=on_gap
                )
            except (Refused, UsageProblem) as refused:
                error = refused
        new, request = self.new(), (mode, level, asked and asked.backup_id)
        left = read_draft(open_storage(str(self.lab.folder)), "lab", TopicsBackup) if steps.dead else None
        # What was asked for again exists, and lacked its marker only; what came since is in one behind it.
        again = self.unmarked is not None and self.unmarked[0] == request and error is None
        if again and mode == "full" and not new:
            if left is None:
                self.unmarked = self.begun = None
            self.check()
            return
        if self.begun and new and new[0]["backup_id"] == self.begun[0]:
            self.add(new.pop(0), self.begun[1])  # what the one that died had begun, to its end
            self.begun, again = None, True
        if again:
            mode, asked = "incr-diff", None
        if not (left and self.unmarked and left.backup_id == self.unmarked[1]):
            self.unmarked = (request, new[-1]["backup_id"]) if steps.dead and new else None
        wanted = self.model.next(mode, level, asked, on_gap)
        if isinstance(wanted, type):
            assert isinstance(error, wanted) or steps.dead, (error, wanted)
            assert not new
        elif new:
            assert error is None
            (row,) = new
            self.add(row, wanted)
        elif not steps.dead:
            assert error is None, error
            assert again
            assert not wanted.entries, "it said nothing of what was new"
        if left is None:
            self.begun = None
        elif not isinstance(wanted, type) and (not self.begun or left.backup_id != self.begun[0]):
            self.begun = left.backup_id, wanted
        self.check()

    def add(self, row: dict[str, Any], made: Made) -> None:
        parent = made.parent
        expected = (made.kind, made.level, parent and parent.backup_id, made.entries)
        assert tuple(row[n] for n in ("kind", "level", "parent", "entries")) == expected
        number = 1 + max((t.number for t in self.model.taken), default=0)
        assert (row["number"], row["place"], row["parent_place"]) == (number, number, parent and parent.place)
        base = parent.base if parent else row["backup_id"]
        self.model.holes += [(after, row["end_ts"]) for after in made.after]
        self.model.taken.append(
            Taken(
                row["backup_id"], number, number, parent.place if parent else 0, base, made.level,
                made.kind, row["end_ts"], made.ends, made.held, made.over,
            )
        )  # fmt: skip

    @precondition(lambda self: self.model.taken)
    @rule(partition=st.integers(0, PARTITIONS - 1), quarters=st.integers(1, 4))
    def purge(self, partition: int, quarters: int) -> None:
        log = self.model.logs[partition]
        before = log.low + (len(log.rows) - log.low) * quarters // 4
        if before > log.low:
            truth.delete_records(self.lab.bootstrap, self.topic, {partition: before})
            log.low = before

    @precondition(lambda self: len(self.model.taken) > 1)
    @rule(
        level=st.sampled_from([1, 2, 2, 3]),
        to=st.none() | nth,
        dies=st.none() | st.none() | st.sampled_from(MERGE_DIES),
    )
    def merge(self, level: int, to: int | None, dies: str | None) -> None:
        taken = self.model.taken
        last = taken[to % len(taken)] if to is not None else None
        members = self.model.merged(level, last)
        refused = False
        with self.dying(dies) as steps:
            try:
                self.lab.merge(level, until=last and last.backup_id)
            except Refused:
                refused = True
        new = self.new()
        if isinstance(members, type) or not members:
            assert refused == isinstance(members, type) or steps.dead
            assert not new
        elif new:
            (row,) = new
            self.add_merge(row, level, members)
        else:
            assert steps.dead
        self.check()

    def add_merge(self, row: dict[str, Any], level: int, members: list[Taken]) -> None:
        first, tip = members[0], members[-1]
        parent = [t for t in self.model.path(tip) or () if t.place == first.parent_place]
        same = bool(parent) and parent[0].level == level - 1
        kind = "full" if not parent else "differential" if same else "cumulative"
        merge = replace(
            tip,
            backup_id=row["backup_id"],
            number=1 + max(t.number for t in self.model.taken),
            parent_place=first.parent_place,
            base=tip.base if parent else row["backup_id"],
            level=level - 1,
            kind=kind,
        )
        assert [row[name] for name in ("number", "kind", "level", "base", "place", "end_ts")] == [
            getattr(merge, name) for name in ("number", "kind", "level", "base", "place", "end_ts")
        ]
        assert row["parent"] == (parent[0].backup_id if parent else None)
        self.model.taken.append(merge)

    @precondition(lambda self: self.model.taken)
    @rule(fulls=st.sampled_from([None, 1, 1, 2]), which=nth, hold=st.booleans())
    def policy(self, fulls: int | None, which: int, hold: bool) -> None:
        """What stays changes: so many fulls, and one backup that is held, or not any more."""
        writer = CatalogWriter(None, str(self.lab.folder))
        now = time.time_ns() // 1000
        if fulls != self.model.redundancy:
            removed = fulls is None
            writer.record(Policy(source="lab", at=now, actor="me", redundancy=fulls, removed=removed))
            self.model.redundancy = fulls
        one = self.model.taken[which % len(self.model.taken)].backup_id
        if hold != (one in self.model.kept) and one not in self.model.leaving:
            writer.record(
                Hold(backup_id=one, source="lab", at=now, actor="me", reason="why", released=not hold)
            )
            self.model.kept ^= {one}

    @precondition(lambda self: len(self.model.taken) > 1)
    @rule(days=st.sampled_from([None, None, 0]), dies=st.none() | st.sampled_from(PRUNE_DIES))
    def prune(self, days: int | None, dies: str | None) -> None:
        staying = self.model.staying(days)
        told = {b["backup_id"] for b in self.lab.prune(days=days, delete=False)["backups"]}
        assert not told & staying
        already = {taken.backup_id for taken in self.model.taken if taken.gone}
        with self.dying(dies) as steps:
            self.lab.prune(days=days)
        gone = {row["backup_id"] for row in self.sql("SELECT backup_id FROM backups WHERE state = 'deleted'")}
        for taken in self.model.taken:
            taken.gone = taken.backup_id in gone
        assert gone <= told | self.model.leaving | already
        if steps.dead:
            storage = open_storage(str(self.lab.folder))
            begun = [tombstones.read_prune(storage, name) for name in tombstones.incomplete(storage)]
            self.model.leaving = {name for prune in begun for name, _ in prune.backups}
        else:
            assert gone >= told | self.model.leaving
            self.model.leaving = set()
            if days is None:
                assert not self.sql("SELECT backup_id FROM obsolete_backups WHERE status = 'OBSOLETE'")
        self.check()
        if not self.died:
            there = {
                f"{p.relative_to(self.lab.folder)}" for p in self.lab.folder.glob("lab/*/topics/**/*.data")
            }
            assert there == {row["path"] for row in self.sql("SELECT path FROM files")}

    @precondition(lambda self: self.model.taken)
    @rule(which=nth, shift=st.sampled_from([-1, 0, 0, 1]), half=st.booleans(), by_id=st.booleans())
    def look(self, which: int, shift: int, half: bool, by_id: bool) -> None:
        """As a person would: to a time, or a backup by its id."""
        points = self.model.points()
        one = points[which % len(points)]
        if by_id:
            rows = (
                ask.select(
                    self.reader(),
                    f"SELECT partition, kafka_offset FROM records('{self.topic}', '{one.backup_id}')",
                )
                .rows.read_all()
                .to_pylist()
            )
            wanted = [(p, offset) for p, rows in enumerate(one.held) for offset, _ in rows]
            assert sorted((r["partition"], r["kafka_offset"]) for r in rows) == wanted
        else:
            before = points[points.index(one) - 1]
            self.check_time((one.end_ts + before.end_ts) // 2 if half else one.end_ts + shift)

    def check_time(self, to_ts: int | None) -> None:
        reader = self.reader()
        request = RestoreRequest(
            destination=str(self.lab.folder), target="dir:x", topics=(self.topic,), to_ts=to_ts
        )
        expected = self.model.at(to_ts)
        if expected is None:
            with pytest.raises(Refused):
                plan_restore(request, reader)
            return
        plan = plan_restore(request, reader)
        held, over = expected
        if any(o.reason == "older" for o in plan.obstacles):
            assert not any(held), "something as old is held"
            return
        if over:
            with pytest.raises(Refused):
                require_restorable(plan, {"empty"})
        require_restorable(plan, {"empty", "gap"} if over else {"empty"})
        assert until(self.rows_of(f["path"] for f in plan.chosen.rows("selected_files")), to_ts) == held

    def check(self) -> None:
        """Every restore point that the catalog promises is one of the model's, and gives what that held."""
        points = self.model.points()
        states = self.sql("SELECT backup_id, intact FROM backups")
        assert {row["backup_id"] for row in states if row["intact"]} == {t.backup_id for t in points}
        found = self.sql(
            "SELECT t.backup_id, t.covers_from, t.covers_to, f.path FROM restore_points AS t "
            "LEFT JOIN backups AS b ON b.base = t.base AND b.link <= t.link AND t.link < b.unlinked "
            "AND b.state = 'complete' LEFT JOIN files AS f ON f.backup_id = b.backup_id "
            f"WHERE t.scope = '{self.topic}'"
        )
        paths: dict[str, set[str]] = {}
        covers = {}
        for row in found:
            paths.setdefault(row["backup_id"], set()).update([row["path"]] if row["path"] else [])
            covers[row["backup_id"]] = row["covers_from"], row["covers_to"]
        assert set(paths) == {t.backup_id for t in points}
        before = -1
        for taken, later in zip(points, [*points[1:], None], strict=True):
            to = taken.end_ts - bool(later and later.end_ts == taken.end_ts)
            assert covers[taken.backup_id] == (before, to)
            before = to
            assert self.rows_of(paths[taken.backup_id]) == taken.held, taken.number

    def rows_of(self, paths: Any) -> Held:
        """What data files hold, by fastavro alone."""
        found: Held = [[] for _ in range(PARTITIONS)]
        for path in paths:
            for offset, row in self.file(self.lab.folder / path):
                found[row.partition].append((offset, row))
        return [sorted(rows, key=lambda pair: pair[0]) for rows in found]

    def file(self, at: Path) -> list[tuple[int, Record]]:
        stat = at.stat()
        key = (at, stat.st_mtime_ns, stat.st_size)
        if key not in self.read:
            self.read[key] = list(truth.records_in(at))
        return self.read[key]

    @contextmanager
    def dying(self, at: str | None) -> Iterator[Steps]:
        with dying(self.lab.folder, at) as steps:
            yield steps
        self.died |= steps.dead

    def new(self) -> list[dict[str, Any]]:
        """Rows of backups that the model does not know yet."""
        known = {taken.backup_id for taken in self.model.taken}
        if not (self.lab.folder / "catalog").exists():
            return []
        rows = self.sql("SELECT * FROM backups ORDER BY number")
        return [row for row in rows if row["backup_id"] not in known]

    def reader(self) -> CatalogReader:
        opened = CatalogReader.open(str(self.lab.folder))
        assert opened is not None
        return opened

    def sql(self, text: str) -> list[dict[str, Any]]:
        return self.lab.sql(text)

    def really_restored(self) -> None:
        """A restore of one in the middle, into a folder."""
        points = self.model.points()
        to_ts = points[len(points) // 2].end_ts
        expected = self.model.at(to_ts)
        assert expected is not None
        out = self.folder / "out"
        self.lab.restore(
            self.topic, to_ts=to_ts, target=f"dir:{out}", allow_gaps=expected[1], allow_empty=True
        )
        assert self.rows_of(out.glob("topics/*/partition=*/*.data")) == expected[0]

    def teardown(self) -> None:
        try:
            if self.model.taken:
                self.check_time(None)
                self.really_restored()
        finally:
            if self.topic in self.admin.list_topics(timeout=30).topics:
                self.admin.delete_topics([self.topic])[self.topic].result(30)


@pytest.fixture
def life(lab: Lab, tmp_path: Path) -> Iterator[Chains]:
    """One life with a full backup, for a test to go on with."""
    begun = Chains(lab, tmp_path)
    begun.made([row(0), row(1)], [])
    yield begun
    begun.teardown()


def row(partition: int) -> Record:
    return Record(partition, b"k", b"v", (), 0)


@pytest.mark.long
def test_a_gap_a_branch_a_merge_and_a_prune_that_was_cut_off(life: Chains) -> None:
    model = life.model
    life.produce([row(0)] * 4)
    life.purge(0, 4)
    life.backup([row(0)], "auto", None, "full", None)
    assert model.holes
    life.backup([row(0)], "incr-diff", 2, "full", None)
    life.backup([row(0)], "incr-diff", 2, "full", None)
    life.backup_from([row(1)], 2, 2, accu=False)
    life.merge(2, 3, None)
    assert len(model.taken) == 5, "it was refused: a later backup goes on from what is before it"
    life.merge(2, None, None)
    assert [t.kind for t in model.taken] == ["full", "full"] + 3 * ["differential"] + ["cumulative"]
    for point in model.points():
        for shift in (-1, 0, 1):
            life.check_time(point.end_ts + shift)
    life.look(3, 0, half=False, by_id=True)

    life.backup([row(0)], "full", None, "full", None)
    life.policy(1, 0, hold=True)
    life.prune(None, "put audit")
    assert model.leaving
    with pytest.raises(Refused, match="was interrupted while it deleted backup"):
        policies.hold(str(life.lab.folder), None, model.taken[1].backup_id, reason="too late")
    life.backup_from([row(1)], 1, 1, accu=False)
    assert len(model.taken) == 7, "nothing goes on from what a prune has begun to delete"
    life.prune(None, None)
    first, second = model.points()
    life.check_time((first.end_ts + second.end_ts) // 2)


@pytest.mark.long
def test_many_chains(lab: Lab, tmp_path: Path) -> None:
    live(lambda: Chains(lab, tmp_path), 12, 25)
