"""A prune dies before each of its steps in turn: no live file is ever gone, and the next prune completes
it."""

from __future__ import annotations

import shutil
from contextlib import suppress
from typing import TYPE_CHECKING

import pytest
from tests.support.catalogs import backup_id
from tests.support.faults import Killed, expire_leases, watched
from tests.support.pruning import data, listed, orders, run, select_rows, write_backup

from lakebackup.errors import Busy, EnvironmentProblem
from lakebackup.recovery.rebuild import rebuild
from lakebackup.rows.tables import as_row
from lakebackup.sql_engine.delta.dataset import rows_of
from lakebackup.storage import open_storage
from lakebackup.store import tombstones
from lakebackup.store.writer import CatalogWriter

if TYPE_CHECKING:
    from collections.abc import Collection
    from pathlib import Path

    from pyspark.sql import SparkSession

# The last step before which the long tests kill a prune; a prune has fewer.
LAST_STEP = 59
# The steps that leave distinct states, in their order.
STATES = (
    "put prune.json", "commit floors", "commit backups", "commit removals", "put audit", "delete data",
    "put done",
)  # fmt: skip
PRUNED, REMAINING = orders(1, 2, 3, regions=1), orders(4, 5, regions=1)


@pytest.fixture(scope="module")
def destination(empty_catalog: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Backups 1 and 2 are pruned whole, being out of sync, and the third's file by its topic's retention."""
    root = tmp_path_factory.mktemp("killed")
    shutil.copytree(empty_catalog, root / "catalog")
    writer = CatalogWriter(None, str(root))
    for number, base in ((1, 1), (2, 1), (3, 3), (4, 3), (5, 5)):
        write_backup(root, writer, number, base=base, regions=1)
    writer.set_states([backup_id(2), backup_id(1)], "out_of_sync", actor="me", reason="cut back")
    return root


def live_files(steps: Collection[str]) -> set[str]:
    """The live files after these steps."""
    if "commit removals" in steps:
        return REMAINING
    return orders(3, regions=1) | REMAINING if "commit backups" in steps else PRUNED | REMAINING


def deleted(root: Path) -> set[str]:
    rows = select_rows(root, "SELECT backup_id FROM obsolete_backups WHERE status = 'DELETED'")
    return {row["backup_id"] for row in rows}


def check_ended(root: Path) -> None:
    """Check that the destination is as if nothing had gone wrong."""
    assert data(root) == listed(root) == REMAINING
    assert {row["path"] for row in select_rows(root, "SELECT path FROM removals")} == PRUNED
    assert len(select_rows(root, "SELECT * FROM removals")) == len(PRUNED)
    assert deleted(root) == {backup_id(1), backup_id(2)}
    assert len(select_rows(root, "SELECT * FROM audit WHERE action = 'prune'")) == 1
    assert len(select_rows(root, "SELECT * FROM floors")) == 1
    storage = open_storage(str(root))
    assert len(list(tombstones.prune_ids(storage))) == len(list(storage.folders("prunes/"))) == 1
    assert tombstones.incomplete(storage) == []


@pytest.mark.long
def test_a_prune_killed_again_and_again_is_completed(
    session: SparkSession | None, destination: Path, tmp_path: Path
) -> None:
    """Each run continues the work of the one before and dies before the next step."""
    root = shutil.copytree(destination, tmp_path / "killed")
    finished_steps: list[str] = []
    for number, step in enumerate(STATES):
        with (
            watched(tmp_path / f"steps {number}", kill_at=step) as steps,
            suppress(Killed, EnvironmentProblem),
        ):
            run(root, session, delete=True)
        assert steps.dead, step
        if step in ("put prune.json", "delete data"):  # the run still holds the source's lease
            assert steps.names()[-2] == "put lease source", step
        assert listed(root) == live_files(finished_steps), step
        assert data(root) == (REMAINING if "delete data" in finished_steps else PRUNED | REMAINING), step
        finished_steps.append(step)
        if number == 0:
            with pytest.raises(Busy, match="source-prod is in use"):
                run(root, session, delete=True)
        expire_leases(root)
    result = run(root, session, delete=True)
    assert (result["resumed"], result["files"]) == (1, 0)
    check_ended(root)


@pytest.mark.long
@pytest.mark.parametrize("step", range(1, LAST_STEP + 1))
def test_a_prune_killed_before_any_step_is_completed(step: int, destination: Path, tmp_path: Path) -> None:
    root = shutil.copytree(destination, tmp_path / "killed")
    with watched(tmp_path / "steps", kill_at=step) as steps:
        with suppress(Killed, EnvironmentProblem):
            run(root, delete=True)
        if not steps.dead:  # it has fewer steps than the long tests go through
            assert step > len(steps.names())
            check_ended(root)
            return
    assert step < LAST_STEP, "there are more steps than this goes through"
    *steps_before, last = steps.names()
    assert listed(root) == live_files(steps_before), last
    assert listed(root) <= data(root), last
    if "put lease source" in steps_before and steps_before.count("put lease source") < 3:
        with pytest.raises(Busy, match="source-prod is in use"):
            run(root, delete=True)
    expire_leases(root)
    result = run(root, delete=True)
    assert result["resumed"] == ("put prune.json" in steps_before and "put done" not in steps_before), last
    assert (result["files"] == len(PRUNED)) == ("put prune.json" not in steps_before), last
    check_ended(root)


@pytest.mark.long
@pytest.mark.spark
def test_a_prune_whose_catalog_is_lost_continues(
    spark: SparkSession, destination: Path, tmp_path: Path
) -> None:
    """Only the tombstones name the pruned files; a rebuilt catalog leaves them out, and the prune
    continues."""
    root = shutil.copytree(destination, tmp_path / "lost")
    with watched(tmp_path / "steps", kill_at="commit floors"), suppress(Killed):
        run(root, spark, delete=True)
    assert data(root) == PRUNED | REMAINING
    expire_leases(root)
    shutil.rmtree(root / "catalog")
    assert rebuild(spark, str(root)).problems == []
    assert listed(root) == REMAINING
    assert deleted(root) == {backup_id(1), backup_id(2)}
    (name,) = tombstones.prune_ids(open_storage(str(root)))
    prune = tombstones.read_prune(open_storage(str(root)), name)
    for table, rows in (
        ("floors", prune.floors),
        ("removals", tombstones.read_removals(open_storage(str(root)), prune.chunks[0])),
    ):
        catalog_rows = rows_of(f"file://{root}/catalog/{table}").to_pylist()
        assert catalog_rows == [as_row(row) for row in rows]
    assert run(root, spark, delete=True)["resumed"] == 1
    check_ended(root)
