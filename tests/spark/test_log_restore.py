"""Restores of a change feed's log: any instant, upon nothing, a full or an earlier restore."""

from __future__ import annotations

import io
import random
import shutil
from typing import TYPE_CHECKING, Any

import pytest
from tests.support.disks import flip
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

from lakebackup.errors import Damaged, NotFound, Refused, UsageProblem
from lakebackup.plan.logs.restore import LogRestoreRequest
from lakebackup.store.reader import CatalogReader
from lakebackup.store.writer import CatalogWriter
from lakebackup_jobs.lifecycle.progress import QuietReporter
from lakebackup_jobs.logs.restore import job as restore
from lakebackup_jobs.logs.upkeep import snapshot

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession
    from tests.support.command_line import Commands

pytestmark = pytest.mark.spark


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


@pytest.mark.parametrize("cuts", [1, pytest.param(2, marks=pytest.mark.long)])
def test_any_instant_alone_and_in_pieces(feed: Feed, cuts: int) -> None:
    load(feed, 1)
    end = feed.made.end_ts
    ends = [*sorted(random.Random(3).sample(range(12, end), cuts)), end]
    before = None
    for cut in ends:
        if cuts > 1:
            feed.restore(f"whole-{cut}", end_ts=cut)
            assert feed.rows(f"whole-{cut}") == feed.made.latest(cut)
        feed.restore("pieces", start_ts=before, end_ts=cut)
        assert feed.rows("pieces") == feed.made.latest(cut)
        before = cut
    done = feed.restore("pieces", start_ts=ends[-2], end_ts=end)
    assert done["done_before"]
    assert feed.names("pieces") <= {(1, "shop", "orders"), (2, "shop", "items")}


def test_upon_a_full_and_upon_a_restore(feed: Feed, cli: Commands) -> None:
    """By `lakebackup log snapshot`, `restore point` and `log merge`."""

    def lakebackup(*command: str) -> dict[str, Any]:
        return cli.told(*command, "--from", feed.folder / "backups")

    load(feed, 10)  # keys are deleted behind the full, and changes stand at both its ends
    end, point = feed.made.end_ts, str(feed.folder / "point")
    middle, later = end // 2, end - 20
    first = lakebackup("log", "snapshot", "shop", "--ts", str(middle))
    reader = CatalogReader.require(str(feed.folder / "backups"))
    (row,) = reader.rows("log_fulls", source="shop", to_ts=None)
    assert (row["backup_id"], row["end_ts"], row["number"]) == (first["backup_id"], middle, 4)
    assert first["entries"] == len(feed.made.latest(middle))
    whole = lakebackup("restore", "point", "shop", "--endts", str(later), "--to", f"delta:{point}")
    assert (whole["full"], feed.rows("point")) == (first["backup_id"], feed.made.latest(later))
    merge = ["log", "merge", "shop", "--read-snapshot-storage", point]
    merge += ["--write-snapshot-storage", str(feed.folder / "merged")]
    lakebackup(*merge)
    assert feed.rows("merged") == feed.made.latest(end)
    assert feed.rows("point") == feed.made.latest(later)
    assert lakebackup(*merge)["done_before"]


def test_names_follow_tables(feed: Feed) -> None:
    made = feed.made
    first = [put(1, b"a", 10, b"1"), put(2, b"a", 11, b"2"), put(3, b"a", 12, b"3"), put(9, b"a", 13, b"9")]
    names = [named(1, "orders", 5), named(2, "orders_old", 5), named(3, "items", 5)]
    made.flush(first, 20, names=names)
    second = [put(4, b"n", 26, b"4"), put(3, b"b", 27, b"5")]
    later = [
        named(1, "orders_new", 22, "rename", covered_from=4),
        named(2, "orders_old", 23, "drop", covered_from=4),
        named(4, "items", 25, "truncate", replaces=3),
    ]
    made.flush(second, 30, names=later)
    feed.restore("then", end_ts=20, filters=("shop.orders*",))
    assert feed.names("then") == {(1, "shop", "orders"), (2, "shop", "orders_old")}
    feed.restore("then", start_ts=20, end_ts=30, filters=("shop.orders*",))
    assert feed.names("then") == {(1, "shop", "orders_new")}
    feed.restore("all", end_ts=30)
    assert feed.names("all") == {(1, "shop", "orders_new"), (4, "shop", "items"), (9, None, None)}
    made.flush([], 40)
    with pytest.raises(Refused, match=r"-f 'shop\.orders\*'"):
        feed.restore("then", start_ts=30)
    with pytest.raises(Refused, match=r"in \(0, 30\]"):
        feed.restore("all", start_ts=21, end_ts=25)


def test_keys_and_spans_into_a_folder(feed: Feed) -> None:
    made = feed.made
    made.flush([put(1, b"a", 10, b"1"), put(1, b"m", 11, b"2"), put(1, b"z", 12, b"3")], 20)
    made.flush([truncated(1, 21), delete(1, b"m", 25), put(1, b"a", 26, b"4")], 30)
    to = f"dir:{feed.folder / 'out'}"
    asked = {"target": to, "first_key": "61", "beyond_key": "6e"}
    feed.restore(end_ts=20, **asked)
    feed.restore(start_ts=20, end_ts=30, **asked)
    assert feed.restore(start_ts=20, end_ts=30, **asked)["done_before"]

    def held(span: str) -> set[tuple[Any, ...]]:
        rows = feed.spark.read.parquet(str(feed.folder / "out" / span)).collect()
        return {(bytes(row.key), row.value and bytes(row.value), row.commit_ts, row.type) for row in rows}

    assert held("0-20") == {(b"a", b"1", 10, "P"), (b"m", b"2", 11, "P")}
    assert held("20-30") == {(b"", None, 21, "T"), (b"a", b"4", 26, "P"), (b"m", None, 25, "D")}
    made.flush([], 40)
    with pytest.raises(Refused, match="keys"):
        feed.restore(start_ts=30, target=to)
    (feed.folder / "other").mkdir()
    (feed.folder / "other" / "mine.txt").touch()
    with pytest.raises(Refused, match=r"mine\.txt"):
        feed.restore(target=f"dir:{feed.folder / 'other'}")


def test_what_is_damaged_is_told_and_nothing_is_written(feed: Feed) -> None:
    made = feed.made
    made.flush([commit(1, b"lost", 5, 10), put(1, b"a", 11, b"1")], 20)
    with pytest.raises(Damaged, match=r"key 6c6f7374 of table 1.*start ts 5"):
        feed.restore("lost")
    made.flush([put(1, b"lost", 25, b"found"), put(1, b"b", 26, b"2")], 30)
    feed.restore("later")
    values = {row["key"]: row["value"] for row in feed.rows("later")}
    assert values == {b"a": b"1", b"b": b"2", b"lost": b"found"}
    (file,) = (feed.folder / "backups").glob("shop/log/*2/01/*/1.log.zst")
    flip(file, -9)
    with pytest.raises(Damaged, match="sha256"):
        feed.restore("torn")
    file.unlink()
    with pytest.raises(NotFound):
        feed.restore("gone")
    assert not list(feed.folder.glob("[ltg]o*/_delta_log/*.json"))


def test_a_target_of_somebody_else_is_refused(feed: Feed) -> None:
    feed.made.flush([put(1, b"a", 10, b"1")], 20)
    feed.spark.range(3).write.format("delta").save(str(feed.folder / "out"))
    with pytest.raises(Refused, match="no restore of a log made it"):
        feed.restore()
    with pytest.raises(UsageProblem, match="no place"):
        feed.restore(target="file:out")
    (feed.folder / "cut").mkdir()
    (feed.folder / "cut" / "part-00000.parquet").write_bytes(b"what a killed restore left")
    feed.restore("cut")
    assert feed.rows("cut") == feed.made.latest(20)
