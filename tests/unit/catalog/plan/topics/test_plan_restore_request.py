"""What a restore of one backup would read and what stands against it, over real tables without Java."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from tests.support.made_backups import MadeBackups, Record

from lakebackup.plan.topics.request import RestoreRequest, plan_restore
from lakebackup.rows.backups import DataFile, Floor, Removal
from lakebackup.store.reader import CatalogReader

if TYPE_CHECKING:
    from pathlib import Path

    from lakebackup.plan.topics.restore import RestorePlan


def test_a_backup_of_which_all_was_pruned_is_not_restored_as_if_it_held_nothing(tmp_path: Path) -> None:
    made = MadeBackups(tmp_path)
    names = [made.backup([[Record(0, n, ts=1000 * n + 500)]]) for n in range(2)]
    (gone, _) = (row for row in made._rows["files"] if isinstance(row, DataFile))
    place = {"source": "prod", "scope": "orders", "epoch": gone.epoch, "region": "0"}
    removal = {"destination": gone.destination, "path": gone.path, "backup_id": gone.backup_id}
    made.add(
        Removal(prune_id="p1", at=1, **place, **removal, bytes=gone.bytes, reason="time"),
        Floor(prune_id="p1", at=1, **place, low_position=1, generation=0, reason="time"),
    )
    made.flush()

    def planned(backup: str) -> RestorePlan:
        request = RestoreRequest(str(tmp_path), "dir:out", topics=("orders",), backup=backup)
        return plan_restore(request, CatalogReader(str(tmp_path)))

    (stands,) = planned(names[0]).obstacles
    assert (stands.reason, stands.region) == ("pruned", "0")
    assert stands.detail == "what it held then was pruned; it can be restored from offset 1 on"
    plan = planned(names[1])
    assert plan.obstacles == ()
    assert [part.files for topic in plan.topics for part in topic.parts] == [1]


def test_a_newer_backup_that_cannot_be_used_is_named(tmp_path: Path) -> None:
    made = MadeBackups(tmp_path)
    first, lost, last = (made.backup([[Record(0, n)]]) for n in range(3))
    request = RestoreRequest(str(tmp_path), "dir:out", topics=("orders",))
    assert plan_restore(request, made.planner()).notes == ()
    made._rows["backups"][1] = replace(made._rows["backups"][1], state="unconfirmed")
    made.add()  # the reader is of the rows before
    plan = plan_restore(request, made.planner())
    assert [topic.backup_id for topic in plan.topics] == [first]
    assert [note.split(" of ")[0] for note in plan.notes] == [f"backup {last}", f"backup {lost}"]
    assert "is passed over: it cannot be restored" in plan.notes[0]
    assert plan_restore(replace(request, to_ts=1000), made.planner()).notes == ()


def test_what_makes_two_requests_the_same_restore() -> None:
    one = RestoreRequest("/backups", "dir:out", topics=("orders",))
    others: dict[str, Any] = {
        "target": "dir:other", "topics": ("users",), "patterns": ("o.*",), "maps": {"orders": "o"},
        "to_ts": 1, "from_ts": 1, "select": "SELECT path FROM files", "partial": True, "append": True,
        "allow_gaps": True, "approximate": True, "continued": True, "repartition": True, "partitions": 2,
        "backup": "b",
    }  # fmt: skip
    digests = {replace(one, **{name: value}).digest("prod") for name, value in others.items()}
    assert len(digests | {one.digest("prod"), one.digest("test")}) == len(others) + 2
    same = replace(one, destination="/mnt/backups", kafka={"sasl.password": "x"}, lease_ttl_s=5, remote="r")
    assert same.digest("prod") == one.digest("prod")
