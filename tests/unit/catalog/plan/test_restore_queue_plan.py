"""Which backups of an engine's queues a restore to a tid, to a time or to a backup's end takes, asked of the
catalog's own views over rows made by hand."""

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


def at(text: str, day: str = "2024-06-13") -> int:
    """An instant of a day, in ms."""
    return int(datetime.fromisoformat(f"{day}T{text}").replace(tzinfo=UTC).timestamp() * 1000)


@dataclass
class Made:
    """The catalog of an engine. A backup is called by its number."""

    folder: Path
    rows: list[Row] = field(default_factory=list)
    backups: dict[int, Backup] = field(default_factory=dict)
    read: list[Any] = field(default_factory=list)
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
        """On a full a cumulative one, else a differential one (in the catalog's words)."""
        on = self.backups[parent]
        more: dict[str, Any] = {"kind": "cumulative" if on.kind == "full" else "differential"}
        if begin_ts is not None:
            more["start_ts"] = begin_ts
        return self._add(self._backup(on, end_ts, **more), tid, restore_id=restore)

    def _backup(self, on: Backup | None, end_ts: int, **changes: Any) -> Backup:
        own = {"source": GRAPH, "source_kind": "queues", "destination": "d", "end_ts": end_ts}
        return backup_row(len(self.backups) + 1, on, **own | changes)

    def _add(self, backup: Backup, tid: int, **point: Any) -> int:
        self.backups[backup.number] = backup
        place = {"backup_id": backup.backup_id, "source": GRAPH}
        point_row = filled(QueuePoint, last_tid=tid, **place, **point)
        self.rows += [backup, point_row, filled(Scope, **place, **QUEUE, regions=1, settings="{}")]
        return backup.number

    def file(self, number: int, tids: tuple[int, int], ts: tuple[int, int] = (0, 0)) -> str:
        """A file of a backup with messages of these tids and times; returns its path."""
        start = 10 * sum(isinstance(row, DataFile) for row in self.rows)
        span = {"start_position": start, "end_position": start + 10, "entries": 10, "bytes": 100}
        bounds = {"min_ts": ts[0], "max_ts": ts[1], "min_tid": tids[0], "max_tid": tids[1]}
        return self._file(number, f"{number}/{start}", **QUEUE, **span, **bounds)

    def schema(self, number: int, role: str = "schema") -> str:
        """A schema history, or a configuration, that travels with a backup; returns its path."""
        place = {"scope": "-", "epoch": "-", "region": "-", "format": "file"}
        return self._file(number, f"{number}/{role}.yaml", role=role, **place)

    def _file(self, number: int, path: str, **given: Any) -> str:
        self.rows.append(file_row(number, destination="d", source=GRAPH, path=path, **given))
        return path

    def restored(self, restore_id: str, backup: int, *, whole: bool, tid: int) -> None:
        own = {"restore_id": restore_id, "backup_id": self.name(backup), "full_id": self.backups[backup].base}
        self.rows.append(filled(QueueRestore, source=GRAPH, **QUEUE, **own, whole=whole, last_tid=tid))

    def torn(self, path: str) -> None:
        self.rows.append(filled(Check, destination="d", path=path, mode="hash", outcome="damaged"))

    def plan(self, tid_of: int | Callable[[RestorePath], int] = 0, **asked: Any) -> QueueRestorePlan:
        if self.reader is None or self.rows != self.read:
            self.reader, self.read = reader_of(self.folder, self.rows), list(self.rows)
        if isinstance(asked.get("backup"), int):
            asked["backup"] = self.name(asked["backup"])
        request = QueueRestoreRequest(str(self.folder), GRAPH, "kafka://b", "out", **asked)
        return plan_restore(request, self.reader, lambda way, _: tid_of(way) if callable(tid_of) else tid_of)

    def restore_path(self, **asked: Any) -> list[int]:
        return [link.number for link in self.plan(**asked).restore_path.links]


@pytest.fixture
def made(tmp_path: Path) -> Made:
    return Made(tmp_path)


def test_times_between_a_full_and_the_end_of_the_last_backup_on_it_are_covered(made: Made) -> None:
    first = made.full(at("06:19:39"), 100)
    made.child(first, at("06:39:15"), 200)
    second = made.full(at("08:19:39"), 300)
    assert made.restore_path(to_ts=at("06:35:00"), tid_of=150) == [1, 2]
    assert made.restore_path(to_ts=at("06:39:15"), tid_of=200) == [1, 2]
    assert made.restore_path(to_ts=at("06:19:39"), tid_of=100) == [first]
    assert made.restore_path(to_ts=at("08:19:39"), tid_of=300) == [second]
    with pytest.raises(Refused, match=r"before: 2024-06-13T06:39:15.*after: 2024-06-13T08:19:39"):
        made.plan(to_ts=at("07:00:00"))
    with pytest.raises(Refused, match=r"nearest that is, after: 2024-06-13T06:19:39[^,]*\)"):
        made.plan(to_ts=at("06:19:38"))
    with pytest.raises(Refused, match=r"nearest that is, before: 2024-06-13T08:19:39[^,]*\)"):
        made.plan(to_ts=at("09:00:00"))


def test_a_day_needs_the_incrementals_up_to_it(made: Made) -> None:
    last = made.full(at("00:00:00", "2024-01-01"), 10)
    for day in (2, 3, 4):
        last = made.child(last, at("00:00:00", f"2024-01-0{day}"), 10 * day)
        made.file(last, (10 * day - 9, 10 * day))
    assert made.restore_path() == [1, 2, 3, 4]
    for asked in ({"to_ts": at("00:00:00", "2024-01-03"), "tid_of": 30}, {"to_tid": 30}, {"backup": 3}):
        found = made.plan(**asked)
        assert [link.number for link in found.restore_path.links] == [1, 2, 3]
        assert (found.files, found.to_tid, found.whole) == (2, 30, True)
        assert found.backup_id == made.name(3)
    found = made.plan(to_tid=29)
    assert ([link.number for link in found.restore_path.links], found.files, found.whole) == (
        [1, 2, 3],
        2,
        False,
    )


def test_a_newer_backup_that_cannot_be_used_is_named(made: Made) -> None:
    made.full(1000, 100)
    last = made.child(1, 2000, 200)
    assert made.plan().notes == ()
    made.rows = [
        replace(row, state="unconfirmed") if isinstance(row, Backup) and row.number == last else row
        for row in made.rows
    ]
    found = made.plan()
    assert [link.number for link in found.restore_path.links] == [1]
    (note,) = found.notes
    assert f"{made.name(last)} of 1970-01-01T00:00:02.000Z is passed over" in note
    assert made.plan(to_tid=100).notes == ()


def test_what_was_restored_is_what_is_continued(made: Made) -> None:
    a = made.full(1000, 100)
    b = made.full(2000, 200)
    assert made.restore_path() == [b]
    made.restored("r", a, whole=True, tid=100)
    c = made.child(a, 4000, 150, restore="r", begin_ts=3000)
    assert made.restore_path() == [a, c]
    assert made.restore_path(to_tid=100) == [a]
    assert made.restore_path(to_tid=120) == [a, c]
    with pytest.raises(Refused, match=r"tid 200 .*before: tid 150") as refused:
        made.plan(to_tid=200)
    assert f"--backup {made.name(b)}" in refused.value.hint
    assert made.restore_path(backup=b) == [b]
    assert made.restore_path(backup=b, to_tid=200) == [b]
    with pytest.raises(Refused, match="nearest that is"):
        made.plan(to_ts=2500)


def test_behind_a_restore_into_the_middle_the_rest_of_that_history_is_left(made: Made) -> None:
    made.full(1000, 100)
    made.child(1, 2000, 200)
    made.child(2, 3000, 300)
    made.restored("r", 2, whole=False, tid=150)
    made.child(1, 5000, 180, restore="r", begin_ts=4000)
    assert made.restore_path() == [1, 4]
    assert made.restore_path(to_tid=150) == [1, 4]
    with pytest.raises(Refused, match=r"tid 250 .*before: tid 180\)"):
        made.plan(to_tid=250)
    assert made.restore_path(backup=3, to_tid=250) == [1, 2, 3]
    # Its messages are in the new history too, but what was done when is not known of it.
    with pytest.raises(Refused, match=r"nearest that is, before: .*, after: "):
        made.plan(to_ts=1500)
    assert made.restore_path(to_ts=4500, tid_of=170) == [1, 4]


def test_transactions_and_tids_do_not_live_on_behind_a_restore(made: Made) -> None:
    made.full(1000, 100)
    made.child(1, 2000, 200)
    made.restored("r", 2, whole=True, tid=200)
    made.child(2, 4000, 300, restore="r", begin_ts=3000)
    made.file(3, (190, 300))  # nothing of it came before the restore
    assert made.restore_path(to_tid=195) == [1, 2]
    found = made.plan(to_tid=250)
    assert [link.number for link in found.restore_path.links] == [1, 2, 3]
    assert found.restore_path.segments() == [0, 0, 1]
    with pytest.raises(Refused):
        made.plan(to_ts=2500)


def test_what_came_late_to_a_queue_is_taken_from_the_next_backup(made: Made) -> None:
    made.full(1000, 100)
    made.child(1, 2000, 200)
    made.child(2, 3000, 300)
    made.child(3, 4000, 400)
    made.file(2, (101, 200))
    made.file(3, (195, 300))
    made.file(4, (301, 400))
    schemas = {number: made.schema(number) for number in (1, 2, 3, 4)}
    found = made.plan(to_tid=200)
    assert [link.number for link in found.restore_path.links] == [1, 2, 3]
    # Who stands on backup 2 would miss what came late: it is looked for behind the full again.
    assert (found.backup_id, found.whole) == (made.name(2), False)
    assert found.restore_path.done_by(200) == 1
    # What came late may need a version of the schema that backup 2 did not have yet.
    assert [file.path for file in found.config] == [schemas[3]]
    # A way without backup 3 would lack that, and look whole.
    late = next(row.path for row in made.rows if isinstance(row, DataFile) and row.min_tid == 195)
    made.torn(late)
    with pytest.raises(Refused, match=f"{late} was damaged"):
        require_restorable(made.plan(to_tid=200))
    assert made.plan(to_tid=194).obstacles == ()


def test_the_configuration_is_none_of_after_the_point(made: Made) -> None:
    made.full(1000, 100)
    made.child(1, 2000, 200)
    made.child(2, 3000, 300)
    made.file(2, (101, 200))
    made.file(3, (195, 300))
    configs = {number: made.schema(number, "config") for number in (1, 2, 3)}
    for tid, number in ((150, 1), (200, 2), (299, 2), (300, 3), (None, 3)):
        assert [file.path for file in made.plan(to_tid=tid).config] == [configs[number]]


def test_the_configuration_at_a_point_is_of_a_backup_that_the_path_passes_over(made: Made) -> None:
    made.full(1000, 100)
    made.child(1, 2000, 400)
    made.child(1, 3000, 500)
    made.child(1, 4000, 600)
    made.file(4, (101, 600))
    configs = {number: made.schema(number, "config") for number in (1, 2, 3, 4)}
    schemas = {number: made.schema(number) for number in (1, 2, 3, 4)}
    for tid, number in ((399, 1), (400, 2), (450, 2), (500, 3), (599, 3), (600, 4)):
        plan = made.plan(to_tid=tid)
        assert [link.number for link in plan.restore_path.links] == [1, 4]
        assert [file.path for file in plan.config] == [configs[number], schemas[4]]


def test_the_configuration_at_a_point_is_of_the_history_that_is_restored(made: Made) -> None:
    made.full(1000, 100)
    made.child(1, 2000, 300)
    made.child(1, 3000, 400)
    made.restored("r", 3, whole=False, tid=350)
    made.child(1, 5000, 500, restore="r", begin_ts=4000)
    made.child(1, 6000, 600, begin_ts=4000)
    made.restored("s", 1, whole=True, tid=100)
    made.child(1, 8000, 450, restore="s", begin_ts=7000)
    for number in (3, 4, 5, 6):
        made.file(number, (101, 450))
    configs = {number: made.schema(number, "config") for number in range(1, 7)}

    def config(**point: int) -> list[str]:
        return [file.path for file in made.plan(**point).config]

    assert config(to_tid=440) == [configs[1]]  # 2 to 5 were left by the second restore
    assert config(backup=5, to_tid=590) == [configs[4]]
    assert config(backup=5, to_tid=450) == [configs[2]]  # 3 was left by the first one
    assert config(backup=3, to_tid=399) == [configs[2]]


def test_a_differential_in_place_of_incrementals(made: Made) -> None:
    made.full(1000, 100)
    made.child(1, 2000, 200)
    made.child(2, 3000, 300)
    made.child(1, 4000, 400)
    made.file(2, (101, 200))
    made.file(3, (201, 300))
    torn = made.file(4, (101, 400))
    found = made.plan(to_tid=150)
    assert [link.number for link in found.restore_path.links] == [1, 4]
    # Behind a restore to there, all from the first incremental on is another history.
    assert found.backup_id == made.name(2)
    made.torn(torn)
    assert made.restore_path(to_tid=150) == [1, 2]
    with pytest.raises(Refused, match=f"{torn} was damaged"):
        require_restorable(made.plan())


def test_a_time_that_a_torn_file_may_hold_is_looked_for_on_another_way(made: Made) -> None:
    made.full(1000, 100)
    made.child(1, 2000, 200)
    made.child(2, 3000, 300)
    made.child(1, 4000, 400)
    for number, tids in ((2, (101, 200)), (3, (201, 300)), (4, (101, 400))):
        made.file(number, tids, (tids[0] * 10, tids[1] * 10))

    def tid_of(way: RestorePath) -> int:
        if way.last.number == 4:
            raise Damaged("4/20 is not what was written")
        return 150

    assert [link.number for link in made.plan(tid_of, to_ts=1500).restore_path.links] == [1, 2]
    made.torn("2/0")
    made.torn("4/20")
    # What is told is what is known of the best way, not what came up when it was read.
    with pytest.raises(Refused, match="4/20 was damaged when it was last checked"):
        require_restorable(made.plan(tid_of, to_ts=1500))


def test_of_two_fulls_the_newest_that_is_not_behind_the_point(made: Made) -> None:
    made.full(1000, 100)
    made.child(1, 2000, 200)
    made.full(3000, 200)
    made.child(3, 4000, 300)
    assert made.restore_path(to_tid=199) == [1, 2]
    assert made.restore_path(to_tid=200) == [3]
    assert made.restore_path(to_tid=201) == [3, 4]


def test_what_is_near_a_tid_or_a_time_that_is_not_covered(made: Made) -> None:
    made.full(1000, 100)
    made.child(1, 2000, 200)
    made.full(3000, 250)
    for tid, near in (
        (220, "before: tid 200, after: tid 250"),
        (99, "after: tid 100"),
        (251, "before: tid 250"),
    ):
        with pytest.raises(Refused, match=rf"tid {tid} .*nearest that is, {near}\)"):
            made.plan(to_tid=tid)
    # What a named backup is put upon is near too.
    for to_ts, near in ((900, f"after: {format_ts(1000)}"), (2001, f"before: {format_ts(2000)}")):
        with pytest.raises(Refused, match=rf"nearest that is, {near}\)"):
            made.plan(backup=2, to_ts=to_ts)


def test_a_gap_is_named_where_it_is_why(made: Made) -> None:
    made.full(1000, 100)
    made.full(3000, 300)
    span = {"from_position": 5, "to_position": 9, "from_ts": 1000, "to_ts": 3000}
    made.rows.append(filled(Gap, backup_id=made.name(2), source=GRAPH, reason="purged", **QUEUE, **span))
    with pytest.raises(Refused, match="delta, partition 0: offsets from 5 were deleted"):
        made.plan(to_ts=2000)


def test_files_that_were_pruned_or_a_snapshot_that_is_gone(made: Made) -> None:
    made.full(1000, 100)
    made.child(1, 2000, 200)
    path = made.file(2, (101, 200))
    gone = {"destination": "d", "path": path, "backup_id": made.name(2), "reason": "time"}
    made.rows.append(filled(Removal, source=GRAPH, **QUEUE, **gone))
    with pytest.raises(Refused, match="1 files were pruned"):
        require_restorable(made.plan())
    assert made.plan(backup=1).obstacles == ()
    made.rows = [row for row in made.rows if not (isinstance(row, Backup) and row.source_kind == "snapshot")]
    with pytest.raises(Refused, match="its snapshot is not there any more"):
        require_restorable(made.plan(backup=1))


def test_names_and_what_continues_from_them(made: Made) -> None:
    made.full(1000, 100)
    found = made.plan(maps={"delta": "drill"})
    assert [(queue.scope, queue.target) for queue in found.queues] == [("delta", "drill")]
    assert not found.whole
    assert made.plan().whole
    assert not made.plan(keep_open=True).whole


def test_what_is_no_engine(made: Made) -> None:
    with pytest.raises(NotFound, match="no backup of an engine social"):
        made.plan()
    made.full(1000, 100)
    made.rows = [replace(row, state="out_of_sync") if isinstance(row, Backup) else row for row in made.rows]
    with pytest.raises(NotFound, match="no backup of social that can be restored"):
        made.plan()
    with pytest.raises(Refused, match="out_of_sync"):
        made.plan(backup=1)
    made.rows = [replace(row, source_kind="kafka") if isinstance(row, Backup) else row for row in made.rows]
    made.rows = [row for row in made.rows if not isinstance(row, QueuePoint)]
    with pytest.raises(Refused, match="of another kind"):
        made.plan()
