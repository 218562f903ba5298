"""Verify on Spark: the findings are those of a check in this process, whichever engine plans it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from tests.support.command_line import quiet
from tests.support.given_snapshots import Given, GivenSnapshots
from tests.support.made_backups import MadeBackups, Record

from lakebackup.store.reader import CatalogReader
from lakebackup.store.writer import CatalogWriter
from lakebackup_jobs.upkeep import verify

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark


def found(root: Path, spark: SparkSession | None = None, **asked: Any) -> dict[str, list[Any]]:
    """The totals of a check, and its rows without what makes it another check."""
    request = verify.VerifyRequest(str(root), mode="decode", grace_ms=-3_600_000, **asked)
    result = verify.run(request, spark=spark, reporter=quiet())
    reader, check_id = CatalogReader(str(root)), result.pop("check_id")
    result.pop("seconds")
    rows = {
        table: reader.select(f"SELECT * FROM {table} WHERE check_id = '{check_id}'").read_all().to_pylist()
        for table in ("checks", "storage_objects")
    }
    for row in (row for some in rows.values() for row in some):
        for name in ("check_id", "at", "time"):
            row.pop(name)
    return {"result": [result], **{table: sorted(some, key=str) for table, some in rows.items()}}


@pytest.mark.long
def test_the_findings_are_the_same_wherever_they_are_made(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = MadeBackups(tmp_path)
    made.backup([[Record(p, n, key=b"k%d" % n) for n in range(20)] for p in (0, 1)])
    made.flush()
    snapshots = GivenSnapshots(tmp_path, writer=CatalogWriter(None, str(tmp_path)))
    snapshots.backup([Given(name=f"{n}.sst", data=b"%d" % n * 100) for n in range(9)], pack_below=1000)
    (pack,) = tmp_path.rglob("packs/*")
    pack.write_bytes(b"x" + pack.read_bytes()[1:])
    pack.with_name("stranger").write_bytes(b"x")
    here = found(tmp_path)
    assert {row["outcome"] for row in here["result"][0]["findings"]} == {
        "changed",
        "damaged",
        "missing",
        "orphan",
    }
    monkeypatch.setattr(verify, "_SPLIT", 1)  # each object is a task
    assert found(tmp_path, spark) == here
    assert found(tmp_path, spark, engine="spark") == here
