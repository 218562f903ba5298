"""Whatever an engine's writers do, and whatever is backed up, lost, cut off and restored: it is what it was.

The model knows what the writers did by each tid, in the history that is there now and in those that restores
have left behind. A backup keeps the history up to where it ends; a restore gives exactly that, without what
was open, and the engine goes on from it.
"""

from __future__ import annotations

import json
import random
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    precondition,
    rule,
)
from tests.support import kafka_truth as truth
from tests.support.graph_lab import GraphLab
from tests.support.graph_story import some_writes
from tests.support.graph_writers import Op, Place, Queues
from tests.support.lives import dying, live

from lakebackup.errors import NeedsFull, Refused
from lakebackup_jobs.demo.broker import Broker

pytestmark = [pytest.mark.spark, pytest.mark.kafka]
Mode = Literal["auto", "full", "differential", "incremental"]
Into = Literal["append", "anew", "beside"]


@dataclass(eq=False)
class Taken:
    """A backup that exists: of the history `ops`, everything up to `tid`.

    `needed`: from where on each partition has to be there for what stands on it. `line`: the backups of its
    history, in order, up to itself.
    """

    backup_id: str
    number: int
    parent: Taken | None
    tid: int
    ops: list[Op]
    needed: dict[Place, int]
    restored: bool
    start_ts: int
    end_ts: int
    line: list[Taken] = field(default_factory=list)

    @property
    def chain(self) -> list[Taken]:
        return [*(self.parent.chain if self.parent else []), self]


@dataclass
class Put:
    """A restore that the engine goes on from: of all of a backup, or of a part of it upon its full."""

    of: Taken
    whole: bool
    tid: int
    base: dict[Place, int]
    pending: bool = True


@dataclass(frozen=True)
class Wanted:
    """What a restore is asked for, and what it has to give; `ops` None: it is refused."""

    asked: dict[str, Any]
    of: Taken
    ops: list[Op] | None = None
    tid: int = 0


seeds = st.integers(0, 2**32)
counts = st.integers(1, 25)
modes: st.SearchStrategy[Mode] = st.sampled_from(
    ["incremental", "differential", "incremental", "auto", "full"]
)
steps = st.none() | st.none() | st.integers(1, 60)
where: st.SearchStrategy[Into] = st.sampled_from(["append", "anew", "beside"])
what = st.sampled_from(["newest", "backup", "tid", "tid", "time"])


class Life(RuleBasedStateMachine):
    """One engine and one destination."""

    def __init__(self, bootstrap: str, empty_catalog: Path, folder: Path) -> None:
        super().__init__()
        self.lab = GraphLab(Path(tempfile.mkdtemp(dir=folder)), bootstrap, empty_catalog)
        self.taken: list[Taken] = []
        self.line: list[Taken] = []  # those of the history that is there now
        self.known: list[Taken] = []  # and of the history that the newest backup is of
        self.put: Put | None = None
        self.low: dict[Place, int] = {}
        self.was_reset = self.forgotten = False

    @initialize(seed=seeds, more=st.lists(st.tuples(seeds, counts, modes), min_size=1, max_size=3))
    def begins(self, seed: int, more: list[tuple[int, int, Mode]]) -> None:
        self.graph = self.lab.begin()
        self.write(seed, 25)
        self.backup("auto", None, True, None)
        for again, count, mode in more:
            self.write(again, count)
            self.backup(mode, 3, True, None)

    @rule(seed=seeds, count=counts)
    def write(self, seed: int, count: int) -> None:
        some_writes(self.graph.writers, random.Random(seed), count)
        if seed % 2:  # else it is behind
            self.graph.check()

    @rule(mode=modes, lag=st.none() | st.integers(0, 10), told=st.booleans(), dies=steps)
    def backup(self, mode: Mode, lag: int | None, told: bool, dies: int | None) -> None:
        full = mode == "full" or (mode == "auto" and not self.line)
        changes, needed, tid = self.full(lag, told) if full else ({}, {}, self.said())
        wanted = self.next(mode, needed)
        for kill_at in (dies, None) if dies else (None,):
            error: Exception | None = None
            made: dict[str, Any] = {}
            with dying(self.lab.place, kill_at) as died:
                try:
                    made = self.lab.backup(self.graph, mode, **changes)
                except NeedsFull as refused:
                    error = refused
            if wanted is None:
                assert isinstance(error, NeedsFull) or died.dead, error
                assert not self.new()
                return
            assert error is None, error
            for row in self.new():
                # What came since one that was cut off is in an incremental behind it.
                follows = "ended" in made and row["backup_id"] == made["backup_id"]
                self.add(row, "incremental" if follows else mode, needed, tid)
        if not self.taken or self.taken[-1].ops != self.graph.writers.ops:
            assert self.line, "there is a backup now"
            assert self.line[-1].tid == tid, "it said nothing of what was new"

    def said(self) -> int:
        """The greatest tid that a message has, or that the engine was put back to."""
        tids = (op.tid for op in self.graph.writers.ops if op.kind != "schema")
        return max([self.put.tid if self.put else 0, *tids])

    def full(self, lag: int | None, told: bool) -> tuple[dict[str, Any], dict[Place, int], int]:
        """A snapshot, perhaps of a while ago; from where on it needs the queues, and its tid."""
        engine, writers = self.graph.engine, self.graph.writers
        # Else what was open may be lost, unseen; and queues that are made anew say nothing of its tid.
        told = told or any(self.low.values()) or self.was_reset
        until = writers.tid - lag if lag and told else None
        engine.run(until)
        # No message need have the tid that a restore went up to: the queues cannot tell it.
        told = told or (self.put is not None and self.put.tid > engine.tid)
        folder = self.lab.new_folder()
        snapshot = engine.snapshot(folder)
        queues = json.loads((folder / "snapshot.json").read_text())["queues"]
        if not told:
            (folder / "snapshot.json").unlink()
        needed = {(q["topic"], q["partition"]): q["max_no_transaction_pos"] for q in queues}
        return {"snapshot": str(snapshot)}, needed, engine.tid

    def next(self, mode: Mode, needed: dict[Place, int]) -> set[str | None] | None:
        """What the next backup may stand on; None: it has to be a full, or another one."""
        if needed:
            return None if self.gone(needed) else {None}
        if self.was_reset:
            return None
        full = self.line[-1].chain[0] if self.line else None
        if self.put and (self.put.pending or mode == "differential"):
            full = self.put.of.chain[0]
            if self.gone(self.put.base):
                return None
            goes_on = self.put.whole and mode != "differential"
            return {full.backup_id, *([self.put.of.backup_id] if goes_on else [])}
        parent = full if mode == "differential" else self.line[-1]
        return None if parent is None or self.gone(parent.needed) else {parent.backup_id}

    def gone(self, needed: dict[Place, int]) -> bool:
        return any(self.low.get(place, 0) > position for place, position in needed.items())

    def add(self, row: dict[str, Any], mode: Mode, needed: dict[Place, int], tid: int) -> None:
        parents = self.next(mode, needed)
        assert parents is not None
        assert row["parent"] in parents
        (point,) = self.lab.rows(f"SELECT * FROM queue_points WHERE backup_id = '{row['backup_id']}'")
        assert point["last_tid"] == tid
        behind = self.put is not None and (self.put.pending or mode == "differential")
        unseen = bool(needed and self.put and self.put.pending and self.forgotten)
        taken = Taken(
            row["backup_id"],
            1 + len(self.taken),
            next((t for t in self.taken if t.backup_id == row["parent"]), None),
            tid,
            list(self.graph.writers.ops),
            needed or self.ends(),
            behind,
            row["start_ts"],
            row["end_ts"],
        )
        assert row["number"] == taken.number
        expected = {"full": "full", "differential": "cumulative"}.get(mode, "differential")
        assert row["kind"] == ("full" if needed else expected)
        if behind and self.put:
            self.put.pending = False
        if needed:
            self.put, self.was_reset = None, False
        self.taken.append(taken)
        self.line = taken.line = [*self.line, taken]
        # A full does not know of a restore behind it when no queue has its watermark any more.
        self.known = [*self.known, taken] if unseen else self.line

    def ends(self) -> dict[Place, int]:
        return self.lab.ends(self.graph.queues)

    @precondition(lambda self: self.line)
    @rule(seed=seeds)
    def purge(self, seed: int) -> None:
        """The engine has read by then what goes; else it could not be put right."""
        self.graph.check()
        dice = random.Random(seed)
        place = dice.choice(self.graph.queues.places)
        low = self.low.get(place, 0)
        end = self.ends()[place]
        if self.put and self.put.pending:  # its topics may have been recreated since
            end = min(end, self.put.base[place])
        before = low + (end - low) * dice.randrange(1, 5) // 4
        if before > low:
            truth.delete_records(self.lab.bootstrap, place[0], {place[1]: before})
            self.low[place] = before

    @precondition(lambda self: self.line)
    @rule(all_of_them=st.booleans())
    def reset(self, all_of_them: bool) -> None:
        """Topics are made anew; what was open in them can go on nowhere."""
        graph = self.graph
        for name in sorted(graph.writers.open()):
            graph.writers.end(name, "rollback")
        graph.writers.flush()
        graph.check()
        for name, partitions in list(graph.queues.topics.items())[: None if all_of_them else 1]:
            truth.delete_topic(self.lab.bootstrap, name)
            truth.create_topic(self.lab.bootstrap, name, partitions, retention_ms="-1")
            for place in graph.queues.places:
                if place[0] == name:
                    graph.engine.position[place] = 0
                    self.low.pop(place, None)
        self.was_reset, self.forgotten = True, self.forgotten or all_of_them

    def wanted(self, kind: str, dice: random.Random) -> Wanted:
        lasts = sorted(self.known, key=lambda t: (t.chain[0].number, t.number))
        if kind == "newest":
            of = max(lasts, key=lambda t: t.number)
            return Wanted({}, of, of.ops, of.tid)
        if kind == "backup":
            of = dice.choice(self.taken)
            return Wanted({"backup": of.backup_id}, of, of.ops, of.tid)
        if kind == "tid":
            tid = dice.randrange(max(0, lasts[-1].chain[0].tid - 2), lasts[-1].tid + 3)
            for of in reversed(lasts):
                at = next((i for i, link in enumerate(of.chain) if tid <= link.tid), None)
                if (
                    of.chain[0].tid <= tid
                    and at is not None
                    and not any(t.restored for t in of.chain[at + 1 :])
                ):
                    return Wanted({"to_tid": tid}, of, of.ops, tid)
            return Wanted({"to_tid": tid}, lasts[-1])
        ts = dice.choice([t.end_ts for t in self.taken] + [op.ts for op in lasts[-1].ops]) + dice.randrange(
            -1, 2
        )
        for of in reversed(lasts):
            at = next((i for i, t in enumerate(of.chain) if t.start_ts < ts <= t.end_ts), None)
            if at is not None and not any(t.restored for t in of.chain[at + 1 :]):
                after = [op.tid for op in of.ops if op.ts > ts and op.kind != "schema"]
                tid = max(of.chain[0].tid, min([of.tid, *(tid - 1 for tid in after)]))
                return Wanted({"to_ts": ts}, of, of.ops, tid)
        return Wanted({"to_ts": ts}, lasts[-1])

    @precondition(lambda self: self.line)
    @rule(kind=what, into=where, seed=seeds, keep_open=st.integers(0, 5), dies=steps, other=st.booleans())
    def restore(
        self, kind: str, into: Into, seed: int, keep_open: int, dies: int | None, other: bool
    ) -> None:
        """The engine is put back, and goes on from there."""
        dice = random.Random(seed)
        wanted = self.wanted(kind, dice)
        if wanted.ops is None:
            self.refused(wanted)
            return
        keep = keep_open == 5 and len(wanted.of.chain) > 1
        asked = {**wanted.asked, "keep_open": keep}
        queues = self.graph.queues
        if into == "anew":
            queues.delete()
            self.low = {}
        elif into == "beside":
            queues = self.lab.queues(queues)
            self.low = {}
        before = self.ends() if into == "append" else dict.fromkeys(queues.places, 0)
        asked |= {"append": into == "append"}
        folder, done = self.lab.new_folder(), False
        if dies:
            with dying(self.lab.place, dies) as died:
                self.lab.restore(folder, self.maps(wanted.of, queues), **asked)
            done = not died.dead
            if not done and other:  # something else is wanted then
                wanted = self.wanted("newest", dice)
                assert wanted.ops is not None
                folder, asked, keep = self.lab.new_folder(), {"append": True}, False
        if not done:
            known = len(self.put_at(queues))
            try:
                self.lab.restore(folder, self.maps(wanted.of, queues), **asked)
            except Refused:  # it died when all was done
                assert dies
                assert known == len(queues.places)
        self.graph.engine.close()
        self.graph = self.lab.taken_up(folder, queues, wanted.ops, wanted.tid, keep_open=keep)
        base = self.put_at(queues)
        assert all(base[place] >= before[place] for place in queues.places)
        (row,) = self.lab.rows(
            "SELECT backup_id, whole, last_tid FROM queue_restores ORDER BY at DESC, scope, region LIMIT 1"
        )
        reached = next(t for t in self.taken if t.backup_id == row["backup_id"])
        assert reached.chain[0] is wanted.of.chain[0]
        assert row["last_tid"] == wanted.tid or kind == "time"
        self.put = Put(reached, row["whole"], row["last_tid"], base)
        # Of a full there is never a part.
        self.line = [t for t in reached.line if t is not reached or row["whole"] or t.parent is None]
        self.was_reset = self.forgotten = False

    @precondition(lambda self: self.line)
    @rule(kind=what, seed=seeds)
    def drill(self, kind: str, seed: int) -> None:
        """It is restored beside the engine, which goes on as it was. (The catalog knows by the topics.)"""
        wanted = self.wanted(kind, random.Random(seed))
        if wanted.ops is None:
            self.refused(wanted)
            return
        folder, queues = self.lab.new_folder(), self.lab.queues(self.graph.queues)
        self.lab.restore(folder, self.maps(wanted.of, queues), **wanted.asked)
        self.lab.taken_up(folder, queues, wanted.ops, wanted.tid).engine.close()

    def put_at(self, queues: Queues) -> dict[Place, int]:
        """Behind which offsets stands what the newest restore into these queues brought."""
        rows = self.lab.rows("SELECT scope, region, base_position, epoch, at FROM queue_restores ORDER BY at")
        found = {(row["scope"], int(row["region"])): row["base_position"] for row in rows}
        return {place: found[place] for place in queues.places if place in found}

    def refused(self, wanted: Wanted) -> None:
        folder, queues = self.lab.new_folder(), self.lab.queues(self.graph.queues)
        with pytest.raises(Refused):
            self.lab.restore(folder, self.maps(wanted.of, queues), **wanted.asked)
        assert not folder.exists()

    def maps(self, of: Taken, queues: Queues) -> dict[str, str]:
        """From the topics that a backup is of to others, where they are."""
        rows = self.lab.rows(f"SELECT scope FROM scopes WHERE backup_id = '{of.backup_id}' ORDER BY scope")
        names = zip([row["scope"] for row in rows], sorted(queues.topics), strict=True)
        return {old: new for old, new in names if old != new}

    def new(self) -> list[dict[str, Any]]:
        """Rows of backups that the model does not know yet."""
        known = {taken.backup_id for taken in self.taken}
        rows = self.lab.rows("SELECT * FROM backups WHERE source = 'social' ORDER BY number")
        return [row for row in rows if row["backup_id"] not in known]

    def teardown(self) -> None:
        try:
            if self.line:
                self.drill("newest", 0)
        finally:
            self.lab.close()


@pytest.mark.long
def test_many_lives(broker: Broker, empty_catalog: Path, tmp_path: Path) -> None:
    live(lambda: Life(broker.bootstrap, empty_catalog, tmp_path), 12, 25)
