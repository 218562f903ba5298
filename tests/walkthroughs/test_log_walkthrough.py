"""The cases of the logs' design: the files that a restore of a span reads, and those that truncate
deletes."""

from __future__ import annotations

import re
import shutil
from typing import TYPE_CHECKING

import pytest
from tests.support.catalogs import backup_id, made_backup
from tests.support.command_line import quiet
from tests.support.looks import select_rows
from tests.support.made_backups import MadeBackups
from tests.support.made_changes import MadeChanges, put_change, table_name_row
from tests.support.stream_metas import read_stream_meta

from lakebackup.plan.logs.restore import LogRestoreRequest, plan_restore
from lakebackup.rows.backups import Backup, DataFile
from lakebackup.store.writer import CatalogWriter
from lakebackup_jobs.logs.upkeep.truncate import TruncateRequest, run

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession


@pytest.mark.parametrize(
    ("flushes", "span", "shift", "read"),
    [
        pytest.param(
            ["w(4,10,3) w(5,13,5)", "d(1,3)", "w(10,42,9) d(6,9)"],
            (4, 5),
            3,
            "d(1,3) w(4,10,3) w(5,13,5)",
            id="values of a flush of their own",
        ),
        pytest.param(
            ["w(1,100,1) w(5,13,5) d(1,101)", "w(100,200,98) d(100,200)"],
            (50, 99),
            1,
            "d(1,101) w(1,100,1)",
            id="a transaction that took long",
        ),
        pytest.param(
            ["d(2,6) w(4,5,2)", "w(50,54,42) d(42,50) w(70,78,-)", "d(100,101) w(102,104,100)"],
            (2, 60),
            2,
            "d(2,6) d(42,50) w(4,5,2) w(50,54,42)",
            id="what began after the span",
        ),
    ],
)
def test_a_restore_reads_the_files_of_its_span(
    tmp_path: Path, flushes: list[str], span: tuple[int, int], shift: int, read: str
) -> None:
    backups = MadeBackups(tmp_path, "shop")
    for number, files in enumerate(flushes, 1):
        backups.add(_flush(backups.destination, number))
        backups.add(*(_file(backups.destination, number, name) for name in files.split()))
    reader = backups.reader()
    # The design's span includes both ends; a restore excludes its start.
    request = LogRestoreRequest(destination="", name="shop", start_ts=span[0] - 1, end_ts=span[1])
    plan = plan_restore(request, reader)
    rows = plan.file.table().to_pylist()
    assert " ".join(row["path"] for row in rows) == read
    assert (plan.begin_ts, plan.writes.files + plan.values.files) == (shift, len(rows))


def _flush(destination: str, number: int) -> Backup:
    parent = number - 1 if number > 1 else None
    chain = {"parent": parent and backup_id(parent), "parent_place": parent, "base": backup_id(1)}
    return made_backup(
        number, source="shop", source_kind="changes", destination=destination, kind="log", level=1, **chain,
        chain_position=number - 1, ts_domain="tso", start_ts=1000 * (number - 1), codec="zstd",
    )  # fmt: skip


def _file(destination: str, number: int, name: str) -> DataFile:
    cf, low, high, *begin = re.findall(r"\w+|-", name)
    return DataFile(
        destination=destination, path=name, backup_id=backup_id(number), added_in=number, source="shop",
        scope="1", epoch="-", region="1", format="log-arrow-1", codec="zstd", bytes=10, raw_bytes=20,
        sha256="00", entries=3, min_ts=int(low), max_ts=int(high),
        min_begin_ts=int(begin[0]) if begin and begin[0] != "-" else None, start_position=0, end_position=1,
        start_key="61", end_key="62", cf="write" if cf == "w" else "default", op="put",
    )  # fmt: skip


# log_truncate_files has the cases of the exact ts of the cut, test_log_truncate.py everything else.


@pytest.mark.spark
@pytest.mark.long
def test_truncate_deletes_files_that_end_before_the_cut(
    spark: SparkSession, empty_catalog: Path, tmp_path: Path
) -> None:
    shutil.copytree(empty_catalog, tmp_path / "catalog")
    log = MadeChanges(tmp_path, CatalogWriter(spark, str(tmp_path)))
    # File i, of table i + 1, covers [i, i + 2]; flush 0 has files 0 to 3, and so on.
    for first in range(0, 24, 4):
        changes = [put_change(i + 1, b"k", ts, b"v") for i in range(first, first + 4) for ts in (i, i + 2)]
        log.flush(
            changes, first + 5, names=[table_name_row(i + 1, f"t{i}", 0) for i in range(first, first + 4)]
        )
    request = TruncateRequest(str(tmp_path), "shop", until=17, ranges_only=True, delete=True)
    result = run(request, spark=spark, reporter=quiet())
    assert (result["files"], result["of_files"]) == (15, 24)
    rows = select_rows(tmp_path, "SELECT scope, min_ts, max_ts FROM files WHERE cf = 'write' ORDER BY min_ts")
    assert [(row["min_ts"], row["max_ts"]) for row in rows] == [(i, i + 2) for i in range(15, 24)]
    metas = sorted(path.relative_to(tmp_path) for path in (tmp_path / "shop" / "stream-metas").iterdir())
    assert [str(path)[-len(backup_id(1)) - 5 : -5] for path in metas] == [backup_id(n) for n in (4, 5, 6)]
    # The fourth flush keeps one file, the sixteenth.
    listed = [info["path"] for info in read_stream_meta(log.storage, str(metas[0]))]
    assert [path for path in listed if (tmp_path / path).exists()] == listed[-1:]
    assert (rows[0]["scope"], rows[0]["max_ts"]) == ("16", 17)
    assert [(row["from_ts"], row["to_ts"]) for row in select_rows(tmp_path, "SELECT * FROM coverage")] == [
        (17, 25)
    ]
