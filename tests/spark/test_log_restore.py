"""Restores of a change feed's log: any instant, upon nothing, a full or an earlier restore."""

from __future__ import annotations

import io
import random
import shutil
from typing import TYPE_CHECKING, Any

import pytest
from tests.support.made_changes import (
    MadeChanges,
    commit,
    delete,
    named,
    prewrite,
    put,
    rollback,
    truncated,
)

from lakebackup.plan.restore_log import LogRestoreRequest
from lakebackup.store import CatalogReader, CatalogWriter
from lakebackup_jobs.changelog import restore, snapshot
from lakebackup_jobs.progress import QuietReporter

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

Run = Any


class Feed:
    """A made log, and restores of it."""

    def __init__(self, spark: SparkSession, folder: Path) -> None:
        self.spark, self.folder = spark, folder
        root = folder / "backups"
        self.made = MadeChanges(root, CatalogWriter.open(spark, str(root)), domain="ms")
        self.notes = io.StringIO()

    def restore(self, to: str = "out", **asked: Any) -> dict[str, Any]:
        request = LogRestoreRequest(
            **{
                "destination": str(self.folder / "backups"),
                "name": "shop",
                "target": f"delta:{self.folder / to}",
                **asked,
            }
        )
        return restore.run(request, spark=self.spark, reporter=QuietReporter(io.StringIO(), self.notes))

    def full(self, **asked: Any) -> dict[str, Any]:
        request = LogRestoreRequest(destination=str(self.folder / "backups"), name="shop", **asked)
        return snapshot.run(request, spark=self.spark, reporter=QuietReporter(io.StringIO(), self.notes))

    def rows(self, to: str = "out") -> list[dict[str, Any]]:
        """What a restored table holds, in order, without names."""
        found = self.spark.read.format("delta").load(str(self.folder / to)).toArrow().to_pylist()
        found = [{name: row[name] for name in row if name not in ("db", "name")} for row in found]
        return sorted(found, key=lambda row: (row["table_id"], row["key"]))

    def names(self, to: str = "out") -> set[tuple[Any, ...]]:
        found = self.spark.read.format("delta").load(str(self.folder / to)).toArrow().to_pylist()
        return {(row["table_id"], row["db"], row["name"]) for row in found}


@pytest.fixture
def feed(spark: SparkSession, empty_catalog: Path, tmp_path: Path) -> Feed:
    shutil.copytree(empty_catalog, tmp_path / "backups" / "catalog")
    return Feed(spark, tmp_path)


def load(feed: Feed, seed: int) -> None:
    """Three flushes of transactions on two tables: overlapping, rolled back, deleted, emptied."""
    rng = random.Random(seed)
    ts, open_ = 10, []
    for flush in range(1, 4):
        changes = []
        for _ in range(25):
            ts += rng.randint(1, 5)
            table, key = rng.choice([1, 2]), rng.choice([b"", b"a", b"b", b"\xff" * 70, b"c"])
            kind = rng.choice(["put", "long", "delete", "begin", "end", "back", "empty"])
            if kind == "put":
                changes.append(put(table, key, ts, f"{ts}".encode()))
            elif kind == "long":
                changes.append(prewrite(table, key, ts - 1, f"long{ts}".encode()))
                changes.append(commit(table, key, ts - 1, ts))
            elif kind == "delete":
                changes.append(delete(table, key, ts))
            elif kind == "empty" and table == 2:
                changes.append(truncated(table, ts))
            elif kind == "begin":
                changes.append(prewrite(table, key, ts, f"open{ts}".encode()))
                open_.append((table, key, ts))
            elif kind == "end" and open_:
                table, key, start = open_.pop(0)
                changes.append(commit(table, key, start, ts))
            elif kind == "back" and open_:
                changes.append(rollback(*open_.pop()))
        ts += 1
        names = [named(1, "orders", 5), named(2, "items", 5)] if flush == 1 else []
        feed.made.flush(changes, ts, names=names)


def test_any_instant_alone_and_in_pieces(feed: Feed) -> None:
    load(feed, 1)
    end = feed.made.end_ts
    cuts = [*sorted(random.Random(3).sample(range(12, end), 2)), end]
    before = None
    for cut in cuts:
        feed.restore(f"whole-{cut}", end_ts=cut)
        assert feed.rows(f"whole-{cut}") == feed.made.latest(cut)
        feed.restore("pieces", start_ts=before, end_ts=cut)
        assert feed.rows("pieces") == feed.made.latest(cut)
        before = cut
    done = feed.restore("pieces", start_ts=cuts[-2], end_ts=end)
    assert done["done_before"]
    assert feed.names("pieces") <= {(1, "shop", "orders"), (2, "shop", "items")}


def test_upon_a_full_and_upon_a_snapshot(feed: Feed) -> None:
    load(feed, 2)
    end = feed.made.end_ts
    middle, later = end // 2, end - 20
    first = feed.full(end_ts=middle)
    reader = CatalogReader.require(str(feed.folder / "backups"))
    (row,) = reader.rows("log_restore_fulls", source="shop", to_ts=None)
    assert (row["backup_id"], row["end_ts"], row["number"]) == (first["backup_id"], middle, 4)
    assert first["entries"] == len(feed.made.latest(middle))
    whole = feed.restore("point", end_ts=later, on_full=True)
    assert (whole["full"], feed.rows("point")) == (first["backup_id"], feed.made.latest(later))
    second = feed.full()
    assert second["full"] == first["backup_id"]
    exact = feed.restore("exact", end_ts=end, on_full=True)
    assert (exact["full"], feed.rows("exact")) == (second["backup_id"], feed.made.latest(end))
    feed.restore("merged", upon=str(feed.folder / "point"))
    assert feed.rows("merged") == feed.made.latest(end)
    feed.restore("point", start_ts=later)
    assert feed.rows("point") == feed.made.latest(end)
