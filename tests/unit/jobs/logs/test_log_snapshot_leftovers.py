"""What a full leaves whose run was killed is taken away by the next one, and nothing else."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING

from tests.support.catalogs import backup_id
from tests.support.made_backups import MadeBackups

from lakebackup.plan.logs.restore import LogRestoreRequest
from lakebackup.rules import layout
from lakebackup.store import manifest as sidecar
from lakebackup.store.lease import Lease
from lakebackup_jobs.lifecycle.progress import QuietReporter
from lakebackup_jobs.logs.upkeep.snapshot import sweep

if TYPE_CHECKING:
    from pathlib import Path


def test_only_what_nobody_works_on_and_no_catalog_knows(tmp_path: Path) -> None:
    made = MadeBackups(tmp_path, "shop")
    storage = made.storage
    killed, marked, at_work = (backup_id(number) for number in (1, 2, 3))
    for name in (killed, marked, at_work):
        storage.put(f"{layout.full_folder('shop', name)}_delta_log/0.json", b"{}")
        storage.put(f"{layout.full_folder('shop', name)}part.parquet", b"rows")
        storage.put(f"{layout.backup_folder('shop', name)}listing/000000.objects.arrow", b"objects")
    sidecar.mark(storage, layout.marker_path("shop", marked, "complete"))
    request = LogRestoreRequest(str(tmp_path), "shop")
    with Lease.acquire(storage, f"full-{at_work}", "me"):
        sweep(storage, request, QuietReporter(io.StringIO(), io.StringIO()))
    left = {found.path for folder in ("fulls", "backups") for found in storage.list(f"shop/{folder}/")}
    assert {path.split("/")[2] for path in left} == {marked, at_work}
    assert len(left) == 7
