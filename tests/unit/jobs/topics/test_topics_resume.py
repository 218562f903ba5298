"""What a backup of topics does with one that was cut off, as far as the catalog and the lease decide it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

import pytest
from tests.support.command_line import quiet
from tests.support.made_backups import MadeBackups, Record

from lakebackup.errors import Busy
from lakebackup.plan.topics.backup import BackupPlan, Prepared, Split
from lakebackup.rows.backups import Backup
from lakebackup.rules import layout
from lakebackup.store import manifest as sidecar
from lakebackup_jobs.topics import backup as backup_topics
from lakebackup_jobs.topics import resume as unfinished
from lakebackup_jobs.topics.backup import BackupRequest

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


class CutOff:
    """A full backup of one topic that was begun; `commit` makes it exist, as another run does."""

    def __init__(self, folder: Path) -> None:
        self.made = MadeBackups(folder)
        self.request = BackupRequest(str(folder), ("orders",), {"bootstrap.servers": "nowhere:1"})
        self.name = self.made.backup([[Record(0, n) for n in range(3)]])
        splits = ((Split("orders", "0" * 32, "0", 0, 3, 0),),)
        plan = BackupPlan("full", None, 1_000, (), (), (), splits)
        self.prepared = Prepared(self.name, 1, 0, plan)
        unfinished.begin(self.made.storage, "prod", self.request, self.prepared, {})
        self.files = sorted(folder.rglob("*.data"))
        self.lease: list[str] = []

    def commit(self) -> None:
        (backup,) = (row for row in self.made._rows["backups"] if isinstance(row, Backup))
        manifest = sidecar.Manifest(backup=backup, positions=(), scopes=(), gaps=(), parts=1)
        sidecar.write_manifest(self.made.storage, layout.manifest_path("prod", self.name), manifest)
        self.made.flush()

    def settle(self, renew: Callable[[], None] = lambda: None, **changes: Any) -> dict[str, Any] | None:
        held = type("Held", (), {"renew": staticmethod(renew)})
        request = BackupRequest(
            **{**{n: getattr(self.request, n) for n in BackupRequest.__match_args__}, **changes}
        )
        arguments = (self.made.storage, "prod", None, held, None, None)
        reporter = quiet()
        return backup_topics._settle(request, *cast("Any", arguments), reporter)

    @property
    def marked(self) -> bool:
        return sidecar.marked(self.made.storage, layout.marker_path("prod", self.name, "complete"))

    def whole(self) -> bool:
        return bool(self.files) and all(path.exists() for path in self.files)


def test_a_run_that_stalled_does_not_delete_what_another_has_committed_since(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cut = CutOff(tmp_path)

    def other_run(*_: Any) -> str:
        cut.commit()
        return "a full backup starts over"

    monkeypatch.setattr(unfinished, "hindrance", other_run)
    done = cut.settle()
    assert cut.whole()
    assert cut.marked
    assert done
    assert (done["backup_id"], done["kind"], done["entries"]) == (cut.name, "full", 3)


def test_a_run_that_lost_its_lease_deletes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cut = CutOff(tmp_path)
    monkeypatch.setattr(unfinished, "hindrance", lambda *_: "a full backup starts over")
    monkeypatch.setattr(backup_topics, "_exists", lambda *_: False)

    def lost() -> None:
        raise Busy("taken over")

    with pytest.raises(Busy):
        cut.settle(lost)
    assert cut.whole()


def test_one_that_exists_is_returned_to_who_asked_for_it(tmp_path: Path) -> None:
    cut = CutOff(tmp_path)
    cut.commit()
    begun = (tmp_path / layout.begun_path("prod")).read_bytes()
    done = cut.settle()
    assert done
    assert done["backup_id"] == cut.name
    assert cut.marked
    (tmp_path / layout.begun_path("prod")).write_bytes(begun)
    assert cut.settle(topics=("users",)) is None
    assert not (tmp_path / layout.begun_path("prod")).exists()
    assert cut.whole()
