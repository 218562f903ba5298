"""The same plan, whichever engine makes it.

They belong to the layer with one session of Spark and no broker: that its SQL gives the same as DuckDB's over
real tables is what could be wrong, and no layer below sees both. Catalogs are as small as can be.
"""

from __future__ import annotations

import io
import json
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from tests.support.catalogs import EPOCH
from tests.support.made_backups import MadeBackups, Record
from tests.support.made_changes import MadeChanges, commit, named, prewrite, put
from tests.support.made_queues import MadeQueues

from lakebackup.plan.diff import DiffRequest, plan_diff
from lakebackup.plan.logs.restore import LogRestoreRequest
from lakebackup.plan.logs.restore import plan_restore as log_plan
from lakebackup.plan.queues.restore import QueueRestoreRequest
from lakebackup.plan.queues.restore import plan_restore as queue_plan
from lakebackup.plan.snapshots.restore import SnapshotRestoreRequest, digest_of
from lakebackup.plan.snapshots.restore import plan_restore as snapshot_plan
from lakebackup.plan.topics import saved
from lakebackup.plan.topics.request import RestoreRequest, other_paths, plan_restore, read_backups
from lakebackup.rows.upkeep import Policy
from lakebackup.sql_engine import spark as spark_engine
from lakebackup.storage import open_storage
from lakebackup.store.reader import CatalogReader
from lakebackup.store.writer import CatalogWriter
from lakebackup_jobs.cli import main
from lakebackup_jobs.lifecycle.progress import QuietReporter
from lakebackup_jobs.lifecycle.tasks.splits import deal
from lakebackup_jobs.logs.restore import splits as log_splits
from lakebackup_jobs.queues.restore import splits as queue_splits
from lakebackup_jobs.queues.restore.splits import Partition
from lakebackup_jobs.snapshots import restore as restore_snapshot
from lakebackup_jobs.upkeep import prune
from lakebackup_jobs.upkeep.prune import PruneRequest

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

    from lakebackup.sql_engine import EngineChoice
    from lakebackup.storage import Storage
    from lakebackup.store.selection import Selection

pytestmark = pytest.mark.spark
ENGINES: tuple[EngineChoice, EngineChoice] = ("duckdb", "spark")
FIRST = "the first"
QUIET = QuietReporter(io.StringIO(), io.StringIO())


def files_of(chosen: Selection, query: str, **parameters: Any) -> list[dict[str, Any]]:
    return sorted(chosen.rows(query, **parameters), key=str)


def rows_in(storage: Storage, path: str) -> list[dict[str, Any]]:
    """The rows of a share that is Arrow."""
    with pa.ipc.open_stream(storage.get(path)) as stream:
        return stream.read_all().to_pylist()


@pytest.fixture(scope="module")
def topics(tmp_path_factory: pytest.TempPathFactory) -> MadeBackups:
    """A full and two differentials of a topic with two partitions, and a full after them."""
    made = MadeBackups(tmp_path_factory.mktemp("topics"))
    for n in range(3):
        made.backup([[Record(p, n, ts=1000 * n + 500, key=b"k", value=b"%d" % n)] for p in (0, 1)])
    made.backup([[Record(p, n, ts=1000 * n + 500, key=b"k") for n in range(4)] for p in (0, 1)], full=True)
    made.add(Policy(source="prod", at=1, actor="me", redundancy=1))
    made.flush()
    return made


@pytest.mark.parametrize(
    "asked",
    [
        {"topics": ("orders",), "to_ts": 2000},
        *(
            pytest.param(asked, marks=pytest.mark.long)
            for asked in (
                {"select": "SELECT destination, path FROM files WHERE added_in <= 2"},
                {"topics": (), "backup": FIRST},
            )
        ),
    ],
)
def test_restores_of_topics(
    topics: MadeBackups, spark: SparkSession, tmp_path: Path, asked: dict[str, Any]
) -> None:
    """By a time, by a SELECT and of a backup; what is asked of the chosen files, and tasks get of them."""
    reader = CatalogReader(str(topics.folder))
    if asked.get("backup") == FIRST:
        asked = {**asked, "backup": str(reader.rows("list_backups", source=None)[0]["backup_id"])}
    request = RestoreRequest(str(topics.folder), "dir:out", patterns=(".*",), **asked)
    one, other = (plan_restore(request, by) for by in (reader.apart(), reader.on(spark)))
    assert one == other
    assert one.files
    assert files_of(one.chosen, "selected_files") == files_of(other.chosen, "selected_files")
    assert saved.digest_of(one.chosen) == saved.digest_of(other.chosen)
    assert read_backups(one) == read_backups(other)
    assert other_paths(one) == other_paths(other)
    dealt = []
    for plan, name in zip((one, other), ENGINES, strict=True):
        storage = open_storage(str(tmp_path / name))
        shares = deal(storage, plan, "here/")
        assert deal(storage, plan, "here/") == shares
        dealt.append([[storage.get(path) for path in task] for task in shares.tasks])
    assert dealt[0] == dealt[1]


@pytest.mark.parametrize("few", [10_000, pytest.param(-1, marks=pytest.mark.long)])
def test_differences(
    topics: MadeBackups,
    spark: SparkSession,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    few: int,
) -> None:
    """Also of tables that are not small enough to be part of Spark's plan."""
    monkeypatch.setattr(spark_engine, "_FEW_ROWS", few)
    reader = CatalogReader(str(topics.folder))
    first, *_, last = [row["backup_id"] for row in reader.rows("list_backups", source=None)]
    request = DiffRequest(str(topics.folder), first, last)
    one, other = (plan_diff(request, asked) for asked in (reader, reader.on(spark)))
    assert one == other
    assert one.totals
    assert files_of(one.changes, "diff_rows") == files_of(other.changes, "diff_rows")
    command = ["diff", first, last, "--from", str(topics.folder), "--explain", "--json", "--engine"]
    for engine in ENGINES:
        assert main([*command, engine], spark) == 0
        said = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
        assert {one["engine"] for one in said if one["query"] == "diff_totals"} == {engine}


def test_prunes(
    topics: MadeBackups, queues: MadeQueues, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By days in place of a policy, of topics, queues and snapshots (which fulls of the queues hold)."""
    monkeypatch.setattr(prune.time, "time_ns", lambda: 300_000_000 * 1_000_000)
    gone = []
    for folder, source in (
        (topics.folder, "prod"),
        (queues.root, "social"),
        (queues.root, "social.snapshot"),
    ):
        asked = [PruneRequest(str(folder), source=source, days=1, engine=engine) for engine in ENGINES]
        one, other = (prune._planned(request, source, (), spark, QUIET) for request in asked)
        assert one == other
        gone.append(bool(one.gone_files))
    assert gone == [True, True, False]


@pytest.fixture(scope="module")
def queues(tmp_path_factory: pytest.TempPathFactory) -> MadeQueues:
    """An engine: two fulls, of which the first has an incremental one, and their snapshots."""
    folder = MadeBackups(tmp_path_factory.mktemp("queues")).folder
    made = MadeQueues(folder, CatalogWriter(None, str(folder)))
    made.write(5)
    made.full(10)
    made.write(12, partition=1)
    made.incremental(20)
    made.write(22)
    made.full(30)
    return made


def test_restores_of_queues(queues: MadeQueues, spark: SparkSession, tmp_path: Path) -> None:
    reader = CatalogReader(str(queues.root))
    request = QueueRestoreRequest(str(queues.root), "social", "kafka://b", "out", to_tid=12)
    plans = [queue_plan(request, asked, lambda *_: 0) for asked in (reader, reader.on(spark))]
    assert plans[0] == plans[1]
    assert plans[0].files == 1
    partitions = [Partition("delta.0", EPOCH, str(n), "delta.0") for n in (0, 1)]
    dealt = []
    for plan, name in zip(plans, ENGINES, strict=True):
        storage = open_storage(str(tmp_path / name))
        shares = queue_splits.deal(storage, plan.chosen, "here/", partitions)
        scanned = queue_splits.deal_scan(storage, plan.chosen, "scan/", 0)
        dealt.append([[storage.get(path) for path in task] for task in (*shares.tasks, *scanned.tasks)])
    assert dealt[0] == dealt[1]


def test_restores_of_snapshots(
    queues: MadeQueues, spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(restore_snapshot, "_SPLIT_BYTES", 1)
    monkeypatch.setattr(restore_snapshot, "_MOST_SPLITS", 1 << 40)
    reader = CatalogReader(str(queues.root))
    for select in (None, "SELECT * FROM snapshot_files WHERE added_in = 1"):
        request = SnapshotRestoreRequest(str(queues.root), "out", source="social.snapshot", select=select)
        plans = [snapshot_plan(request, asked) for asked in (reader.apart(), reader.on(spark))]
        assert plans[0] == plans[1]
        assert plans[0].files == 2
        assert digest_of(plans[0]) == digest_of(plans[1])
        dealt = []
        for plan, name in zip(plans, ENGINES, strict=True):
            storage = open_storage(str(tmp_path / name))
            paths = restore_snapshot.write_splits(storage, plan)
            dealt.append({path: rows_in(storage, path) for path in paths})
        assert dealt[0] == dealt[1]
        assert len(dealt[0]) == 2


def test_restores_of_logs(spark: SparkSession, tmp_path: Path) -> None:
    folder = MadeBackups(tmp_path / "logs").folder
    made = MadeChanges(folder, CatalogWriter(None, str(folder)), domain="ms")
    made.flush([put(1, b"a", 110, b"1"), prewrite(1, b"b", 90, b"2")], 120, names=[named(1, "orders", 100)])
    made.flush([commit(1, b"b", 90, 130), put(2, b"c", 130, b"3")], 140, names=[named(2, "items", 125)])
    reader = CatalogReader(str(folder))
    request = LogRestoreRequest(str(folder), "shop", filters=("shop.orders",), start_ts=120, end_ts=135)
    plans = [log_plan(request, asked) for asked in (reader, reader.on(spark))]
    assert plans[0] == plans[1]
    assert (plans[0].writes.files, plans[0].values.files) == (1, 1)
    dealt = []
    for plan, name in zip(plans, ENGINES, strict=True):
        storage = open_storage(str(tmp_path / name))
        shares = log_splits.deal(storage, plan, "here/", keys=None, checksum=True)
        dealt.append({kind: [rows_in(storage, path) for path in of] for kind, of in shares.paths.items()})
    assert dealt[0] == dealt[1]
