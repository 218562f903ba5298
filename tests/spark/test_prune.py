"""Prunes of catalogs made by hand: which files are deleted, which stay, and what a rebuild makes of them."""

from __future__ import annotations

import json
import shutil
import time
from typing import TYPE_CHECKING, Any

import pytest
from tests.support.catalogs import EPOCH, backup_id
from tests.support.command_line import quiet
from tests.support.pruning import data, listed, orders, run, select_rows, write_backup

from lakebackup.errors import Busy, Damaged, Incomplete, Refused
from lakebackup.plan.upkeep import prune as plans
from lakebackup.recovery.rebuild import rebuild
from lakebackup.rows.upkeep import Restore
from lakebackup.storage import open_storage
from lakebackup.store import tombstones
from lakebackup.store.lease import Lease
from lakebackup.store.reader import CatalogReader
from lakebackup.store.writer import CatalogWriter
from lakebackup_jobs.upkeep import prune, verify

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession


BACKUPS = 6


@pytest.fixture(scope="module")
def module_root(empty_catalog: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("prune ü")
    shutil.copytree(empty_catalog, root / "catalog")
    writer = CatalogWriter(None, str(root))
    write_backup(root, writer, 1, topics=("orders", "payments"))
    for number in range(2, BACKUPS + 1):
        write_backup(root, writer, number)
    write_backup(root, writer, 7, base=7, source="other")
    return root


@pytest.fixture(scope="module")
def pruned_once(module_root: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Any]]:
    """The destination after a prune, and the prune's result."""
    root = shutil.copytree(module_root, tmp_path_factory.mktemp("ended") / module_root.name)
    return root, run(root, delete=True)


@pytest.fixture
def pruned(pruned_once: tuple[Path, dict[str, Any]], tmp_path: Path) -> Path:
    return shutil.copytree(pruned_once[0], tmp_path / pruned_once[0].name)


def test_a_dry_run_deletes_nothing_and_needs_no_session(root: Path) -> None:
    paths_before = data(root)
    result = run(root)
    # The newest backup ends at 6999, so files older than 4999 may be deleted: those of backups 1 to 4.
    assert (result["deleted"], result["files"], result["bytes"], result["of_files"]) == (False, 8, 800, 12)
    assert result["topics"][0] | {"epoch": ""} == {
        "topic": "orders", "epoch": "", "older_than": "1970-01-01T00:00:04.999Z", "keep_bytes": None,
        "files": 8, "bytes": 800, "by_time": 8, "by_size": 0, "by_generation": 0,
    }  # fmt: skip
    assert [p["floor"] for p in result["partitions"]] == [40, 40]
    assert [topic["topic"] for topic in result["left_alone"]] == ["payments"]
    assert data(root) == paths_before
    assert not (root / "prunes").exists()


def test_pruned_files_are_deleted_recorded_and_counted(
    module_root: Path, pruned_once: tuple[Path, dict[str, Any]], session: SparkSession | None
) -> None:
    paths_before, dry_run = data(module_root), run(module_root)
    root, result = pruned_once
    assert {name: result[name] for name in dry_run if name != "deleted"} == {
        name: dry_run[name] for name in dry_run if name != "deleted"
    }
    assert paths_before - data(root) == orders(1, 2, 3, 4)
    assert paths_before - listed(root) == orders(1, 2, 3, 4)
    removals = select_rows(root, "SELECT * FROM removals")
    assert {row["path"] for row in removals} == orders(1, 2, 3, 4)
    assert {(row["prune_id"], row["reason"], row["bytes"]) for row in removals} == {
        (result["prune_id"], "time", 100)
    }
    assert select_rows(root, "SELECT region, low_position FROM floors ORDER BY region") == [
        {"region": "0", "low_position": 40}, {"region": "1", "low_position": 40},
    ]  # fmt: skip
    (entry,) = select_rows(root, "SELECT action, subject, detail FROM audit")
    assert (entry["action"], entry["subject"]) == ("prune", result["prune_id"])
    assert json.loads(entry["detail"]) == {
        "source": "prod", "files": 8, "bytes": 800, "partitions": 2, "topics": [], "patterns": [],
        "keep_ms": None, "keep_bytes": None, "days": None, "future": False, "backups": 0,
    }  # fmt: skip
    second_result = run(root, session, delete=True)
    assert (second_result["prune_id"], second_result["files"], second_result["resumed"]) == (None, 0, 0)
    reader = CatalogReader.require(str(root))
    # Numbers of deleted files are not used again.
    next_numbers = {
        (r["scope"], r["next_sequence"])
        for r in reader.rows("next_sequence", source="prod", since=0, scopes=None)
    }
    assert next_numbers == {("orders", 6), ("payments", 1)}


def test_a_small_catalog_uses_no_session(root: Path) -> None:
    unused: Any = object()
    assert run(root, unused, delete=True)["files"] == 8
    assert data(root) & orders(1, 2, 3, 4) == set()


def test_the_proof_stops_a_prune_of_needed_files(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    paths_before = data(root)
    map_rows = CatalogReader.map

    def write_needed_files(
        reader: CatalogReader, job: Any, columns: str, name: str, **parameters: Any
    ) -> Any:
        if name == "prune_removals":
            cuts = [plans.Cut("prod", "orders", EPOCH, region, 50, 50, 0) for region in "01"]
            reader = reader.with_rows("cuts", plans.relation(plans.Cut, cuts))
        return map_rows(reader, job, columns, name, **parameters)

    monkeypatch.setattr(CatalogReader, "map", write_needed_files)
    with pytest.raises(Refused, match="partition 0, backup number 5: needs 1 files, would have 0"):
        run(root, delete=True)
    assert data(root) == paths_before
    assert listed(root) == paths_before
    assert not list(open_storage(str(root)).list("prunes/"))


@pytest.mark.spark
def test_a_damaged_tombstone_is_named(pruned: Path, empty_catalog: Path, spark: SparkSession) -> None:
    (chunk,) = (pruned / "prunes").glob("*/removals-*")
    chunk.write_text(chunk.read_text().replace('"bytes":100', '"bytes":101', 1))
    storage = open_storage(str(pruned))
    with pytest.raises(Damaged, match="its SHA-256 differs"):
        tombstones.read_removals(storage, tombstones.read_prune(storage, chunk.parent.name).chunks[0])
    shutil.rmtree(pruned / "catalog")
    shutil.copytree(empty_catalog, pruned / "catalog")
    (problem,) = rebuild(spark, str(pruned)).problems
    assert chunk.name in problem
    assert select_rows(pruned, "SELECT * FROM floors") == []


def check(root: Path) -> dict[str, set[str]]:
    """The paths of verify's findings, by outcome."""
    request = verify.VerifyRequest(destination=str(root), mode="stat", grace_ms=-3_600_000)
    result = verify.run(request, reporter=quiet())
    paths_by_outcome: dict[str, set[str]] = {}
    for row in result["findings"]:
        paths_by_outcome.setdefault(row["outcome"], set()).add(row["path"])
    return paths_by_outcome


def test_verify_accepts_pruned_files(pruned: Path) -> None:
    remaining = min(orders(1))
    (pruned / remaining).write_bytes(b"x")
    (marker,) = (pruned / "prunes").glob("*/done")
    marker.unlink()
    assert check(pruned) == {}
    result = run(pruned, delete=True)
    assert (result["resumed"], result["prune_id"]) == (1, None)
    assert not (pruned / remaining).exists()
    assert len(select_rows(pruned, "SELECT * FROM removals")) == 8
    assert len(select_rows(pruned, "SELECT * FROM audit")) == 1


def record_restore(root: Path, name: str, state: Any, *, planned: bool = True) -> None:
    """Record a restore of partition 1, with or without its plan."""
    row = Restore(
        restore_id=name, at=time.time_ns() // 1000, source="prod", state=state, target="dir:x", selection="",
        detail=json.dumps({"digest": "d1"}),
    )  # fmt: skip
    CatalogWriter(None, str(root)).append([row])
    if planned:
        file_row = {
            "scope": "orders", "epoch": EPOCH, "region": "1", "start_position": 0, "end_position": 10,
            "destination": "d", "path": "p", "format": "f", "codec": "c", "bytes": 1, "sha256": "",
            "entries": 1,
        }  # fmt: skip
        storage, split = open_storage(str(root)), f"restores/{name}/plan/000000.jsonl"
        storage.put(split, f"{json.dumps(file_row)}\n".encode())
        storage.put(f"restores/{name}/plan/tasks.json", json.dumps([[split]]).encode())


@pytest.mark.long
def test_files_of_an_unfinished_restore_stay(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    name = backup_id(99)
    record_restore(root, name, "running", planned=False)
    assert len(run(root)["partitions"]) == 2  # it died before it wrote a plan, so it will plan again
    busy = pytest.raises(Busy, match=f"{name} is just beginning")
    with Lease.acquire(open_storage(str(root)), "restore-d1", "me"), busy:
        run(root)
    record_restore(root, name, "running")
    result = run(root, delete=True)
    assert [(h["region"], h["restore_id"]) for h in result["held"]] == [("1", name)]
    assert [p["partition"] for p in result["partitions"]] == ["0"]
    assert all("partition=0" in path for path in orders(1, 2, 3, 4) - data(root))
    with monkeypatch.context() as patched:
        patched.setattr(prune, "HOLD_MS", -1_000_000)
        assert [p["partition"] for p in run(root)["partitions"]] == ["1"]
    record_restore(root, name, "complete")
    assert [p["partition"] for p in run(root)["partitions"]] == ["1"]


@pytest.mark.long
def test_a_restore_recorded_during_a_prune_keeps_its_files(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It planned before the floors were recorded: its files are not listed any more, but stay until it
    ends."""
    write, name = tombstones.write_prune, backup_id(98)

    def write_and_record_restore(storage: Any, prune_row: Any) -> None:
        write(storage, prune_row)
        record_restore(root, name, "running")

    monkeypatch.setattr(tombstones, "write_prune", write_and_record_restore)
    with pytest.raises(Incomplete, match="4 files are read by a restore"):
        run(root, delete=True)
    assert listed(root) & orders(1, 2, 3, 4) == set()
    assert {path for path in orders(1, 2, 3, 4) if "partition=1" in path} <= data(root)
    record_restore(root, name, "complete")
    assert run(root, delete=True)["resumed"] == 1
    assert data(root) & orders(1, 2, 3, 4) == set()
