"""Reading backups needs no writing: restores, checks and questions on storage that is read-only or full.

A JVM for the wiring of topics and of verify, once; test_restore_snapshot.py restores without one.
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
def unwritable(made: MadeBackups, tmp_path: Path, how: Literal["read-only", "full"]) -> Iterator[Path]:
    if how == "read-only":
        with read_only(made.folder) as place:
            yield place
        return
    with small_disk(tmp_path, "8m") as place:
        shutil.copytree(made.folder, place / "backups")
        fill(place / "filler")
        yield place / "backups"


def files_in(place: Path) -> dict[Path, int]:
    return {path: path.stat().st_mtime_ns for path in place.rglob("*") if path.is_file()}


@pytest.mark.parametrize("how", ["read-only", pytest.param("full", marks=pytest.mark.long)])
def test_nothing_is_written_and_everything_is_read(
    spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str], how: Literal["read-only", "full"]
) -> None:
    made = MadeBackups(tmp_path / "backups")
    name = made.backup([[Record(0, n, value=b"v%d" % n) for n in range(20)]])
    made.flush()
    sidecar.mark(made.storage, layout.marker_path("prod", name, "complete"))
    said = io.StringIO()
    quiet = Reporter(io.StringIO(), said)
    with unwritable(made, tmp_path, how) as place:
        found = files_in(place)
        topics = RestoreRequest(
            destination=str(place), source="prod", topics=("orders",), target=f"dir:{tmp_path}/out"
        )
        assert restore_topics.run(topics, spark=spark, reporter=quiet)["entries"] == 20
        assert "no lease could be taken" in said.getvalue()
        result = verify.run(VerifyRequest(str(place), grace_ms=0), spark=spark, reporter=quiet)
        assert (result["ok"], result["missing"]) == (1, 1)  # the file; no sidecar was made
        assert [row["outcome"] for row in result["findings"]] == ["missing"]
        assert "findings are not recorded" in said.getvalue()
        assert main(["list", "--repo", str(place), "--json"]) == 0
        assert name in capsys.readouterr().out
        assert files_in(place) == found
    (file,) = (path for path in (tmp_path / "out").rglob("*") if path.suffix == ".data")
    assert [record.value for _, record in records_in(file)] == [b"v%d" % n for n in range(20)]
    reader = CatalogReader.require(str(made.folder))
    assert reader.select("SELECT * FROM checks").read_all().num_rows == 0
