"""Plans: both engines make the same ones, SELECTs can choose files, and saved plans expire with the
catalog."""

from __future__ import annotations

import io
import json
import shutil
from typing import TYPE_CHECKING, Any

import pytest
from tests.support.catalogs import EPOCH, backup_id, data_file, manifest, publish
from tests.support.command_line import quiet
from tests.support.made_backups import MadeBackups, Record
from tests.support.made_changes import MadeChanges, commit, prewrite, put_change, table_name_row
from tests.support.made_queues import MadeQueues

from lakebackup.errors import Damaged, NotFound, Refused, UsageProblem
from lakebackup.plan.diff import DiffRequest, plan_diff
from lakebackup.plan.logs.restore import LogRestoreRequest
from lakebackup.plan.logs.restore import plan_restore as log_plan
from lakebackup.plan.queues.restore import QueueRestoreRequest
from lakebackup.plan.queues.restore import plan_restore as queue_plan
from lakebackup.plan.snapshots.restore import SnapshotRestoreRequest, restore_digest
from lakebackup.plan.snapshots.restore import plan_restore as snapshot_plan
from lakebackup.plan.topics import saved
from lakebackup.plan.topics.request import RestoreRequest, other_paths, plan_restore, read_backups
from lakebackup.rows.backups import Floor, Removal
from lakebackup.rows.upkeep import Policy, Restore
from lakebackup.sql_engine import spark as spark_engine
from lakebackup.sql_engine.spark import SparkEngine
from lakebackup.storage import open_storage
from lakebackup.store.reader import CatalogReader
from lakebackup.store.roots import destination_id
from lakebackup.store.writer import CatalogWriter
from lakebackup_jobs.cli import main
from lakebackup_jobs.lifecycle.progress import Reporter
from lakebackup_jobs.lifecycle.workspace import Workspace
from lakebackup_jobs.logs.restore import shares as log_shares
from lakebackup_jobs.queues.restore import shares as queue_shares
from lakebackup_jobs.queues.restore.shares import Partition
from lakebackup_jobs.snapshots import restore as restore_snapshot
from lakebackup_jobs.topics.restore import run, store_partitions
from lakebackup_jobs.upkeep import prune
from lakebackup_jobs.upkeep.prune import PruneRequest

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

    from lakebackup.sql_engine import EngineChoice
    from lakebackup.store.plan_file import PlanFile

pytestmark = pytest.mark.spark


ENGINES: tuple[EngineChoice, EngineChoice] = ("duckdb", "spark")
FIRST = "the first"
QUIET = Reporter(io.StringIO(), io.StringIO())


def rows_of(file: PlanFile) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = file.table().to_pylist()
    return rows


@pytest.fixture(autouse=True)
def all_on_spark(monkeypatch: pytest.MonkeyPatch) -> None:
    """Run on Spark also the statements that read few rows."""
    monkeypatch.setattr(SparkEngine, "_on_duckdb", lambda *_: None)


@pytest.fixture(scope="module")
def topics(tmp_path_factory: pytest.TempPathFactory) -> MadeBackups:
    """A full and two differentials of a topic with two partitions, and a full after them."""
    backups = MadeBackups(tmp_path_factory.mktemp("topics"))
    for n in range(3):
        backups.backup([[Record(p, n, ts=1000 * n + 500, key=b"k", value=b"%d" % n)] for p in (0, 1)])
    backups.backup([[Record(p, n, ts=1000 * n + 500, key=b"k") for n in range(4)] for p in (0, 1)], full=True)
    backups.add(Policy(source="prod", at=1, actor="me", redundancy=1))
    backups.flush()
    return backups


@pytest.mark.parametrize(
    "options",
    [
        {"topics": ("orders",), "to_ts": 2000},
        *(
            pytest.param(options, marks=pytest.mark.long)
            for options in (
                {"select": "SELECT destination, path FROM files WHERE added_in <= 2"},
                {"topics": (), "backup": FIRST},
            )
        ),
    ],
)
def test_restores_of_topics(
    topics: MadeBackups, spark: SparkSession, tmp_path: Path, options: dict[str, Any]
) -> None:
    """By a time, by a SELECT and of a backup. Compares the plan files, and the tasks' shares."""
    reader = CatalogReader(str(topics.folder))
    if options.get("backup") == FIRST:
        options = {**options, "backup": str(reader.rows("list_backups", source=None)[0]["backup_id"])}
    request = RestoreRequest(str(topics.folder), "dir:out", patterns=(".*",), **options)
    duckdb_plan, spark_plan = (
        plan_restore(request, reader_of_engine) for reader_of_engine in (reader, reader.with_spark(spark))
    )
    assert duckdb_plan == spark_plan
    assert duckdb_plan.files
    assert rows_of(duckdb_plan.file) == rows_of(spark_plan.file)
    assert saved.digest_of(duckdb_plan.file) == saved.digest_of(spark_plan.file)
    engines = (reader, reader.with_spark(spark))
    for plan in (duckdb_plan, spark_plan):
        backups_read, paths = (
            [facts_of(plan, reader) for reader in engines] for facts_of in (read_backups, other_paths)
        )
        assert backups_read[0] == backups_read[1]
        assert paths[0] == paths[1]
    shares = [
        store_partitions(open_storage(str(tmp_path / name)), "here/", plan)
        for plan, name in zip((duckdb_plan, spark_plan), ENGINES, strict=True)
    ]
    assert shares[0].tasks == shares[1].tasks
    assert rows_of(shares[0].file) == rows_of(duckdb_plan.file)


@pytest.mark.long
@pytest.mark.parametrize("few", [10_000, -1])
def test_differences(
    topics: MadeBackups,
    spark: SparkSession,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    few: int,
) -> None:
    """Also for tables that are too large to be part of Spark's plan."""
    monkeypatch.setattr(spark_engine, "_FEW_ROWS", few)
    reader = CatalogReader(str(topics.folder))
    first, *_, last = [row["backup_id"] for row in reader.rows("list_backups", source=None)]
    request = DiffRequest(str(topics.folder), first, last)
    duckdb_plan, spark_plan = (
        plan_diff(request, reader_of_engine) for reader_of_engine in (reader, reader.with_spark(spark))
    )
    assert duckdb_plan == spark_plan
    assert duckdb_plan.totals
    assert duckdb_plan.changes.rows("diff_rows") == spark_plan.changes.rows("diff_rows")
    command = ["diff", first, last, "--repo", str(topics.folder), "--explain", "--json", "--engine"]
    for engine in ENGINES:
        assert main([*command, engine], spark) == 0
        rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
        assert {duckdb_plan["engine"] for duckdb_plan in rows if duckdb_plan["query"] == "diff_totals"} == {
            engine
        }


@pytest.mark.long
def test_prunes(
    topics: MadeBackups, queues: MadeQueues, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By days in place of a policy, of topics, queues and snapshots (which fulls of the queues hold)."""
    monkeypatch.setattr(prune.time, "time_ns", lambda: 300_000_000 * 1_000_000)
    has_files = []
    for folder, source in (
        (topics.folder, "prod"),
        (queues.root, "social"),
        (queues.root, "social.snapshot"),
    ):
        requests = [PruneRequest(str(folder), source=source, days=1, engine=engine) for engine in ENGINES]
        duckdb_plan, spark_plan = (
            prune._planned(request, Workspace(request, source, QUIET), spark) for request in requests
        )
        assert duckdb_plan == spark_plan
        has_files.append(bool(duckdb_plan.gone_files))
    assert has_files == [True, True, False]


@pytest.fixture(scope="module")
def queues(tmp_path_factory: pytest.TempPathFactory) -> MadeQueues:
    """An engine: two fulls, the first with an incremental one, and their snapshots."""
    folder = MadeBackups(tmp_path_factory.mktemp("queues")).folder
    engine = MadeQueues(folder, CatalogWriter(None, str(folder)))
    engine.write(5)
    engine.full(10)
    engine.write(12, partition=1)
    engine.incremental(20)
    engine.write(22)
    engine.full(30)
    return engine


def test_restores_of_queues(queues: MadeQueues, spark: SparkSession, tmp_path: Path) -> None:
    reader = CatalogReader(str(queues.root))
    request = QueueRestoreRequest(str(queues.root), "social", "kafka://b", "out", to_tid=12)
    plans = [
        queue_plan(request, reader_of_engine, lambda *_: 0)
        for reader_of_engine in (reader, reader.with_spark(spark))
    ]
    assert plans[0] == plans[1]
    assert plans[0].files == 1
    partitions = [Partition("delta.0", EPOCH, str(n), "delta.0") for n in (0, 1)]
    listings = []
    for plan, name in zip(plans, ENGINES, strict=True):
        storage = open_storage(str(tmp_path / name))
        shares = queue_shares.store_partitions(storage, plan.file, "here/", partitions)
        scan = queue_shares.store_scan(storage, reader, plan.file, "scan/", 0)
        listings.append((shares.tasks, rows_of(shares.file), scan.tasks, rows_of(scan.file)))
    assert listings[0] == listings[1]


def test_restores_of_snapshots(
    queues: MadeQueues, spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(restore_snapshot, "_SHARE_BYTES", 1)
    monkeypatch.setattr(restore_snapshot, "MOST_TASKS", 1 << 40)
    reader = CatalogReader(str(queues.root))
    for select in (None, "SELECT * FROM snapshot_files WHERE added_in = 1"):
        request = SnapshotRestoreRequest(str(queues.root), "out", source="social.snapshot", select=select)
        plans = [
            snapshot_plan(request, reader_of_engine)
            for reader_of_engine in (reader, reader.with_spark(spark))
        ]
        assert plans[0] == plans[1]
        assert plans[0].files == 2
        assert restore_digest(plans[0]) == restore_digest(plans[1])
        shares = [
            restore_snapshot.store_shares(open_storage(str(tmp_path / name)), plan)
            for plan, name in zip(plans, ENGINES, strict=True)
        ]
        assert rows_of(shares[0].file) == rows_of(shares[1].file)
        assert shares[0].tasks == shares[1].tasks
        assert len(shares[0].tasks) == 2


def test_restores_of_logs(spark: SparkSession, tmp_path: Path) -> None:
    folder = MadeBackups(tmp_path / "logs").folder
    changes = MadeChanges(folder, CatalogWriter(None, str(folder)), domain="ms")
    changes.flush(
        [put_change(1, b"a", 110, b"1"), prewrite(1, b"b", 90, b"2")],
        120,
        names=[table_name_row(1, "orders", 100)],
    )
    changes.flush(
        [commit(1, b"b", 90, 130), put_change(2, b"c", 130, b"3")],
        140,
        names=[table_name_row(2, "items", 125)],
    )
    reader = CatalogReader(str(folder))
    request = LogRestoreRequest(str(folder), "shop", filters=("shop.orders",), start_ts=120, end_ts=135)
    plans = [log_plan(request, reader_of_engine) for reader_of_engine in (reader, reader.with_spark(spark))]
    assert plans[0] == plans[1]
    assert (plans[0].writes.files, plans[0].values.files) == (1, 1)
    options: dict[str, Any] = {"roots": reader.destinations(), "keys": None, "checksum": True}
    shares = [
        log_shares.store_shares(open_storage(str(tmp_path / name)), plan, "here/", **options)
        for plan, name in zip(plans, ENGINES, strict=True)
    ]
    assert rows_of(shares[0].file) == rows_of(shares[1].file)
    assert shares[0].shares == shares[1].shares


@pytest.fixture
def root(spark: SparkSession, empty_catalog: Path, tmp_path: Path) -> Path:
    """Three backups of a topic with two partitions, ten records a file."""
    root = tmp_path / "backups"
    shutil.copytree(empty_catalog, root / "catalog")
    storage, writer = open_storage(str(root)), CatalogWriter(spark, str(root))
    for number in (1, 2, 3):
        publish(storage, writer, manifest(number))
    return root


def planned(root: Path, **options: Any) -> dict[str, Any]:
    request = RestoreRequest(
        **{"destination": str(root), "target": f"dir:{root}/../out", "dry_run": True, **options}
    )
    return run(request, reporter=quiet())


def test_any_query_that_returns_paths_selects_files(root: Path) -> None:
    select = """
        WITH newest AS (
          SELECT f.path, f.destination, b.number,
            row_number() OVER (PARTITION BY f.region ORDER BY b.number DESC) AS place
          FROM files f JOIN backups b ON f.backup_id = b.backup_id
          WHERE f.scope = 'orders'
        )
        SELECT * FROM newest WHERE place > 1 OR number < 3
    """
    result = planned(root, select=select)
    assert (result["source"], result["files"], result["entries_in_files"], result["obstacles"]) == (
        "prod",
        4,
        40,
        [],
    )
    rows = [(r["partition"], r["files"], r["to_offset"], r["reaches"]) for r in result["partitions"]]
    assert rows == [(p, 2, 20, "1970-01-01T00:00:02.999Z") for p in ("0", "1")]
    by_path = planned(root, select="SELECT path FROM files UNION ALL SELECT path FROM files")
    assert by_path["files"] == 6, "each once, though it is given twice"
    assert by_path["notes"] == ["6 rows of the SELECT name a file that another row names too"]
    assert {row["reaches"] for row in by_path["partitions"]} == {"1970-01-01T00:00:03.999Z"}


def test_a_select_with_holes_reports_what_it_reaches(root: Path) -> None:
    result = planned(root, select="SELECT path FROM files WHERE added_in <> 2 AND region = '0'")
    assert len(result["obstacles"]) == 1
    assert "takes 2 of the 3 files" in result["obstacles"][0]
    assert [row["reaches"] for row in result["partitions"]] == ["1970-01-01T00:00:01.999Z"]
    assert planned(root, select="SELECT path FROM files WHERE added_in <> 2", partial=True)["obstacles"] == []


@pytest.mark.parametrize(
    ("select", "kind", "message"),
    [
        (
            "SELECT scope, bytes FROM files",
            UsageProblem,
            "returns scope, bytes; a restore needs the column path",
        ),
        ("SELECT path FROM files WHERE bytes < 0", NotFound, "chose no file"),
        (
            "SELECT 'orders/nothing' AS path FROM files",
            UsageProblem,
            r"1 files \(unknown\), such as orders/nothing",
        ),
    ],
)
def test_a_select_without_files_to_restore_is_refused(
    root: Path, select: str, kind: type[Exception], message: str
) -> None:
    with pytest.raises(kind, match=message):
        planned(root, select=select)


def test_an_estimate_is_made_from_finished_restores(spark: SparkSession, root: Path) -> None:
    assert planned(root, topics=("orders",))["estimate"].endswith("(assumed, no restore into dir yet)")
    rows = [
        Restore(restore_id="r", at=1_000_000, source="prod", state="running", target="dir:x", selection=""),
        Restore(restore_id="r", at=2_000_000, source="prod", scope="orders", region="0", state="region_done",
                target="dir:x", selection="", bytes=300),
        Restore(restore_id="r", at=3_000_000, source="prod", state="complete", target="dir:x", selection=""),
    ]  # fmt: skip
    CatalogWriter(spark, str(root)).append(rows)
    result = planned(root, topics=("orders",))
    assert result["estimate"] == "4 s at 0.0 MB/s (the median of 1 restores into dir)"


def prune_a_file(spark: SparkSession, root: Path) -> None:
    file = data_file(1)
    home = destination_id(open_storage(str(root)))
    keys = {"prune_id": "p7", "at": 5, "source": "prod", "scope": "orders", "epoch": EPOCH, "region": "0"}
    rows = [
        Floor(**keys, low_position=10, reason="time"),  # type: ignore[arg-type]
        Removal(**keys, destination=home, path=file.path, backup_id=backup_id(1), bytes=100, reason="time"),  # type: ignore[arg-type]
    ]
    CatalogWriter(spark, str(root)).append(rows)


@pytest.mark.long
def test_a_saved_plan_holds_while_it_selects_the_same_files(
    spark: SparkSession, root: Path, tmp_path: Path
) -> None:
    newest, fixed = str(tmp_path / "newest.json"), str(tmp_path / "fixed.json")
    secret = {"sasl.password": "hunter2"}
    result = planned(root, topics=("orders",), save_plan=newest, kafka=secret)
    planned(root, topics=("orders",), to_ts=2500, save_plan=fixed)
    text = (tmp_path / "newest.json").read_text()
    assert result["digest"] in text
    assert "hunter2" not in text
    saved_plan = json.loads(text)
    assert saved_plan["versions"] == CatalogReader.require(str(root)).versions()
    assert planned(root, plan=newest, target="dir:nowhere")["files"] == 6
    with pytest.raises(Refused, match="there already"):
        planned(root, topics=("orders",), save_plan=newest)

    publish(open_storage(str(root)), CatalogWriter(spark, str(root)), manifest(4))
    with pytest.raises(Refused, match=rf"2 files that it did not have came in \(backup {backup_id(4)}\)"):
        planned(root, plan=newest)
    assert planned(root, plan=fixed)["files"] == 4
    prune_a_file(spark, root)
    with pytest.raises(Refused, match=r"1 files that it had are gone \(prune p7\)"):
        planned(root, plan=fixed)

    select = f"SELECT '{data_file(1).path}' AS path UNION ALL SELECT path FROM files WHERE region = '1'"
    result = planned(root, select=select)
    assert "1 files that the SELECT chose were pruned (p7)" in result["obstacles"][0]
    result = planned(root, select=select, partial=True)
    assert (result["files"], result["obstacles"]) == (4, [])
    assert "were pruned (p7)" in result["notes"][0]


def test_a_changed_plan_or_one_of_another_catalog_is_refused(
    spark: SparkSession, root: Path, empty_catalog: Path, tmp_path: Path
) -> None:
    file = tmp_path / "plan.json"
    planned(root, topics=("orders",), save_plan=str(file))
    text = file.read_text()
    file.write_text(text.replace('"files": 6', '"files": 7'))
    with pytest.raises(Damaged, match="was changed"):
        planned(root, plan=str(file))
    file.write_text(text[:-5])
    with pytest.raises(Damaged, match="no plan"):
        planned(root, plan=str(file))
    with pytest.raises(NotFound, match="no plan"):
        planned(root, plan=str(tmp_path / "other.json"))
    file.write_text(text)
    shutil.rmtree(root / "catalog")
    for marker in root.rglob(
        "complete"
    ):  # otherwise lakebackup would report that the catalog is behind its destination
        marker.unlink()
    CatalogWriter(spark, str(root)).migrate()
    with pytest.raises(Refused, match="another catalog"):
        planned(root, plan=str(file))
