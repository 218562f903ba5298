"""Checks an engine's backups against a model: random writes, backups, losses, interruptions and restores.

The model knows the writers' operations by tid, in the current history and in those that restores abandoned. A
backup holds its history up to its end. A restore must give exactly that, without the transactions that were
open, and the engine continues from it.
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
from tests.support.graph_writers import Op, QueuePartition, Queues
from tests.support.lives import dying, live

from lakebackup.errors import NeedsFull, Refused
from lakebackup_jobs.demo.broker import Broker

pytestmark = [pytest.mark.spark, pytest.mark.kafka]
Mode = Literal["auto", "full", "differential", "incremental"]
TargetQueues = Literal["append", "anew", "beside"]


@dataclass(eq=False)
class ModelBackup:
    """An existing backup: of the history `ops`, everything up to `tid`.

    `needed`: the offset in each partition from which a child of this backup reads. `lineage`: the backups of
    its history, in order, up to itself.
    """

    backup_id: str
    number: int
    parent: ModelBackup | None
    tid: int
    ops: list[Op]
    needed: dict[QueuePartition, int]
    restored: bool
    start_ts: int
    end_ts: int
    lineage: list[ModelBackup] = field(default_factory=list)

    @property
    def chain(self) -> list[ModelBackup]:
        return [*(self.parent.chain if self.parent else []), self]


@dataclass
class ModelRestore:
    """A restore that the engine continues from.

    `complete`: it restored all of the backup `point`, not only a part of it after its full. `base`: the
    offset in each partition before the restored messages. `pending`: no backup has been taken since.
    """

    point: ModelBackup
    complete: bool
    tid: int
    base: dict[QueuePartition, int]
    pending: bool = True


@dataclass(frozen=True)
class RestoreCase:
    """The options of a restore, and what it must give: `ops` up to `tid`. `ops` None: it must be refused."""

    options: dict[str, Any]
    point: ModelBackup
    ops: list[Op] | None = None
    tid: int = 0


seeds = st.integers(0, 2**32)
counts = st.integers(1, 25)
modes: st.SearchStrategy[Mode] = st.sampled_from(
    ["incremental", "differential", "incremental", "auto", "full"]
)
steps = st.none() | st.none() | st.integers(1, 60)
target_queues: st.SearchStrategy[TargetQueues] = st.sampled_from(["append", "anew", "beside"])
kinds = st.sampled_from(["newest", "backup", "tid", "tid", "time"])


class Life(RuleBasedStateMachine):
    """One engine and one repository."""

    def __init__(self, bootstrap: str, empty_catalog: Path, folder: Path) -> None:
        super().__init__()
        self.lab = GraphLab(Path(tempfile.mkdtemp(dir=folder)), bootstrap, empty_catalog)
        self.backups: list[ModelBackup] = []
        self.lineage: list[ModelBackup] = []  # backups of the current history
        self.catalog_lineage: list[ModelBackup] = []  # backups of the newest backup's history
        self.last_restore: ModelRestore | None = None
        self.low: dict[QueuePartition, int] = {}
        self.was_reset = self.watermarks_lost = False

    @initialize(seed=seeds, later_backups=st.lists(st.tuples(seeds, counts, modes), min_size=1, max_size=3))
    def begins(self, seed: int, later_backups: list[tuple[int, int, Mode]]) -> None:
        self.graph = self.lab.begin()
        self.write(seed, 25)
        self.backup("auto", None, True, None)
        for later_seed, count, mode in later_backups:
            self.write(later_seed, count)
            self.backup(mode, 3, True, None)

    @rule(seed=seeds, count=counts)
    def write(self, seed: int, count: int) -> None:
        some_writes(self.graph.writers, random.Random(seed), count)
        if seed % 2:  # else the engine stays behind the queues
            self.graph.check()

    @rule(mode=modes, lag=st.none() | st.integers(0, 10), snapshot_json=st.booleans(), dies=steps)
    def backup(self, mode: Mode, lag: int | None, snapshot_json: bool, dies: int | None) -> None:
        full = mode == "full" or (mode == "auto" and not self.lineage)
        changes, needed, tid = (
            self.take_snapshot(lag, snapshot_json) if full else ({}, {}, self.expected_tid())
        )
        parents = self.expected_parents(mode, needed)
        for kill_at in (dies, None) if dies else (None,):
            error: Exception | None = None
            result: dict[str, Any] = {}
            with dying(self.lab.repo, kill_at) as run_steps:
                try:
                    result = self.lab.backup(self.graph, mode, **changes)
                except NeedsFull as refused:
                    error = refused
            if parents is None:
                assert isinstance(error, NeedsFull) or run_steps.dead, error
                assert not self.new_backups()
                return
            assert error is None, error
            for row in self.new_backups():
                # Messages since an interrupted backup are in an incremental after it.
                follows = "ended" in result and row["backup_id"] == result["backup_id"]
                self.add(row, "incremental" if follows else mode, needed, tid)
        if not self.backups or self.backups[-1].ops != self.graph.writers.ops:
            assert self.lineage, "there is a backup now"
            assert self.lineage[-1].tid == tid, "it said nothing of what was new"

    def expected_tid(self) -> int:
        """The greatest tid of a message, or the tid that the engine was restored to."""
        tids = (op.tid for op in self.graph.writers.ops if op.kind != "schema")
        return max([self.last_restore.tid if self.last_restore else 0, *tids])

    def take_snapshot(
        self, lag: int | None, with_json: bool
    ) -> tuple[dict[str, Any], dict[QueuePartition, int], int]:
        """Take a snapshot, perhaps an older one.

        Returns the changes to the backup's request, the offsets from which it needs the queues, and its tid.
        """
        engine, writers = self.graph.engine, self.graph.writers
        # Without snapshot.json, lost messages of open transactions could not be noticed, and recreated queues
        # do not show the tid.
        with_json = with_json or any(self.low.values()) or self.was_reset
        until_tid = writers.tid - lag if lag and with_json else None
        engine.run(until_tid)
        # The queues may have no message with the tid of the restore.
        with_json = with_json or (self.last_restore is not None and self.last_restore.tid > engine.tid)
        folder = self.lab.new_folder()
        snapshot = engine.snapshot(folder)
        queues = json.loads((folder / "snapshot.json").read_text())["queues"]
        if not with_json:
            (folder / "snapshot.json").unlink()
        needed = {(queue["topic"], queue["partition"]): queue["max_no_transaction_pos"] for queue in queues}
        return {"snapshot": str(snapshot)}, needed, engine.tid

    def expected_parents(self, mode: Mode, needed: dict[QueuePartition, int]) -> set[str | None] | None:
        """The possible parents of the next backup. None: the backup must be refused.

        A full has the parent None.
        """
        if needed:
            return None if self.is_deleted(needed) else {None}
        if self.was_reset:
            return None
        full = self.lineage[-1].chain[0] if self.lineage else None
        if self.last_restore and (self.last_restore.pending or mode == "differential"):
            full = self.last_restore.point.chain[0]
            if self.is_deleted(self.last_restore.base):
                return None
            may_continue_restore = self.last_restore.complete and mode != "differential"
            return {full.backup_id, *([self.last_restore.point.backup_id] if may_continue_restore else [])}
        parent = full if mode == "differential" else self.lineage[-1]
        return None if parent is None or self.is_deleted(parent.needed) else {parent.backup_id}

    def is_deleted(self, needed: dict[QueuePartition, int]) -> bool:
        return any(self.low.get(partition, 0) > position for partition, position in needed.items())

    def add(self, row: dict[str, Any], mode: Mode, needed: dict[QueuePartition, int], tid: int) -> None:
        parents = self.expected_parents(mode, needed)
        assert parents is not None
        assert row["parent"] in parents
        (point,) = self.lab.rows(f"SELECT * FROM queue_points WHERE backup_id = '{row['backup_id']}'")
        assert point["last_tid"] == tid
        after_restore = self.last_restore is not None and (
            self.last_restore.pending or mode == "differential"
        )
        restore_unknown = bool(
            needed and self.last_restore and self.last_restore.pending and self.watermarks_lost
        )
        backup = ModelBackup(
            row["backup_id"],
            1 + len(self.backups),
            next((t for t in self.backups if t.backup_id == row["parent"]), None),
            tid,
            list(self.graph.writers.ops),
            needed or self.ends(),
            after_restore,
            row["start_ts"],
            row["end_ts"],
        )
        assert row["number"] == backup.number
        expected_kind = {"full": "full", "differential": "cumulative"}.get(mode, "differential")
        assert row["kind"] == ("full" if needed else expected_kind)
        if after_restore and self.last_restore:
            self.last_restore.pending = False
        if needed:
            self.last_restore, self.was_reset = None, False
        self.backups.append(backup)
        self.lineage = backup.lineage = [*self.lineage, backup]
        # A full cannot know of the restore before it when no queue has a watermark any more.
        self.catalog_lineage = [*self.catalog_lineage, backup] if restore_unknown else self.lineage

    def ends(self) -> dict[QueuePartition, int]:
        return self.lab.ends(self.graph.queues)

    @precondition(lambda self: self.lineage)
    @rule(seed=seeds)
    def purge(self, seed: int) -> None:
        """Delete messages that the engine has read. It could not recover unread ones."""
        self.graph.check()
        dice = random.Random(seed)
        partition = dice.choice(self.graph.queues.partitions)
        low = self.low.get(partition, 0)
        end = self.ends()[partition]
        # The topics may have been recreated since the restore.
        if self.last_restore and self.last_restore.pending:
            end = min(end, self.last_restore.base[partition])
        delete_to = low + (end - low) * dice.randrange(1, 5) // 4
        if delete_to > low:
            truth.delete_records(self.lab.bootstrap, partition[0], {partition[1]: delete_to})
            self.low[partition] = delete_to

    @precondition(lambda self: self.lineage)
    @rule(all_of_them=st.booleans())
    def reset(self, all_of_them: bool) -> None:
        """Recreate topics. Open transactions are rolled back first, since they could not continue."""
        graph = self.graph
        for name in sorted(graph.writers.open()):
            graph.writers.end(name, "rollback")
        graph.writers.flush()
        graph.check()
        for name, partitions in list(graph.queues.topics.items())[: None if all_of_them else 1]:
            truth.delete_topic(self.lab.bootstrap, name)
            truth.create_topic(self.lab.bootstrap, name, partitions, retention_ms="-1")
            for partition in graph.queues.partitions:
                if partition[0] == name:
                    graph.engine.position[partition] = 0
                    self.low.pop(partition, None)
        self.was_reset, self.watermarks_lost = True, self.watermarks_lost or all_of_them

    def choose_restore(self, kind: str, dice: random.Random) -> RestoreCase:
        points = sorted(self.catalog_lineage, key=lambda t: (t.chain[0].number, t.number))
        if kind == "newest":
            point = max(points, key=lambda t: t.number)
            return RestoreCase({}, point, point.ops, point.tid)
        if kind == "backup":
            point = dice.choice(self.backups)
            return RestoreCase({"backup": point.backup_id}, point, point.ops, point.tid)
        if kind == "tid":
            tid = dice.randrange(max(0, points[-1].chain[0].tid - 2), points[-1].tid + 3)
            for point in reversed(points):
                link_number = next((i for i, link in enumerate(point.chain) if tid <= link.tid), None)
                if (
                    point.chain[0].tid <= tid
                    and link_number is not None
                    and not any(t.restored for t in point.chain[link_number + 1 :])
                ):
                    return RestoreCase({"to_tid": tid}, point, point.ops, tid)
            return RestoreCase({"to_tid": tid}, points[-1])
        ts = dice.choice(
            [t.end_ts for t in self.backups] + [op.ts for op in points[-1].ops]
        ) + dice.randrange(-1, 2)
        for point in reversed(points):
            link_number = next((i for i, t in enumerate(point.chain) if t.start_ts < ts <= t.end_ts), None)
            if link_number is not None and not any(t.restored for t in point.chain[link_number + 1 :]):
                later_tids = [op.tid for op in point.ops if op.ts > ts and op.kind != "schema"]
                tid = max(point.chain[0].tid, min([point.tid, *(tid - 1 for tid in later_tids)]))
                return RestoreCase({"to_ts": ts}, point, point.ops, tid)
        return RestoreCase({"to_ts": ts}, points[-1])

    @precondition(lambda self: self.lineage)
    @rule(
        kind=kinds,
        into_queues=target_queues,
        seed=seeds,
        keep_open=st.integers(0, 5),
        dies=steps,
        other_request=st.booleans(),
    )
    def restore(
        self,
        kind: str,
        into_queues: TargetQueues,
        seed: int,
        keep_open: int,
        dies: int | None,
        other_request: bool,
    ) -> None:
        """Restore the engine. It continues from the restored state."""
        dice = random.Random(seed)
        restore_case = self.choose_restore(kind, dice)
        if restore_case.ops is None:
            self.check_refused(restore_case)
            return
        keeps_open = keep_open == 5 and len(restore_case.point.chain) > 1
        options = {**restore_case.options, "keep_open": keeps_open}
        queues = self.graph.queues
        if into_queues == "anew":
            queues.delete()
            self.low = {}
        elif into_queues == "beside":
            queues = self.lab.queues(queues)
            self.low = {}
        ends_before = self.ends() if into_queues == "append" else dict.fromkeys(queues.partitions, 0)
        options |= {"append": into_queues == "append"}
        folder, is_complete = self.lab.new_folder(), False
        if dies:
            with dying(self.lab.repo, dies) as run_steps:
                self.lab.restore(folder, self.maps(restore_case.point, queues), **options)
            is_complete = not run_steps.dead
            if not is_complete and other_request:  # another restore replaces the interrupted one
                restore_case = self.choose_restore("newest", dice)
                assert restore_case.ops is not None
                folder, options, keeps_open = self.lab.new_folder(), {"append": True}, False
        if not is_complete:
            recorded_count = len(self.restore_bases(queues))
            try:
                self.lab.restore(folder, self.maps(restore_case.point, queues), **options)
            except Refused:  # the interrupted run had completed the restore
                assert dies
                assert recorded_count == len(queues.partitions)
        self.graph.engine.close()
        self.graph = self.lab.taken_up(
            folder, queues, restore_case.ops, restore_case.tid, keep_open=keeps_open
        )
        base = self.restore_bases(queues)
        assert all(base[partition] >= ends_before[partition] for partition in queues.partitions)
        (row,) = self.lab.rows(
            "SELECT backup_id, whole, last_tid FROM queue_restores ORDER BY at DESC, scope, region LIMIT 1"
        )
        restored_point = next(backup for backup in self.backups if backup.backup_id == row["backup_id"])
        assert restored_point.chain[0] is restore_case.point.chain[0]
        assert row["last_tid"] == restore_case.tid or kind == "time"
        self.last_restore = ModelRestore(restored_point, row["whole"], row["last_tid"], base)
        # A full is always restored completely.
        self.lineage = [
            backup
            for backup in restored_point.lineage
            if backup is not restored_point or row["whole"] or backup.parent is None
        ]
        self.was_reset = self.watermarks_lost = False

    @precondition(lambda self: self.lineage)
    @rule(kind=kinds, seed=seeds)
    def drill(self, kind: str, seed: int) -> None:
        """Restore beside the engine, which continues unchanged. The other topics tell the catalog so."""
        restore_case = self.choose_restore(kind, random.Random(seed))
        if restore_case.ops is None:
            self.check_refused(restore_case)
            return
        folder, queues = self.lab.new_folder(), self.lab.queues(self.graph.queues)
        self.lab.restore(folder, self.maps(restore_case.point, queues), **restore_case.options)
        self.lab.taken_up(folder, queues, restore_case.ops, restore_case.tid).engine.close()

    def restore_bases(self, queues: Queues) -> dict[QueuePartition, int]:
        """The offset in each partition before the messages of the newest restore into these queues."""
        rows = self.lab.rows("SELECT scope, region, base_position, epoch, at FROM queue_restores ORDER BY at")
        bases = {(row["scope"], int(row["region"])): row["base_position"] for row in rows}
        return {partition: bases[partition] for partition in queues.partitions if partition in bases}

    def check_refused(self, restore_case: RestoreCase) -> None:
        folder, queues = self.lab.new_folder(), self.lab.queues(self.graph.queues)
        with pytest.raises(Refused):
            self.lab.restore(folder, self.maps(restore_case.point, queues), **restore_case.options)
        assert not folder.exists()

    def maps(self, backup: ModelBackup, queues: Queues) -> dict[str, str]:
        """Map the topics of a backup to those of `queues`, where the names differ."""
        rows = self.lab.rows(
            f"SELECT scope FROM scopes WHERE backup_id = '{backup.backup_id}' ORDER BY scope"
        )
        names = zip([row["scope"] for row in rows], sorted(queues.topics), strict=True)
        return {source_name: target_name for source_name, target_name in names if source_name != target_name}

    def new_backups(self) -> list[dict[str, Any]]:
        """The catalog's rows of backups that the model does not know yet."""
        known_ids = {backup.backup_id for backup in self.backups}
        rows = self.lab.rows("SELECT * FROM backups WHERE source = 'social' ORDER BY number")
        return [row for row in rows if row["backup_id"] not in known_ids]

    def teardown(self) -> None:
        try:
            if self.lineage:
                self.drill("newest", 0)
        finally:
            self.lab.close()


@pytest.mark.long
def test_random_lives_of_an_engine(broker: Broker, empty_catalog: Path, tmp_path: Path) -> None:
    live(lambda: Life(broker.bootstrap, empty_catalog, tmp_path), 12, 25)
