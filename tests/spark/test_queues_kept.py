"""Upkeep of an engine's backups: rebuild, verify, prune."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Literal

import pyarrow as pa
import pytest
from deltalake import DeltaTable
from tests.support.catalogs import backup_id
from tests.support.command_line import quiet
from tests.support.looks import rows_of, select_rows
from tests.support.made_queues import MadeQueues

from lakebackup.errors import Busy, Incomplete, Refused
from lakebackup.plan.queues.restore import plan_restore
from lakebackup.plan.upkeep.prune import leaving
from lakebackup.recovery.rebuild import rebuild
from lakebackup.requests import Request
from lakebackup.rows.upkeep import Policy, Restore
from lakebackup.storage import open_storage
from lakebackup.store.reader import CatalogReader
from lakebackup.store.tombstones import Prune, write_prune
from lakebackup.store.writer import CatalogWriter
from lakebackup_jobs.lifecycle.deletion import executor as removing
from lakebackup_jobs.lifecycle.identity import micros
from lakebackup_jobs.lifecycle.restore import Subject, restoring
from lakebackup_jobs.lifecycle.workspace import Workspace
from lakebackup_jobs.queues.restore import trial
from lakebackup_jobs.upkeep import prune, verify
from lakebackup_jobs.upkeep.verify_task import CheckFiles

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark
QUEUE_TABLES = (
    "queue_points", "queue_positions", "queue_transactions", "queue_schemas", "queue_restores",
)  # fmt: skip
OTHER_EPOCH = "fedcba9876543210" * 2
TRIALS = "SELECT backup_id, outcome, detail FROM checks WHERE mode = 'restore' ORDER BY at, backup_id"


def number(nth: int) -> str:
    """The id of the nth backup of the queues."""
    return backup_id(3600 + nth)


@pytest.fixture(scope="module")
def module_root(spark: SparkSession, empty_catalog: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Full 1, incremental 2, differential 3, full 4; 1 is restored into another cluster, then 5 and 6."""
    root = tmp_path_factory.mktemp("engine ü")
    shutil.copytree(empty_catalog, root / "catalog")
    engine = MadeQueues(root, CatalogWriter(spark, str(root)))
    engine.write(5)
    engine.write(7, transaction="t", queue="journal.0")
    engine.write(8, transaction="t", kind="begin", partition=1)
    engine.full(10)
    engine.write(12)
    engine.write(14, transaction="t", kind="commit", partition=1)
    engine.schemas.append({"version": 2, "tid": 13, "change": "age", "schema": {"person": ["age"]}})
    engine.incremental(20)
    engine.write(22, transaction="u")
    engine.differential(30)
    engine.write(35, queue="journal.0")
    engine.full(40, {"a": b"a", "CURRENT": b"other"})
    engine.restored(number(1), 45, epoch=OTHER_EPOCH)
    engine.write(6, ts=46)
    engine.incremental(50)
    engine.write(9, ts=55)
    engine.incremental(60)
    return root


def findings(root: Path, spark: SparkSession, **changes: Any) -> dict[str, tuple[str, str]]:
    """The findings of verify that are not ok: path -> outcome and detail."""
    request = verify.VerifyRequest(destination=str(root), grace_ms=-3_600_000, **changes)
    check_id = verify.run(request, spark=spark, reporter=quiet())["check_id"]
    sql = f"SELECT path, outcome, detail FROM checks WHERE outcome <> 'ok' AND check_id = '{check_id}'"
    return {row["path"]: (row["outcome"], row["detail"] or "") for row in select_rows(root, sql)}


def findings_without_spark(
    root: Path, mode: Literal["stat", "decode"], backup: str
) -> dict[str, tuple[str, str]]:
    """The findings of verify in the files of a backup, without Spark: path -> outcome and detail."""
    reader = CatalogReader(str(root))
    roots = reader.destinations()
    files = reader.rows("files_to_check", backup_ids=",".join(verify._with_snapshots(reader, [backup])))
    work = CheckFiles("c", 1, roots, mode, str(root))
    rows = [row for batch in work([pa.RecordBatch.from_pylist(files)]) for row in batch.to_pylist()]
    return {row["path"]: (row["outcome"], row["detail"]) for row in rows if row["outcome"] != "ok"}


def run_prune(root: Path, spark: SparkSession | None = None, **changes: Any) -> dict[str, Any]:
    request = prune.PruneRequest(destination=str(root), source="social", **changes)
    return prune.run(request, spark=spark, reporter=quiet())


def keep(root: Path, **limits: int) -> None:
    policy = Policy(source="social", at=9, actor="me", **limits)  # type: ignore[arg-type]
    CatalogWriter(None, str(root)).record(policy)


def spans(root: Path, epoch: str, region: str = "0") -> list[tuple[Any, ...]]:
    sql = (
        "SELECT status, reason, from_ts, to_ts FROM coverage "
        f"WHERE scope = 'delta.0' AND epoch = '{epoch}' AND region = '{region}' ORDER BY from_ts"
    )
    return [tuple(row.values()) for row in select_rows(root, sql)]


@pytest.mark.long
def test_verify_finds_changed_missing_and_orphaned_files(spark: SparkSession, root: Path) -> None:
    config = f"social/queues/{number(2)}/config.yaml"
    (root / config).write_bytes(b"threads: 9\n")
    (listing,) = (root / "social/backups" / number(5) / "listing").glob("queue-points-*")
    listing.unlink()
    stranger = f"social/queues/{number(3)}/stranger.yaml"
    (root / stranger).write_bytes(b"x")
    # An interrupted backup left this object, and no file of the engine.
    unfinished = f"social/backups/{backup_id(9999)}/seen/000000.parquet"
    (root / unfinished).parent.mkdir(parents=True)
    (root / unfinished).write_bytes(b"x")
    (snapshot,) = (root / "social.snapshot/snapshots" / backup_id(2)).rglob("CURRENT")
    snapshot.write_bytes(b"OTHER")
    (lost_row,) = select_rows(
        root, f"SELECT path FROM files WHERE backup_id = '{number(5)}' AND role = 'data' AND region = '0'"
    )
    (root / lost_row["path"]).unlink()
    outcomes = findings(root, spark, mode="decode")
    assert {path: outcome for path, (outcome, _) in outcomes.items()} == {
        config: "changed",
        str(listing.relative_to(root)): "missing",
        stranger: "orphan",
        unfinished: "orphan",
        str(snapshot.relative_to(root)): "changed",
        lost_row["path"]: "missing",
    }
    unusable = select_rows(
        root,
        "SELECT backup_id, reason, fault_backup_id FROM unusable_backups WHERE source = 'social' "
        "ORDER BY backup_id",
    )
    assert [tuple(row.values()) for row in unusable] == [
        (number(2), "changed", number(2)),
        (number(4), "changed", backup_id(2)),
        (number(5), "missing", number(5)),
        (number(6), "missing", number(5)),
    ]
    # The differential contains what the incremental contains: no time is lost. A full needs its snapshot.
    assert spans(root, "0123456789abcdef" * 2) == [
        ("restorable", None, 9, 30),
        ("gap", "changed", 39, 40),
    ]
    assert spans(root, OTHER_EPOCH, "1") == [("gap", "missing", 45, 60)]
    newest = select_rows(root, "SELECT restorable_ts, covered_ts FROM rpo WHERE source = 'social'")
    assert {tuple(row.values()) for row in newest} == {(None, 60)}


def test_verify_of_a_full_checks_its_snapshot(root: Path) -> None:
    (file,) = (root / "social.snapshot/snapshots" / backup_id(1)).rglob("CURRENT")
    file.unlink()
    outcomes = findings_without_spark(root, "stat", number(1))
    assert {path: outcome for path, (outcome, _) in outcomes.items()} == {
        str(file.relative_to(root)): "missing"
    }


def test_messages_with_other_tids_than_in_their_row_are_damaged(root: Path) -> None:
    """A restore to a tid selects files by the tids in their rows."""
    assert findings_without_spark(root, "decode", number(6)) == {}
    predicate = f"backup_id = '{number(6)}' AND role = 'data'"
    DeltaTable(root / "catalog/files").update(updates={"max_tid": "max_tid + 1"}, predicate=predicate)
    (finding,) = findings_without_spark(root, "decode", number(6)).values()
    assert finding == ("damaged", "least and greatest tid are [9, 9], the manifest says [9, 10]")


@pytest.mark.long
def test_verify_restores_an_engine_on_trial(spark: SparkSession, root: Path) -> None:
    assert findings(root, spark, mode="restore", backup_ids=(number(3), number(6))) == {}
    assert [tuple(row.values()) for row in select_rows(root, TRIALS)] == [
        (number(3), "ok", "2 files of its snapshot and 5 messages restored"),
        (number(6), "ok", "2 files of its snapshot and 2 messages restored"),
    ]
    # The trials are recorded as restores, so that no prune deletes files that they read.
    query = "SELECT state, entries FROM restores WHERE source = 'social' ORDER BY at"
    assert [tuple(row.values()) for row in select_rows(root, query)] == [("complete", 5), ("complete", 2)]


@pytest.mark.long
def test_a_trial_stopped_by_a_changed_file_adds_no_check(spark: SparkSession, root: Path) -> None:
    (schema,) = (root / "social/queues" / number(3)).glob("delta_schema_history.yaml")
    schema.write_bytes(schema.read_bytes().replace(b"version: 1", b"version: 3"))
    outcomes = findings(root, spark, mode="restore", backup_ids=(number(3),))
    assert {outcome for outcome, _ in outcomes.values()} == {"changed"}
    assert select_rows(root, TRIALS) == []


def test_a_trial_during_a_prune_finds_no_damage(
    spark: SparkSession, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def plan_then_delete(*arguments: Any) -> Any:
        plan = plan_restore(*arguments)
        CatalogWriter(spark, str(root)).set_states([number(2)], "deleted", actor="me", reason="test")
        return plan

    monkeypatch.setattr(trial, "plan_restore", plan_then_delete)
    assert findings(root, spark, mode="restore", backup_ids=(number(3),)) == {}
    assert select_rows(root, "SELECT outcome FROM checks WHERE mode = 'restore'") == []


@pytest.mark.long
def test_a_prune_deletes_chains(spark: SparkSession, root: Path) -> None:
    # The queues' topics keep records for a millisecond, but that is no rule for backups.
    assert run_prune(root)["files"] == 0
    keep(root, redundancy=1)
    paths_before = {str(path.relative_to(root)) for path in root.glob("social/**/*") if path.is_file()}
    dry_run = run_prune(root)
    # The newest chain begins with 1; the newest full is 4.
    assert [(row["backup_id"], row["reason"]) for row in dry_run["backups"]] == [
        (number(3), "redundancy"), (number(2), "redundancy"),
    ]  # fmt: skip
    assert (dry_run["released"], dry_run["of_backups"]) == ([], 2)
    result = run_prune(root, spark, delete=True)
    assert (result["files"], result["bytes"]) == (dry_run["files"], dry_run["bytes"])
    deleted = paths_before - {
        str(path.relative_to(root)) for path in root.glob("social/**/*") if path.is_file()
    }
    engine_files = {path for path in deleted if "/queues/" in path}
    assert engine_files == {
        f"social/queues/{number(nth)}/{name}"
        for nth in (2, 3)
        for name in ("config.yaml", "delta_schema_history.yaml")
    }
    # The prune also deletes messages and key filters; the backups' own lists stay.
    assert {path.split("/")[2] for path in deleted - engine_files} == {"topics"}
    assert len(deleted) == result["files"]
    assert spans(root, "0123456789abcdef" * 2) == [
        ("restorable", None, 9, 10), ("restorable", None, 39, 40),
    ]  # fmt: skip
    assert spans(root, OTHER_EPOCH) == [("restorable", None, 45, 60)]
    rows_before = {
        table: rows_of(root, table) for table in (*QUEUE_TABLES, "backups", "files", "removals", "holds")
    }
    shutil.rmtree(root / "catalog")
    assert rebuild(spark, str(root)).problems == []
    assert {table: rows_of(root, table) for table in rows_before} == rows_before


@pytest.mark.long
def test_a_resumed_prune_releases_the_snapshot(
    spark: SparkSession, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for backup in (number(5), number(6)):
        CatalogWriter(spark, str(root)).set_states([backup], "deleted", actor="me", reason="test")
    keep(root, redundancy=1)

    assert run_prune(root)["released"] == [backup_id(1)]

    def interrupt(*_: object) -> None:
        raise Incomplete("cut off")

    with monkeypatch.context() as patch:
        patch.setattr(removing.Deletion, "_release", interrupt)
        with pytest.raises(Incomplete):
            run_prune(root, spark, delete=True)
    assert len(select_rows(root, "SELECT backup_id FROM holds")) == 2
    assert run_prune(root, spark, delete=True)["resumed"] == 1
    assert [row["backup_id"] for row in select_rows(root, "SELECT backup_id FROM holds")] == [backup_id(2)]


def test_an_interrupted_prune_waits_for_a_restore(root: Path) -> None:
    reader, storage = CatalogReader(str(root)), open_storage(str(root))
    work = Workspace(Request(str(root)), "", quiet())
    unfinished_prune = Prune(
        prune_id=backup_id(8888), at=1, actor="me", source="social", asked="{}", floors=(), chunks=(),
        backups=((number(2), "redundancy"),),
    )  # fmt: skip
    write_prune(storage, unfinished_prune)
    # The states say that everything exists, but a plan with 2 would read deleted files.
    subject = Subject("social", "kafka://b", "")
    with (
        pytest.raises(Refused, match=f"while it deleted backup {number(2)}"),
        restoring(work, reader) as restore,
    ):
        restore.begin(subject, number(1), number(2))
    with restoring(work, reader) as restore:
        restore.begin(subject, number(1), number(5))
        restore.complete()
    row = Restore(
        restore_id=backup_id(9999), at=micros(datetime.now(UTC)), source="social", state="failed",
        target="kafka://b", selection="", detail=json.dumps({"digest": "d"}),
    )  # fmt: skip
    writer, folder = CatalogWriter(None, str(root)), f"restores/{row.restore_id}/"
    writer.append([row])
    split = {"scope": "delta.0", "epoch": OTHER_EPOCH, "region": "0", "target": "delta.0"}
    storage.put(f"{folder}plan/000000.jsonl", json.dumps(split).encode() + b"\n")
    storage.put(f"{folder}plan/tasks.json", json.dumps([[f"{folder}plan/000000.jsonl"]]).encode())

    def held_partitions() -> frozenset[tuple[str, str, str]]:
        partitions = prune._partitions_in_use(work)
        return frozenset((partition.scope, partition.epoch, partition.region) for partition in partitions)

    holds_before = select_rows(root, "SELECT * FROM holds ORDER BY backup_id")
    unused: Any = None
    work = Workspace(prune.PruneRequest(str(root)), "social", quiet())
    job = removing.Deletion(work, "prune", unused, held_partitions)
    with pytest.raises(Busy, match="deletes backups that it may read"):
        job.resume()
    assert select_rows(root, "SELECT backup_id FROM backups WHERE state = 'deleted'") == []
    assert select_rows(root, "SELECT * FROM holds ORDER BY backup_id") == holds_before
    writer.append([replace(row, state="complete", at=row.at + 1)])
    assert held_partitions() == frozenset()


def test_the_proof_stops_a_prune_of_needed_files(
    spark: SparkSession, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The list is wrong: it has the files of the parent of a backup that stays."""
    keep(root, redundancy=1)
    monkeypatch.setattr(removing, "is_large", lambda _: True)
    map_rows = CatalogReader.map

    def write_needed_files(reader: Any, job: Any, columns: str, name: str, **parameters: Any) -> Any:
        if name == "prune_removals":
            reader = reader.with_rows("leaving", leaving([(number(5), "wrong")]))
        return map_rows(reader, job, columns, name, **parameters)

    monkeypatch.setattr(CatalogReader, "map", write_needed_files)
    with pytest.raises(Refused, match="backup number 5 of social has 3 files in objects that would be gone"):
        run_prune(root, spark, delete=True)
    assert select_rows(root, "SELECT path FROM removals") == []
    assert not list((root / "prunes").glob("*/prune.json"))
