"""Reads need no writes: restores, verify and queries work on storage that is read-only or full.

One test starts a JVM for restores of topics and for verify; test_restore_snapshot.py needs none.
"""

from __future__ import annotations

import io
import shutil
from contextlib import contextmanager
from typing import TYPE_CHECKING, Literal

import pytest
from tests.support.disks import fill, read_only, small_disk
from tests.support.kafka_truth import records_in
from tests.support.made_backups import MadeBackups, Record

from lakebackup.plan.topics.request import RestoreRequest
from lakebackup.rules import layout
from lakebackup.store import manifest as sidecar
from lakebackup.store.reader import CatalogReader
from lakebackup_jobs.cli import main
from lakebackup_jobs.lifecycle.progress import Reporter
from lakebackup_jobs.topics import restore as restore_topics
from lakebackup_jobs.upkeep import verify
from lakebackup_jobs.upkeep.verify import VerifyRequest

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark


@contextmanager
def unwritable(backups: MadeBackups, tmp_path: Path, kind: Literal["read-only", "full"]) -> Iterator[Path]:
    if kind == "read-only":
        with read_only(backups.folder) as root:
            yield root
        return
    with small_disk(tmp_path, "8m") as root:
        shutil.copytree(backups.folder, root / "backups")
        fill(root / "filler")
        yield root / "backups"


def files_in(folder: Path) -> dict[Path, int]:
    return {path: path.stat().st_mtime_ns for path in folder.rglob("*") if path.is_file()}


@pytest.mark.parametrize("kind", ["read-only", pytest.param("full", marks=pytest.mark.long)])
def test_nothing_is_written_and_everything_is_read(
    spark: SparkSession,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    kind: Literal["read-only", "full"],
) -> None:
    backups = MadeBackups(tmp_path / "backups")
    name = backups.backup([[Record(0, n, value=b"v%d" % n) for n in range(20)]])
    backups.flush()
    sidecar.mark(backups.storage, layout.marker_path("prod", name, "complete"))
    notes = io.StringIO()
    quiet = Reporter(io.StringIO(), notes)
    with unwritable(backups, tmp_path, kind) as root:
        files_before = files_in(root)
        topics = RestoreRequest(
            destination=str(root), source="prod", topics=("orders",), target=f"dir:{tmp_path}/out"
        )
        assert restore_topics.run(topics, spark=spark, reporter=quiet)["entries"] == 20
        assert "no lease could be taken" in notes.getvalue()
        result = verify.run(VerifyRequest(str(root), grace_ms=0), spark=spark, reporter=quiet)
        assert (result["ok"], result["missing"]) == (1, 1)  # the file; no sidecar was written
        assert [row["outcome"] for row in result["findings"]] == ["missing"]
        assert "findings are not recorded" in notes.getvalue()
        assert main(["list", "--repo", str(root), "--json"]) == 0
        assert name in capsys.readouterr().out
        assert files_in(root) == files_before
    (file,) = (path for path in (tmp_path / "out").rglob("*") if path.suffix == ".data")
    assert [record.value for _, record in records_in(file)] == [b"v%d" % n for n in range(20)]
    reader = CatalogReader.require(str(backups.folder))
    assert reader.select("SELECT * FROM checks").read_all().num_rows == 0
