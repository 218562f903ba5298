"""A prune dies before each of its steps in turn: nothing that counts is ever gone, the next one ends it."""

from __future__ import annotations

import shutil
from contextlib import suppress
from typing import TYPE_CHECKING

import pytest
from tests.support.catalogs import backup_id
from tests.support.faults import Killed, expire_leases, watched
from tests.support.pruning import data, listed, orders, put, run, seen

from lakebackup.errors import Busy, EnvironmentProblem
from lakebackup.recovery.rebuild import rebuild
from lakebackup.rows.tables import as_row
from lakebackup.sql_engine.delta.table import open_table
from lakebackup.storage import open_storage
from lakebackup.store import tombstones
from lakebackup.store.writer import CatalogWriter

if TYPE_CHECKING:
    from collections.abc import Collection
    from pathlib import Path

    from pyspark.sql import SparkSession

# Those that leave states of their own, in their order.
# Up to which step the long tests kill a prune; it has fewer.
LAST_STEP = 59
STATES = (
    "put prune.json", "commit floors", "commit backups", "commit removals", "put audit", "delete data",
    "put done",
)  # fmt: skip
GOES, STAYS = orders(1, 2, 3, regions=1), orders(4, 5, regions=1)


@pytest.fixture(scope="module")
def made(empty_catalog: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Backups 1 and 2 go whole, being out of sync, and the file of the third by its topic's retention."""
    root = tmp_path_factory.mktemp("killed")
    shutil.copytree(empty_catalog, root / "catalog")
    writer = CatalogWriter(None, str(root))
    for number, base in ((1, 1), (2, 1), (3, 3), (4, 3), (5, 5)):
        put(root, writer, number, base=base, regions=1)
    writer.set_states([backup_id(2), backup_id(1)], "out_of_sync", actor="me", reason="cut back")
    return root


def counted(taken: Collection[str]) -> set[str]:
    """The files that count after so many steps."""
    if "commit removals" in taken:
        return STAYS
    return orders(3, regions=1) | STAYS if "commit backups" in taken else GOES | STAYS


def deleted(root: Path) -> set[str]:
    rows = seen(root, "SELECT backup_id FROM obsolete_backups WHERE status = 'DELETED'")
    return {row["backup_id"] for row in rows}


def check_ended(root: Path) -> None:
    """As if nothing had ever gone wrong."""
    assert data(root) == listed(root) == STAYS
    assert {row["path"] for row in seen(root, "SELECT path FROM removals")} == GOES
    assert len(seen(root, "SELECT * FROM removals")) == len(GOES)
    assert deleted(root) == {backup_id(1), backup_id(2)}
    assert len(seen(root, "SELECT * FROM audit WHERE action = 'prune'")) == 1
    assert len(seen(root, "SELECT * FROM floors")) == 1
    storage = open_storage(str(root))
    assert len(list(tombstones.prune_ids(storage))) == len(list(storage.folders("prunes/"))) == 1
    assert tombstones.incomplete(storage) == []


@pytest.mark.long
def test_killed_again_and_again(session: SparkSession | None, made: Path, tmp_path: Path) -> None:
    """Each run continues the work of the one before and dies before the next step."""
    root = shutil.copytree(made, tmp_path / "killed")
    done: list[str] = []
    for number, step in enumerate(STATES):
        with (
            watched(tmp_path / f"steps {number}", kill_at=step) as steps,
            suppress(Killed, EnvironmentProblem),
        ):
            run(root, session, delete=True)
        assert steps.dead, step
        if step in ("put prune.json", "delete data"):  # the source is still this run's
            assert steps.taken()[-2] == "put lease source", step
        assert listed(root) == counted(done), step
        assert data(root) == (STAYS if "delete data" in done else GOES | STAYS), step
        done.append(step)
        if number == 0:
            with pytest.raises(Busy, match="source-prod is in use"):
                run(root, session, delete=True)
        expire_leases(root)
    again = run(root, session, delete=True)
    assert (again["resumed"], again["files"]) == (1, 0)
    check_ended(root)


@pytest.mark.long
@pytest.mark.parametrize("at", range(1, LAST_STEP + 1))
def test_killed_before_every_step(at: int, made: Path, tmp_path: Path) -> None:
    root = shutil.copytree(made, tmp_path / "killed")
    with watched(tmp_path / "steps", kill_at=at) as steps:
        with suppress(Killed, EnvironmentProblem):
            run(root, delete=True)
        if not steps.dead:  # it has fewer steps than the long tests go through
            assert at > len(steps.taken())
            check_ended(root)
            return
    assert at < LAST_STEP, "there are more steps than this goes through"
    *taken, last = steps.taken()
    assert listed(root) == counted(taken), last
    assert listed(root) <= data(root), last
    if "put lease source" in taken and taken.count("put lease source") < 3:
        with pytest.raises(Busy, match="source-prod is in use"):
            run(root, delete=True)
    expire_leases(root)
    again = run(root, delete=True)
    assert again["resumed"] == ("put prune.json" in taken and "put done" not in taken), last
    assert (again["files"] == len(GOES)) == ("put prune.json" not in taken), last
    check_ended(root)


@pytest.mark.long
@pytest.mark.spark
def test_the_catalog_is_lost_in_the_middle_of_it(spark: SparkSession, made: Path, tmp_path: Path) -> None:
    """The tombstones alone say what was to go; a rebuilt catalog does not count it, and the prune goes on."""
    root = shutil.copytree(made, tmp_path / "lost")
    with watched(tmp_path / "steps", kill_at="commit floors"), suppress(Killed):
        run(root, spark, delete=True)
    assert data(root) == GOES | STAYS
    expire_leases(root)
    shutil.rmtree(root / "catalog")
    assert rebuild(spark, str(root)).problems == []
    assert listed(root) == STAYS
    assert deleted(root) == {backup_id(1), backup_id(2)}
    (name,) = tombstones.prune_ids(open_storage(str(root)))
    prune = tombstones.read_prune(open_storage(str(root)), name)
    for table, rows in (
        ("floors", prune.floors),
        ("removals", tombstones.read_removals(open_storage(str(root)), prune.chunks[0])),
    ):
        found = open_table(f"file://{root}/catalog/{table}").to_pyarrow_table().to_pylist()
        assert found == [as_row(row) for row in rows]
    assert run(root, spark, delete=True)["resumed"] == 1
    check_ended(root)
