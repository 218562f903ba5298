"""Eight snapshots of a tablet, as in the design of YugabyteDB's differential backups.

https://github.com/yugabyte/yugabyte-db/blob/master/architecture/design/differential-backups.md names the
files, their sizes, times and hard links, and says which of them are copied. A kilobyte is a byte here, and
each snapshot has an empty folder `intents`, whose files the design does not count.
"""

from __future__ import annotations

import json
import os
import shutil
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pytest
from tests.support.command_line import quiet
from tests.support.looks import select_rows

from lakebackup.rows.upkeep import Policy
from lakebackup.store.writer import CatalogWriter
from lakebackup_jobs.snapshots import backup as backup_snapshot
from lakebackup_jobs.snapshots.request import SnapshotRequest
from lakebackup_jobs.upkeep import prune

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark
TABLE, TABLET = "000030ad000030008000000000004000", "4b90c92c6a4b4a3aa03c6f941a8c7d1b"
IDS = [
    "4160b771-2620-44f2-a482-3f94e796aefc", "81b0ce71-21fc-402f-8af3-2dea4cc7a7a9",
    "83a006ce-40e5-408e-8f03-fba2e1c5f546", "7f3c9719-69a6-4eb7-a86e-0ad368b6a322",
    "24ebc93b-92a1-43cd-b177-699636f47287", "1a92c67f-8a31-42e2-b45e-cae8a986334b",
    "39c24b4f-a9db-4318-9e04-c7edac3a4fd1", "ebe990cd-c5f2-4d91-bedc-b3252a4f5a75",
]  # fmt: skip
KB, MB = 1, 1 << 10
# Number, bytes of the .sst.sblock.0 and of the .sst, the minute of their last change, snapshots with them.
TABLES = [
    (21, 143 * MB, 7065 * KB, 24, range(1, 6)),
    (28, 317, 65 * KB, 33, range(1, 4)),
    (27, 78 * MB, 2867 * KB, 33, range(1, 6)),
    (30, 15 * MB, 538 * KB, 35, range(1, 4)),
    (31, 19 * MB, 737 * KB, 37, range(2, 4)),
    (32, 19 * MB, 672 * KB, 39, range(3, 4)),
    (33, 52 * MB, 1843 * KB, 39, range(4, 6)),
    (34, 18 * MB, 671 * KB, 41, range(4, 6)),
    (35, 18 * MB, 672 * KB, 43, range(5, 6)),
    (36, 266 * MB, 13 * MB, 44, range(6, 9)),
    (37, 17 * MB, 670 * KB, 45, range(6, 9)),
    (38, 17 * MB, 670 * KB, 47, range(7, 9)),
    (39, 16 * MB, 604 * KB, 49, range(8, 9)),
]
COPIED = [11, 5, 5, 7, 5, 7, 5, 5]


def instant(minute: int) -> float:
    return datetime(2020, 9, 24, 1, minute, tzinfo=UTC).timestamp()


def names(*numbers: int) -> set[str]:
    return {f"{number:06d}.sst{end}" for number in numbers for end in ("", ".sblock.0")}


def own_files(snapshot: int) -> dict[str, int]:
    """The names and sizes of a snapshot's own files: its CURRENT, and two MANIFESTs."""
    return {"CURRENT": 16, "MANIFEST-000011": (9 + snapshot) * KB, f"MANIFEST-{31 + snapshot:06d}": 2 * KB}


def own_names(*snapshots: int) -> set[str]:
    return {name for snapshot in snapshots for name in own_files(snapshot)}


def make(root: Path) -> None:
    """Make the tree of a tablet server: files that snapshots share are hard links."""
    folder = root / f"table-{TABLE}" / f"tablet-{TABLET}.snapshots"
    for name in IDS:
        (folder / name / "intents").mkdir(parents=True)
    for number, block, table, minute, snapshots in TABLES:
        for name, size in ((f"{number:06d}.sst.sblock.0", block), (f"{number:06d}.sst", table)):
            first, *links = (folder / IDS[snapshot - 1] / name for snapshot in snapshots)
            write_file(first, size, minute)
            for link in links:
                os.link(first, link)
    for snapshot, name in enumerate(IDS, 1):
        for file_name, size in own_files(snapshot).items():
            write_file(folder / name / file_name, size, 33 + 2 * snapshot)
        os.utime(folder / name, (instant(33 + 2 * snapshot),) * 2)


def write_file(path: Path, size: int, minute: int) -> None:
    with path.open("wb") as file:
        file.truncate(size)
    os.utime(path, (instant(minute),) * 2)


@pytest.fixture(scope="module")
def walked(
    empty_catalog: Path, tmp_path_factory: pytest.TempPathFactory
) -> tuple[Path, list[dict[str, Any]]]:
    """A destination with a backup of each snapshot, and the results of the backups."""
    folder = tmp_path_factory.mktemp("walkthrough")
    make(folder / "rocksdb")
    shutil.copytree(empty_catalog, folder / "off-cluster" / "catalog")
    request = SnapshotRequest(
        destination=str(folder / "off-cluster"), paths=(str(folder / "rocksdb"),), source="yb",
        layout="yugabyte", everything=True,
    )  # fmt: skip
    return folder / "off-cluster", backup_snapshot.run(request, reporter=quiet())["backups"]


def manifests(to: Path) -> list[Path]:
    return sorted((to / "yb" / "backups").rglob("manifest-*.json"), key=lambda path: path.name)


def test_new_files_are_copied(walked: tuple[Path, list[dict[str, Any]]]) -> None:
    to, backups = walked
    assert [backup["copied"] for backup in backups] == COPIED
    assert [backup["files"] for backup in backups] == [11, 13, 15, 11, 13, 7, 9, 11]
    assert (sum(COPIED), sum(backup["files"] for backup in backups)) == (50, 90)
    assert [backup["snapshot"] for backup in backups] == IDS
    assert [backup["end_ts"] for backup in backups] == [int(instant(33 + 2 * n)) * 1000 for n in range(1, 9)]
    assert [path.name[:25] for path in manifests(to)] == [
        f"manifest-20200924T01{33 + 2 * n}00Z" for n in range(1, 9)
    ]
    for snapshot, path in enumerate(manifests(to), 1):
        manifest = json.loads(path.read_text())[TABLE][TABLET]
        shared = {n: tables for n, _, _, _, tables in TABLES if snapshot in tables}
        assert manifest.keys() == names(*shared) | own_files(snapshot).keys()
        for number, tables in shared.items():
            for name in names(number):
                assert manifest[name]["version"] == len(tables)
                assert manifest[name]["location"].startswith(
                    f"file://{to}/yb/snapshots/{backups[tables[0] - 1]['backup_id']}/"
                )
        assert manifest["CURRENT"]["version"] == 1
        assert manifest["CURRENT"]["timestamp"] == backups[snapshot - 1]["end_ts"]


# By the number of backups to keep: the names of the freed files, and the number of their objects.
FREED = {
    5: (names(28, 30, 31, 32) | own_names(1, 2, 3), 8 + 9),
    3: (names(21, 27, 33, 34, 35) | own_names(4, 5), 10 + 6),
}


@pytest.mark.parametrize("stages", [[3], pytest.param([5, 3], marks=pytest.mark.long)], ids=str)
def test_prunes_free_the_files_of_old_snapshots(
    stages: list[int], walked: tuple[Path, list[dict[str, Any]]], spark: SparkSession, tmp_path: Path
) -> None:
    """The design frees the first three, then those up to the fifth; in one step the same files are freed."""
    to = shutil.copytree(walked[0], tmp_path / walked[0].name)
    all_objects = objects = stored_objects(to)
    assert len(all_objects) == 50
    for number, keep in enumerate(stages, 1):
        CatalogWriter(None, str(to)).record(Policy(source="yb", at=number, actor="me", redundancy=keep))
        prune.run(prune.PruneRequest(destination=str(to), delete=True), spark=spark, reporter=quiet())
        objects_before, objects = objects, stored_objects(to)
        freed = [
            names_and_count
            for keep_count, names_and_count in FREED.items()
            if len(stages) == 1 or keep_count == keep
        ]
        assert {path[1] for path in objects_before - objects} == set().union(*(files for files, _ in freed))
        assert len(objects_before - objects) == sum(count for _, count in freed)
    # The remaining objects are those of the last three backups, at the locations in their manifests.
    for path in manifests(to)[5:]:
        for name, file in json.loads(path.read_text())[TABLE][TABLET].items():
            assert (file["location"].split("/")[-4], name) in objects
    assert len(select_rows(to, "SELECT path FROM files WHERE format = 'file'")) == len(objects) == 17


def stored_objects(to: Path) -> set[tuple[str, str]]:
    """The stored objects: the id of the backup that wrote it, and the file's name, compressed or not."""
    folder = to / "yb" / "snapshots"
    paths = [path for path in folder.rglob("*") if path.is_file()]
    return {(path.relative_to(folder).parts[0], path.name.removesuffix(".zst")) for path in paths}
