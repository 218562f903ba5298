"""Verify on Spark: its findings are those of a check in this process, whichever engine plans it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from tests.support.command_line import quiet
from tests.support.given_snapshots import FileContent, GivenSnapshots
from tests.support.made_backups import MadeBackups, Record

from lakebackup.store.reader import CatalogReader
from lakebackup.store.writer import CatalogWriter
from lakebackup_jobs.upkeep import verify

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark


def findings(root: Path, spark: SparkSession | None = None, **options: Any) -> dict[str, list[Any]]:
    """The totals and the rows of a check, without the columns that differ between checks."""
    request = verify.VerifyRequest(str(root), mode="decode", grace_ms=-3_600_000, **options)
    result = verify.run(request, spark=spark, reporter=quiet())
    reader, check_id = CatalogReader(str(root)), result.pop("check_id")
    result.pop("seconds")
    rows = {
        table: reader.select(f"SELECT * FROM {table} WHERE check_id = '{check_id}'").read_all().to_pylist()
        for table in ("checks", "storage_objects")
    }
    for row in (row for table_rows in rows.values() for row in table_rows):
        for name in ("check_id", "at", "time"):
            row.pop(name)
    return {"result": [result], **{table: sorted(table_rows, key=str) for table, table_rows in rows.items()}}


@pytest.mark.long
def test_findings_do_not_depend_on_the_engine(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    backups = MadeBackups(tmp_path)
    backups.backup([[Record(p, n, key=b"k%d" % n) for n in range(20)] for p in (0, 1)])
    backups.flush()
    snapshots = GivenSnapshots(tmp_path, writer=CatalogWriter(None, str(tmp_path)))
    snapshots.backup([FileContent(name=f"{n}.sst", data=b"%d" % n * 100) for n in range(9)], pack_below=1000)
    (pack,) = tmp_path.rglob("packs/*")
    pack.write_bytes(b"x" + pack.read_bytes()[1:])
    pack.with_name("stranger").write_bytes(b"x")
    expected = findings(tmp_path)
    assert {row["outcome"] for row in expected["result"][0]["findings"]} == {
        "changed",
        "damaged",
        "missing",
        "orphan",
    }
    monkeypatch.setattr(verify, "_SHARE", 1)  # each object becomes a task
    assert findings(tmp_path, spark) == expected
    assert findings(tmp_path, spark, engine="spark") == expected
