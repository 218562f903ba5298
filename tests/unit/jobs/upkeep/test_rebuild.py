"""A rebuild keeps runs away from the sources that it reads."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.support.catalogs import manifest, put_sidecar
from tests.support.command_line import quiet

from lakebackup.errors import Busy
from lakebackup.recovery.rebuild import Rebuilt
from lakebackup.storage import Storage, open_storage
from lakebackup.store.lease import Lease, break_lease, held_leases
from lakebackup_jobs.upkeep import rebuild
from lakebackup_jobs.upkeep.rebuild import RebuildRequest


@pytest.fixture
def storage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Storage:
    storage = open_storage(str(tmp_path))
    put_sidecar(storage, manifest(1))
    put_sidecar(storage, manifest(1, source="other"))
    storage.put("strange folder/backups/note.txt", b"")
    monkeypatch.setattr(rebuild, "_LEASE_WAIT_S", 0.0)
    return storage


def test_a_rebuild_does_not_begin_beside_a_run(storage: Storage, tmp_path: Path) -> None:
    with Lease.acquire(storage, "source-prod", "follow"), pytest.raises(Busy, match="in use by follow"):
        rebuild.run(RebuildRequest(str(tmp_path)), spark=None, reporter=quiet())
    assert held_leases(storage) == []
    assert not (tmp_path / "catalog").exists()


def test_a_rebuild_that_lost_a_lease_ends_before_its_backups_count(
    storage: Storage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def rebuilt(*args: Any, **_: Any) -> Rebuilt:
        assert [name for name, _ in held_leases(storage)] == ["source-other", "source-prod"]
        args[-1]()
        break_lease(storage, "source-prod", "it was thought to be dead")
        with pytest.raises(Busy, match="lost its lease on source-prod"):
            args[-1]()
        return Rebuilt()

    monkeypatch.setattr("lakebackup_jobs.upkeep.rebuild.rebuild", rebuilt)
    rebuild.run(RebuildRequest(str(tmp_path)), spark=object(), reporter=quiet())  # type: ignore[arg-type]
    assert held_leases(storage) == []
