"""The backups of an engine's queues that a restore to a tid, to a time or to a backup's end reads.

The catalog's own views choose them from rows made by hand.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from tests.support.catalogs import backup_id
from tests.support.made_backups import reader_of
from tests.support.rows import backup_row, file_row, filled

from lakebackup.errors import Damaged, NotFound, Refused
from lakebackup.plan.queues.paths import RestorePath
from lakebackup.plan.queues.restore import (
    QueueRestorePlan,
    QueueRestoreRequest,
    plan_restore,
    require_restorable,
)
from lakebackup.rows.backups import Backup, DataFile, Gap, Removal, Scope
from lakebackup.rows.base import Row
from lakebackup.rows.queues import QueuePoint, QueueRestore
from lakebackup.rows.upkeep import Check
from lakebackup.rules.times import format_ts

GRAPH = "social"
QUEUE = {"scope": "delta", "epoch": "e"}


def instant(text: str, day: str = "2024-06-13") -> int:
    """A time of a day, in ms since 1970 UTC."""
    return int(datetime.fromisoformat(f"{day}T{text}").replace(tzinfo=UTC).timestamp() * 1000)


@dataclass
class QueueCatalog:
    """The catalog of an engine. Its methods name a backup by its number."""

    folder: Path
    rows: list[Row] = field(default_factory=list)
    backups: dict[int, Backup] = field(default_factory=dict)
    reader_rows: list[Any] = field(default_factory=list)
    reader: Any = None

    def name(self, number: int) -> str:
        return backup_id(number)

    def full(self, end_ts: int, tid: int) -> int:
        number = len(self.backups) + 1
        snapshot = f"20260101T0100{number:02d}Z-{number:08x}"
        own = {"backup_id": snapshot, "base": snapshot, "source": f"{GRAPH}.snapshot"}
        self.rows.append(backup_row(number, **own, source_kind="snapshot", destination="d", end_ts=end_ts))
        return self._add(self._backup(None, end_ts, start_ts=end_ts - 1), tid, snapshot_id=snapshot)

    def child(
        self, parent: int, end_ts: int, tid: int, *, restore: str | None = None, begin_ts: int | None = None
    ) -> int:
        """Adds a backup with a parent. In the catalog it is cumulative on a full, else differential."""
        parent_row = self.backups[parent]
        columns: dict[str, Any] = {"kind": "cumulative" if parent_row.kind == "full" else "differential"}
        if begin_ts is not None:
            columns["start_ts"] = begin_ts
        return self._add(self._backup(parent_row, end_ts, **columns), tid, restore_id=restore)

    def _backup(self, parent: Backup | None, end_ts: int, **changes: Any) -> Backup:
        own = {"source": GRAPH, "source_kind": "queues", "destination": "d", "end_ts": end_ts}
        return backup_row(len(self.backups) + 1, parent, **own | changes)

    def _add(self, backup: Backup, tid: int, **point: Any) -> int:
        self.backups[backup.number] = backup
        key_columns = {"backup_id": backup.backup_id, "source": GRAPH}
        point_row = filled(QueuePoint, last_tid=tid, **key_columns, **point)
        self.rows += [backup, point_row, filled(Scope, **key_columns, **QUEUE, regions=1, settings="{}")]
        return backup.number

    def file(self, number: int, tids: tuple[int, int], ts: tuple[int, int] = (0, 0)) -> str:
        """Adds a file of a backup with messages of these tids and times. Returns its path."""
        start = 10 * sum(isinstance(row, DataFile) for row in self.rows)
        span = {"start_position": start, "end_position": start + 10, "entries": 10, "bytes": 100}
        bounds = {"min_ts": ts[0], "max_ts": ts[1], "min_tid": tids[0], "max_tid": tids[1]}
        return self._file(number, f"{number}/{start}", **QUEUE, **span, **bounds)

    def schema(self, number: int, role: str = "schema") -> str:
        """Adds a schema history or a configuration to a backup. Returns its path."""
        region_columns = {"scope": "-", "epoch": "-", "region": "-", "format": "file"}
        return self._file(number, f"{number}/{role}.yaml", role=role, **region_columns)

    def _file(self, number: int, path: str, **columns: Any) -> str:
        self.rows.append(file_row(number, destination="d", source=GRAPH, path=path, **columns))
        return path

    def add_restore(self, restore_id: str, backup: int, *, complete: bool, tid: int) -> None:
        own = {"restore_id": restore_id, "backup_id": self.name(backup), "full_id": self.backups[backup].base}
        self.rows.append(filled(QueueRestore, source=GRAPH, **QUEUE, **own, whole=complete, last_tid=tid))

    def add_damage(self, path: str) -> None:
        self.rows.append(filled(Check, destination="d", path=path, mode="hash", outcome="damaged"))

    def plan(self, tid_of: int | Callable[[RestorePath], int] = 0, **options: Any) -> QueueRestorePlan:
        if self.reader is None or self.rows != self.reader_rows:
            self.reader, self.reader_rows = reader_of(self.folder, self.rows), list(self.rows)
        if isinstance(options.get("backup"), int):
            options["backup"] = self.name(options["backup"])
        request = QueueRestoreRequest(str(self.folder), GRAPH, "kafka://b", "out", **options)
        return plan_restore(
            request, self.reader, lambda path, _: tid_of(path) if callable(tid_of) else tid_of
        )

    def restore_path(self, **options: Any) -> list[int]:
        return [link.number for link in self.plan(**options).restore_path.links]


@pytest.fixture
def catalog(tmp_path: Path) -> QueueCatalog:
    return QueueCatalog(tmp_path)


def test_times_between_a_full_and_the_end_of_the_last_backup_on_it_are_covered(catalog: QueueCatalog) -> None:
    first = catalog.full(instant("06:19:39"), 100)
    catalog.child(first, instant("06:39:15"), 200)
    second = catalog.full(instant("08:19:39"), 300)
    assert catalog.restore_path(to_ts=instant("06:35:00"), tid_of=150) == [1, 2]
    assert catalog.restore_path(to_ts=instant("06:39:15"), tid_of=200) == [1, 2]
    assert catalog.restore_path(to_ts=instant("06:19:39"), tid_of=100) == [first]
    assert catalog.restore_path(to_ts=instant("08:19:39"), tid_of=300) == [second]
    with pytest.raises(Refused, match=r"before: 2024-06-13T06:39:15.*after: 2024-06-13T08:19:39"):
        catalog.plan(to_ts=instant("07:00:00"))
    with pytest.raises(Refused, match=r"nearest that is, after: 2024-06-13T06:19:39[^,]*\)"):
        catalog.plan(to_ts=instant("06:19:38"))
    with pytest.raises(Refused, match=r"nearest that is, before: 2024-06-13T08:19:39[^,]*\)"):
        catalog.plan(to_ts=instant("09:00:00"))


def test_a_point_needs_the_incrementals_up_to_it(catalog: QueueCatalog) -> None:
    last = catalog.full(instant("00:00:00", "2024-01-01"), 10)
    for day in (2, 3, 4):
        last = catalog.child(last, instant("00:00:00", f"2024-01-0{day}"), 10 * day)
        catalog.file(last, (10 * day - 9, 10 * day))
    assert catalog.restore_path() == [1, 2, 3, 4]
    for options in (
        {"to_ts": instant("00:00:00", "2024-01-03"), "tid_of": 30},
        {"to_tid": 30},
        {"backup": 3},
    ):
        plan = catalog.plan(**options)
        assert [link.number for link in plan.restore_path.links] == [1, 2, 3]
        assert (plan.files, plan.to_tid, plan.whole) == (2, 30, True)
        assert plan.backup_id == catalog.name(3)
    plan = catalog.plan(to_tid=29)
    assert ([link.number for link in plan.restore_path.links], plan.files, plan.whole) == (
        [1, 2, 3],
        2,
        False,
    )


def test_an_unusable_newer_backup_is_named(catalog: QueueCatalog) -> None:
    catalog.full(1000, 100)
    last = catalog.child(1, 2000, 200)
    assert catalog.plan().notes == ()
    catalog.rows = [
        replace(row, state="unconfirmed") if isinstance(row, Backup) and row.number == last else row
        for row in catalog.rows
    ]
    plan = catalog.plan()
    assert [link.number for link in plan.restore_path.links] == [1]
    (note,) = plan.notes
    assert f"{catalog.name(last)} of 1970-01-01T00:00:02.000Z is passed over" in note
    assert catalog.plan(to_tid=100).notes == ()


def test_the_restored_history_is_continued(catalog: QueueCatalog) -> None:
    first = catalog.full(1000, 100)
    second = catalog.full(2000, 200)
    assert catalog.restore_path() == [second]
    catalog.add_restore("r", first, complete=True, tid=100)
    child = catalog.child(first, 4000, 150, restore="r", begin_ts=3000)
    assert catalog.restore_path() == [first, child]
    assert catalog.restore_path(to_tid=100) == [first]
    assert catalog.restore_path(to_tid=120) == [first, child]
    with pytest.raises(Refused, match=r"tid 200 .*before: tid 150") as refused:
        catalog.plan(to_tid=200)
    assert f"--backup {catalog.name(second)}" in refused.value.hint
    assert catalog.restore_path(backup=second) == [second]
    assert catalog.restore_path(backup=second, to_tid=200) == [second]
    with pytest.raises(Refused, match="nearest that is"):
        catalog.plan(to_ts=2500)


def test_a_restore_into_the_middle_abandons_the_rest_of_that_history(catalog: QueueCatalog) -> None:
    catalog.full(1000, 100)
    catalog.child(1, 2000, 200)
    catalog.child(2, 3000, 300)
    catalog.add_restore("r", 2, complete=False, tid=150)
    catalog.child(1, 5000, 180, restore="r", begin_ts=4000)
    assert catalog.restore_path() == [1, 4]
    assert catalog.restore_path(to_tid=150) == [1, 4]
    with pytest.raises(Refused, match=r"tid 250 .*before: tid 180\)"):
        catalog.plan(to_tid=250)
    assert catalog.restore_path(backup=3, to_tid=250) == [1, 2, 3]
    # The new history holds these messages too, but not the times when they were applied.
    with pytest.raises(Refused, match=r"nearest that is, before: .*, after: "):
        catalog.plan(to_ts=1500)
    assert catalog.restore_path(to_ts=4500, tid_of=170) == [1, 4]


def test_transactions_and_tids_end_at_a_restore(catalog: QueueCatalog) -> None:
    catalog.full(1000, 100)
    catalog.child(1, 2000, 200)
    catalog.add_restore("r", 2, complete=True, tid=200)
    catalog.child(2, 4000, 300, restore="r", begin_ts=3000)
    catalog.file(3, (190, 300))  # none of its messages came before the restore
    assert catalog.restore_path(to_tid=195) == [1, 2]
    plan = catalog.plan(to_tid=250)
    assert [link.number for link in plan.restore_path.links] == [1, 2, 3]
    assert plan.restore_path.segments() == [0, 0, 1]
    with pytest.raises(Refused):
        catalog.plan(to_ts=2500)


def test_late_messages_are_read_from_the_next_backup(catalog: QueueCatalog) -> None:
    catalog.full(1000, 100)
    catalog.child(1, 2000, 200)
    catalog.child(2, 3000, 300)
    catalog.child(3, 4000, 400)
    catalog.file(2, (101, 200))
    catalog.file(3, (195, 300))
    catalog.file(4, (301, 400))
    schemas = {number: catalog.schema(number) for number in (1, 2, 3, 4)}
    plan = catalog.plan(to_tid=200)
    assert [link.number for link in plan.restore_path.links] == [1, 2, 3]
    # A backup that continues backup 2 would miss the late messages: they are searched after the full again.
    assert (plan.backup_id, plan.whole) == (catalog.name(2), False)
    assert plan.restore_path.last_index_by(200) == 1
    # The late messages may need a version of the schema that backup 2 did not have yet.
    assert [file.path for file in plan.config] == [schemas[3]]
    # A path without backup 3 would lack the late messages and still look complete.
    late_path = next(row.path for row in catalog.rows if isinstance(row, DataFile) and row.min_tid == 195)
    catalog.add_damage(late_path)
    with pytest.raises(Refused, match=f"{late_path} was damaged"):
        require_restorable(catalog.plan(to_tid=200))
    assert catalog.plan(to_tid=194).obstacles == ()


def test_the_configuration_is_not_newer_than_the_point(catalog: QueueCatalog) -> None:
    catalog.full(1000, 100)
    catalog.child(1, 2000, 200)
    catalog.child(2, 3000, 300)
    catalog.file(2, (101, 200))
    catalog.file(3, (195, 300))
    configs = {number: catalog.schema(number, "config") for number in (1, 2, 3)}
    for tid, number in ((150, 1), (200, 2), (299, 2), (300, 3), (None, 3)):
        assert [file.path for file in catalog.plan(to_tid=tid).config] == [configs[number]]


def test_the_configuration_may_come_from_a_backup_outside_the_path(catalog: QueueCatalog) -> None:
    catalog.full(1000, 100)
    catalog.child(1, 2000, 400)
    catalog.child(1, 3000, 500)
    catalog.child(1, 4000, 600)
    catalog.file(4, (101, 600))
    configs = {number: catalog.schema(number, "config") for number in (1, 2, 3, 4)}
    schemas = {number: catalog.schema(number) for number in (1, 2, 3, 4)}
    for tid, number in ((399, 1), (400, 2), (450, 2), (500, 3), (599, 3), (600, 4)):
        plan = catalog.plan(to_tid=tid)
        assert [link.number for link in plan.restore_path.links] == [1, 4]
        assert [file.path for file in plan.config] == [configs[number], schemas[4]]


def test_the_configuration_is_of_the_restored_history(catalog: QueueCatalog) -> None:
    catalog.full(1000, 100)
    catalog.child(1, 2000, 300)
    catalog.child(1, 3000, 400)
    catalog.add_restore("r", 3, complete=False, tid=350)
    catalog.child(1, 5000, 500, restore="r", begin_ts=4000)
    catalog.child(1, 6000, 600, begin_ts=4000)
    catalog.add_restore("s", 1, complete=True, tid=100)
    catalog.child(1, 8000, 450, restore="s", begin_ts=7000)
    for number in (3, 4, 5, 6):
        catalog.file(number, (101, 450))
    configs = {number: catalog.schema(number, "config") for number in range(1, 7)}

    def config(**point: int) -> list[str]:
        return [file.path for file in catalog.plan(**point).config]

    assert config(to_tid=440) == [configs[1]]  # the second restore abandoned 2 to 5
    assert config(backup=5, to_tid=590) == [configs[4]]
    assert config(backup=5, to_tid=450) == [configs[2]]  # the first restore abandoned 3
    assert config(backup=3, to_tid=399) == [configs[2]]


def test_a_differential_replaces_incrementals(catalog: QueueCatalog) -> None:
    catalog.full(1000, 100)
    catalog.child(1, 2000, 200)
    catalog.child(2, 3000, 300)
    catalog.child(1, 4000, 400)
    catalog.file(2, (101, 200))
    catalog.file(3, (201, 300))
    damaged_path = catalog.file(4, (101, 400))
    plan = catalog.plan(to_tid=150)
    assert [link.number for link in plan.restore_path.links] == [1, 4]
    # After a restore to that point, everything from the first incremental on is another history.
    assert plan.backup_id == catalog.name(2)
    catalog.add_damage(damaged_path)
    assert catalog.restore_path(to_tid=150) == [1, 2]
    with pytest.raises(Refused, match=f"{damaged_path} was damaged"):
        require_restorable(catalog.plan())


def test_a_time_in_a_damaged_file_is_searched_on_another_path(catalog: QueueCatalog) -> None:
    catalog.full(1000, 100)
    catalog.child(1, 2000, 200)
    catalog.child(2, 3000, 300)
    catalog.child(1, 4000, 400)
    for number, tids in ((2, (101, 200)), (3, (201, 300)), (4, (101, 400))):
        catalog.file(number, tids, (tids[0] * 10, tids[1] * 10))

    def tid_of(path: RestorePath) -> int:
        if path.last.number == 4:
            raise Damaged("4/20 is not what was written")
        return 150

    assert [link.number for link in catalog.plan(tid_of, to_ts=1500).restore_path.links] == [1, 2]
    catalog.add_damage("2/0")
    catalog.add_damage("4/20")
    # The error names the known damage of the best path, not the problem that came up when it was read.
    with pytest.raises(Refused, match="4/20 was damaged when it was last checked"):
        require_restorable(catalog.plan(tid_of, to_ts=1500))


def test_the_newest_full_up_to_the_point_is_used(catalog: QueueCatalog) -> None:
    catalog.full(1000, 100)
    catalog.child(1, 2000, 200)
    catalog.full(3000, 200)
    catalog.child(3, 4000, 300)
    assert catalog.restore_path(to_tid=199) == [1, 2]
    assert catalog.restore_path(to_tid=200) == [3]
    assert catalog.restore_path(to_tid=201) == [3, 4]


def test_the_covered_points_nearest_to_an_uncovered_one_are_named(catalog: QueueCatalog) -> None:
    catalog.full(1000, 100)
    catalog.child(1, 2000, 200)
    catalog.full(3000, 250)
    for tid, near in (
        (220, "before: tid 200, after: tid 250"),
        (99, "after: tid 100"),
        (251, "before: tid 250"),
    ):
        with pytest.raises(Refused, match=rf"tid {tid} .*nearest that is, {near}\)"):
            catalog.plan(to_tid=tid)
    # The points of the backups that a named backup depends on are near too.
    for to_ts, near in ((900, f"after: {format_ts(1000)}"), (2001, f"before: {format_ts(2000)}")):
        with pytest.raises(Refused, match=rf"nearest that is, {near}\)"):
            catalog.plan(backup=2, to_ts=to_ts)


def test_a_gap_that_prevents_a_restore_is_named(catalog: QueueCatalog) -> None:
    catalog.full(1000, 100)
    catalog.full(3000, 300)
    span = {"from_position": 5, "to_position": 9, "from_ts": 1000, "to_ts": 3000}
    catalog.rows.append(
        filled(Gap, backup_id=catalog.name(2), source=GRAPH, reason="purged", **QUEUE, **span)
    )
    with pytest.raises(Refused, match="delta, partition 0: offsets from 5 were deleted"):
        catalog.plan(to_ts=2000)


def test_pruned_files_and_a_missing_snapshot_are_obstacles(catalog: QueueCatalog) -> None:
    catalog.full(1000, 100)
    catalog.child(1, 2000, 200)
    path = catalog.file(2, (101, 200))
    columns = {"destination": "d", "path": path, "backup_id": catalog.name(2), "reason": "time"}
    catalog.rows.append(filled(Removal, source=GRAPH, **QUEUE, **columns))
    with pytest.raises(Refused, match="1 files were pruned"):
        require_restorable(catalog.plan())
    assert catalog.plan(backup=1).obstacles == ()
    catalog.rows = [
        row for row in catalog.rows if not (isinstance(row, Backup) and row.source_kind == "snapshot")
    ]
    with pytest.raises(Refused, match="its snapshot is not there any more"):
        require_restorable(catalog.plan(backup=1))


def test_a_restore_to_other_names_is_not_whole(catalog: QueueCatalog) -> None:
    catalog.full(1000, 100)
    plan = catalog.plan(maps={"delta": "drill"})
    assert [(queue.scope, queue.target) for queue in plan.queues] == [("delta", "drill")]
    assert not plan.whole
    assert catalog.plan().whole
    assert not catalog.plan(keep_open=True).whole


def test_sources_that_are_no_engine_are_refused(catalog: QueueCatalog) -> None:
    with pytest.raises(NotFound, match="no backup of an engine social"):
        catalog.plan()
    catalog.full(1000, 100)
    catalog.rows = [
        replace(row, state="out_of_sync") if isinstance(row, Backup) else row for row in catalog.rows
    ]
    with pytest.raises(NotFound, match="no backup of social that can be restored"):
        catalog.plan()
    with pytest.raises(Refused, match="out_of_sync"):
        catalog.plan(backup=1)
    catalog.rows = [
        replace(row, source_kind="kafka") if isinstance(row, Backup) else row for row in catalog.rows
    ]
    catalog.rows = [row for row in catalog.rows if not isinstance(row, QueuePoint)]
    with pytest.raises(Refused, match="of another kind"):
        catalog.plan()
