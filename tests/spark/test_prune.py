"""Prunes over catalogs with rows made by hand: what goes, what stays, what a rebuild makes of it."""

from __future__ import annotations

import json
import shutil
import time
from typing import TYPE_CHECKING, Any

import pytest
from tests.support.catalogs import EPOCH, backup_id
from tests.support.command_line import quiet
from tests.support.pruning import data, listed, orders, put, run, seen

from lakebackup.errors import Busy, Damaged, Incomplete, Refused
from lakebackup.plan.topics.request import RestoreRequest
from lakebackup.plan.upkeep import prune as plans
from lakebackup.recovery.rebuild import rebuild
from lakebackup.rows.upkeep import Restore
from lakebackup.storage import open_storage
from lakebackup.store import tombstones
from lakebackup.store.lease import Lease
from lakebackup.store.reader import CatalogReader
from lakebackup.store.writer import CatalogWriter
from lakebackup_jobs.lifecycle.deletion import lock as restoring
from lakebackup_jobs.lifecycle.deletion.executor import Deletion, Removals
from lakebackup_jobs.topics import restore as restore_topics
from lakebackup_jobs.upkeep import prune, verify

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession


BACKUPS = 6


@pytest.fixture(scope="module")
def made(empty_catalog: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("prune ü")
    shutil.copytree(empty_catalog, root / "catalog")
    writer = CatalogWriter(None, str(root))
    put(root, writer, 1, topics=("orders", "payments"))
    for number in range(2, BACKUPS + 1):
        put(root, writer, number)
    put(root, writer, 7, base=7, source="other")
    return root


@pytest.fixture(scope="module")
def ended(made: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Any]]:
    """The same after a prune, and what that told."""
    root = shutil.copytree(made, tmp_path_factory.mktemp("ended") / made.name)
    return root, run(root, delete=True)


@pytest.fixture
def pruned(ended: tuple[Path, dict[str, Any]], tmp_path: Path) -> Path:
    return shutil.copytree(ended[0], tmp_path / ended[0].name)


def test_a_look_deletes_nothing_and_needs_no_session(root: Path) -> None:
    before = data(root)
    found = run(root)
    # The newest backup ends at 6999, so what is older than 4999 may go: the files of backups 1 to 4.
    assert (found["deleted"], found["files"], found["bytes"], found["of_files"]) == (False, 8, 800, 12)
    assert found["topics"][0] | {"epoch": ""} == {
        "topic": "orders", "epoch": "", "older_than": "1970-01-01T00:00:04.999Z", "keep_bytes": None,
        "files": 8, "bytes": 800, "by_time": 8, "by_size": 0, "by_generation": 0,
    }  # fmt: skip
    assert [p["floor"] for p in found["partitions"]] == [40, 40]
    assert [alone["topic"] for alone in found["left_alone"]] == ["payments"]
    assert data(root) == before
    assert not (root / "prunes").exists()


def test_what_goes_is_gone_on_record_and_counted(
    made: Path, ended: tuple[Path, dict[str, Any]], session: SparkSession | None
) -> None:
    before, look = data(made), run(made)
    root, done = ended
    assert {name: done[name] for name in look if name != "deleted"} == {
        name: look[name] for name in look if name != "deleted"
    }
    assert before - data(root) == orders(1, 2, 3, 4)
    assert before - listed(root) == orders(1, 2, 3, 4)
    removals = seen(root, "SELECT * FROM removals")
    assert {row["path"] for row in removals} == orders(1, 2, 3, 4)
    assert {(row["prune_id"], row["reason"], row["bytes"]) for row in removals} == {
        (done["prune_id"], "time", 100)
    }
    assert seen(root, "SELECT region, low_position FROM floors ORDER BY region") == [
        {"region": "0", "low_position": 40}, {"region": "1", "low_position": 40},
    ]  # fmt: skip
    (entry,) = seen(root, "SELECT action, subject, detail FROM audit")
    assert (entry["action"], entry["subject"]) == ("prune", done["prune_id"])
    assert json.loads(entry["detail"]) == {
        "source": "prod", "files": 8, "bytes": 800, "partitions": 2, "topics": [], "patterns": [],
        "keep_ms": None, "keep_bytes": None, "days": None, "future": False, "backups": 0,
    }  # fmt: skip
    again = run(root, session, delete=True)
    assert (again["prune_id"], again["files"], again["resumed"]) == (None, 0, 0)
    reader = CatalogReader.require(str(root))
    # Numbers of files that are gone are not given again.
    following = {
        (r["scope"], r["next_sequence"])
        for r in reader.rows("next_sequence", source="prod", since=0, scopes=None)
    }
    assert following == {("orders", 6), ("payments", 1)}


def test_a_small_catalog_needs_no_session_that_is_there(root: Path) -> None:
    unused: Any = object()
    assert run(root, unused, delete=True)["files"] == 8
    assert data(root) & orders(1, 2, 3, 4) == set()


def test_the_proof_stops_a_prune_that_would_take_too_much(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = data(root)
    write = Deletion._write_removals

    def too_much(deletion: Deletion, prune_id: str, removals: Removals) -> Any:
        def cut_at(low: int) -> None:
            cuts = [plans.Cut("prod", "orders", EPOCH, region, low, low, 0) for region in "01"]
            removals.reader.give("cuts", plans.relation(plans.Cut, cuts))

        cut_at(50)
        chunks = write(deletion, prune_id, removals)
        cut_at(40)
        return chunks

    monkeypatch.setattr(Deletion, "_write_removals", too_much)
    with pytest.raises(Refused, match="partition 0, backup number 5: needs 1 files, would have 0"):
        run(root, delete=True)
    assert data(root) == before
    assert listed(root) == before
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
    assert seen(pruned, "SELECT * FROM floors") == []


def check(root: Path) -> dict[str, set[str]]:
    """What verify says is wrong, by outcome."""
    request = verify.VerifyRequest(destination=str(root), mode="stat", grace_ms=-3_600_000)
    found = verify.run(request, reporter=quiet())
    wrong: dict[str, set[str]] = {}
    for row in found["findings"]:
        wrong.setdefault(row["outcome"], set()).add(row["path"])
    return wrong


def test_verify_knows_what_is_meant_to_be_gone(pruned: Path) -> None:
    back = min(orders(1))
    (pruned / back).write_bytes(b"x")
    (done,) = (pruned / "prunes").glob("*/done")
    done.unlink()
    assert check(pruned) == {}
    again = run(pruned, delete=True)
    assert (again["resumed"], again["prune_id"]) == (1, None)
    assert not (pruned / back).exists()
    assert len(seen(pruned, "SELECT * FROM removals")) == 8
    assert len(seen(pruned, "SELECT * FROM audit")) == 1


def at_work(root: Path, name: str, state: Any, *, planned: bool = True) -> None:
    """A restore of partition 1 is on record, with or without its plan."""
    row = Restore(
        restore_id=name, at=time.time_ns() // 1000, source="prod", state=state, target="dir:x", selection="",
        detail=json.dumps({"digest": "d1"}),
    )  # fmt: skip
    CatalogWriter(None, str(root)).append([row])
    if planned:
        first = {
            "scope": "orders", "epoch": EPOCH, "region": "1", "start_position": 0, "end_position": 10,
            "destination": "d", "path": "p", "format": "f", "codec": "c", "bytes": 1, "sha256": "",
            "entries": 1,
        }  # fmt: skip
        storage, share = open_storage(str(root)), f"restores/{name}/plan/000000.jsonl"
        storage.put(share, f"{json.dumps(first)}\n".encode())
        storage.put(f"restores/{name}/plan/tasks.json", json.dumps([[share]]).encode())


@pytest.mark.long
def test_what_an_unfinished_restore_reads_stays(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    name = backup_id(99)
    at_work(root, name, "running", planned=False)
    assert len(run(root)["partitions"]) == 2  # it had put no plan down when it died: it will plan anew
    busy = pytest.raises(Busy, match=f"{name} is just beginning")
    with Lease.acquire(open_storage(str(root)), "restore-d1", "me"), busy:
        run(root)
    at_work(root, name, "running")
    found = run(root, delete=True)
    assert [(h["region"], h["restore_id"]) for h in found["held"]] == [("1", name)]
    assert [p["partition"] for p in found["partitions"]] == ["0"]
    assert all("partition=0" in path for path in orders(1, 2, 3, 4) - data(root))
    with monkeypatch.context() as patched:
        patched.setattr(prune, "HOLD_MS", -1_000_000)
        assert [p["partition"] for p in run(root)["partitions"]] == ["1"]
    at_work(root, name, "complete")
    assert [p["partition"] for p in run(root)["partitions"]] == ["1"]


@pytest.mark.long
def test_a_restore_that_comes_on_record_meanwhile_keeps_its_files(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It planned before the floors were on record, so its files count no more, and stay until it is done."""
    write, name = tombstones.write_prune, backup_id(98)

    def meanwhile(storage: Any, made: Any) -> None:
        write(storage, made)
        at_work(root, name, "running")

    monkeypatch.setattr(tombstones, "write_prune", meanwhile)
    with pytest.raises(Incomplete, match="4 files are read by a restore"):
        run(root, delete=True)
    assert listed(root) & orders(1, 2, 3, 4) == set()
    assert {path for path in orders(1, 2, 3, 4) if "partition=1" in path} <= data(root)
    at_work(root, name, "complete")
    assert run(root, delete=True)["resumed"] == 1
    assert data(root) & orders(1, 2, 3, 4) == set()


@pytest.mark.long
@pytest.mark.spark
def test_a_restore_that_planned_before_a_prune_is_not_begun(
    root: Path, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    row = restoring.RestoreLog.row

    def meanwhile(log: Any, state: str, **more: Any) -> None:
        run(root, spark, delete=True)
        row(log, state, **more)

    monkeypatch.setattr(restoring.RestoreLog, "row", meanwhile)
    request = RestoreRequest(
        destination=str(root), target=f"dir:{root.parent}/out", source="prod", topics=("orders",), to_ts=5100
    )
    with pytest.raises(Busy, match="came in while this restore was being planned"):
        restore_topics.run(request, spark=spark, reporter=quiet())
    assert not list(open_storage(str(root)).list("restores/"))
