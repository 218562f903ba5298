"""Prunes of complete backups by policy: which go, in which order, what remains, and what stops a prune."""

from __future__ import annotations

import json
import shutil
import time
from typing import TYPE_CHECKING, Any

import pytest
from tests.support.catalogs import backup_id
from tests.support.command_line import quiet
from tests.support.disks import pinned
from tests.support.looks import rows_of
from tests.support.pruning import data, listed, orders, run, select_rows, write_backup

from lakebackup.errors import Incomplete, Refused
from lakebackup.plan.upkeep.prune import Leaving
from lakebackup.recovery.rebuild import rebuild
from lakebackup.rows.upkeep import Hold, Policy
from lakebackup.storage import open_storage
from lakebackup.store import tombstones
from lakebackup.store import writer as writer_of_catalog
from lakebackup.store.writer import CatalogWriter
from lakebackup_jobs.upkeep import optimize as catalog_optimize
from lakebackup_jobs.upkeep import prune
from lakebackup_jobs.upkeep.optimize import OptimizeRequest

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

TABLES = ("backups", "files", "positions", "scopes", "removals", "floors", "audit", "policies", "holds")


@pytest.fixture(scope="module")
def module_root(empty_catalog: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Fulls 1, 4 and 6, with 2 and 3 on the first and 5 on the second.

    The policy keeps two fulls; it kept three at first.
    """
    root = tmp_path_factory.mktemp("retention ü")
    shutil.copytree(empty_catalog, root / "catalog")
    writer = CatalogWriter(None, str(root))
    for number, base in ((1, 1), (2, 1), (3, 1), (4, 4), (5, 4), (6, 6)):
        write_backup(root, writer, number, base=base, regions=1, keys=True, settings="{}")
    writer.record(Policy(source="prod", at=1, actor="me", redundancy=3))
    writer.record(Policy(source="prod", at=2, actor="me", redundancy=2, note="ü"))
    return root


def states(root: Path) -> dict[int, str]:
    return {
        row["number"]: row["status"]
        for row in select_rows(root, "SELECT number, status FROM obsolete_backups")
    }


def test_a_prune_without_delete_names_the_backups_and_deletes_nothing(root: Path) -> None:
    paths_before = data(root)
    report = run(root)
    assert [(b["backup_id"], b["reason"], b["files"], b["bytes"]) for b in report["backups"]] == [
        (backup_id(number), "redundancy", 1, 100) for number in (3, 2, 1)
    ]
    assert (report["deleted"], report["files"], report["bytes"], report["of_backups"]) == (False, 3, 300, 3)
    assert data(root) == paths_before
    # Days in place of the policy: all backups are far older, and the newest full and point stay.
    assert [b["backup_id"] for b in run(root, days=7)["backups"]] == [backup_id(n) for n in (5, 4, 3, 2, 1)]
    assert run(root, days=40_000)["backups"] == []
    # A prune of named topics deletes no backup.
    assert run(root, topics=("orders",))["backups"] == []


def test_days_in_place_of_the_window_leave_the_other_rules(root: Path) -> None:
    CatalogWriter(None, str(root)).record(
        Policy(source="prod", at=3, actor="me", window_days=1, redundancy=3, keep_last=2)
    )
    assert [b["backup_id"] for b in run(root, days=7)["backups"]] == [backup_id(n) for n in (3, 2, 1)]


def test_deleted_backups_are_on_record(root: Path, session: SparkSession | None) -> None:
    paths_before = data(root)
    report = run(root, session, delete=True)
    assert (report["files"], report["bytes"]) == (3, 300)
    assert paths_before - data(root) == orders(1, 2, 3, regions=1)
    assert listed(root) == data(root)
    assert states(root) == {1: "DELETED", 2: "DELETED", 3: "DELETED", 4: "VALID", 5: "VALID", 6: "VALID"}
    assert {
        (row["path"], row["reason"]) for row in select_rows(root, "SELECT path, reason FROM removals")
    } == {(path, "redundancy") for path in orders(1, 2, 3, regions=1)}
    entries = select_rows(
        root, "SELECT subject, detail FROM audit WHERE action = 'set_state' ORDER BY at, subject DESC"
    )
    assert [entry["subject"] for entry in entries] == [backup_id(number) for number in (3, 2, 1)]
    assert json.loads(entries[0]["detail"]) == {
        "state": "deleted", "reason": f"prune {report['prune_id']}: redundancy",
    }  # fmt: skip
    # Each has its own line in the destination too; manifests and parts stay, key filters do not.
    logged = [json.loads(line) for log in (root / "audit").iterdir() for line in log.read_text().splitlines()]
    assert {line["subject"] for line in logged if line["action"] == "set_state"} == {
        backup_id(number) for number in (1, 2, 3)
    }
    assert {path.parts[-3] for path in root.rglob("*.keys")} == {backup_id(number) for number in (4, 5, 6)}
    assert run(root, session, delete=True)["prune_id"] is None


ANSWERS = (
    "files",
    "coverage",
    "restore_points",
    "storage_by_source",
    "growth",
    "orphans",
    "obsolete_backups",
    "unusable_backups",
)


@pytest.mark.long
@pytest.mark.spark
def test_a_month_later_one_row_stands_for_the_files_of_a_deleted_backup(
    root: Path, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All answers stay as before, also those of a rebuilt catalog and after an interruption."""
    write_backup(root, CatalogWriter(None, str(root)), 7, base=7, regions=2, settings="{}")
    write_backup(root, CatalogWriter(None, str(root)), 8, base=8, regions=1, settings="{}")
    write_backup(root, CatalogWriter(None, str(root)), 9, base=9, regions=1, settings="{}")
    run(root, delete=True)

    def answers() -> dict[str, list[dict[str, Any]]]:
        return {view: select_rows(root, f"SELECT * FROM {view} ORDER BY ALL") for view in ANSWERS}

    def optimize() -> None:
        catalog_optimize.run(OptimizeRequest(str(root)), reporter=quiet())

    monkeypatch.setattr(catalog_optimize, "TABLES", ("removals",))
    answers_before, removals = answers(), rows_of(root, "removals")
    optimize()
    assert rows_of(root, "removals") == removals
    monkeypatch.setattr(writer_of_catalog, "_REMOVALS_US", -3_600_000_000)
    with monkeypatch.context() as patched:
        patched.setattr(writer_of_catalog, "replace_rows", interrupted)
        with pytest.raises(KeyboardInterrupt):
            optimize()
    assert (rows_of(root, "removals"), answers()) == (removals, answers_before)
    optimize()
    removal_rows = select_rows(root, "SELECT backup_id, path, files, bytes FROM removals ORDER BY backup_id")
    counts = {**dict.fromkeys(range(1, 7), 1), 7: 2}
    assert [tuple(row.values()) for row in removal_rows] == [
        (backup_id(number), "-", count, 100 * count) for number, count in counts.items()
    ]
    assert answers() == answers_before
    folded = rows_of(root, "removals")
    optimize()
    assert rows_of(root, "removals") == folded
    shutil.rmtree(root / "catalog")
    assert rebuild(spark, str(root)).problems == []
    assert (rows_of(root, "removals"), answers()) == (folded, answers_before)


def interrupted(*_: object) -> bool:
    raise KeyboardInterrupt


def test_a_held_backup_stays_with_the_backups_that_it_needs(root: Path) -> None:
    writer = CatalogWriter(None, str(root))
    writer.record(Hold(backup_id=backup_id(2), source="prod", at=5, actor="me", reason="law"))
    assert states(root) == {1: "VALID", 2: "KEEP", 3: "VALID", 4: "VALID", 5: "VALID", 6: "VALID"}
    assert run(root, delete=True)["prune_id"] is None
    writer.record(Hold(backup_id=backup_id(2), source="prod", at=6, actor="me", reason="done", released=True))
    assert len(run(root)["backups"]) == 3


def test_the_proof_stops_a_prune_of_needed_backups(
    root: Path, session: SparkSession | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows_before = {table: rows_of(root, table) for table in TABLES}
    wrong_plan = (Leaving(backup_id(4), "full", 0, 0, "window", None),)
    monkeypatch.setattr(prune, "choose_backups", lambda *_: (wrong_plan, ()))
    with pytest.raises(Refused, match=f"backup {backup_id(5)} needs backup {backup_id(4)}, which would go"):
        run(root, session, delete=True)
    assert {table: rows_of(root, table) for table in TABLES} == rows_before
    assert not list(open_storage(str(root)).list("prunes/"))


@pytest.mark.long
def test_an_object_that_cannot_be_deleted_is_reported_and_tried_again(root: Path) -> None:
    """All other objects are deleted."""
    (locked,) = (root / path for path in orders(2, regions=1))
    incomplete = pytest.raises(Incomplete, match=r"1 files could not be deleted.*The first: .*data")
    with pinned(locked), incomplete:
        run(root, delete=True)
    assert data(root) == orders(2, 4, 5, 6, regions=1)
    assert tombstones.incomplete(open_storage(str(root)))
    failed = "SELECT failed_run, failed_runs FROM status"
    assert select_rows(root, failed) == [{"failed_run": "prune", "failed_runs": 1}]
    assert run(root, delete=True)["resumed"] == 1
    assert select_rows(root, failed) == [{"failed_run": None, "failed_runs": 0}]
    assert data(root) == orders(4, 5, 6, regions=1)
    assert tombstones.incomplete(open_storage(str(root))) == []


def test_clocks_that_disagree_stop_a_prune(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    paths_before = data(root)
    clock = time.time_ns
    with monkeypatch.context() as patched:
        patched.setattr(time, "time_ns", lambda: -60_000_000_000)
        with pytest.raises(Refused, match=r"The storage's clock says .* this machine's 1969-12-31"):
            run(root, delete=True)
        patched.setattr(time, "time_ns", lambda: clock() + 3_600_000_000_000)
        with pytest.raises(Refused, match="The storage's clock says"):
            run(root, delete=True)
    assert data(root) == paths_before
