"""Twenty-four log files of three ts each, four to a flush: truncated until 17, fifteen of them go."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

import pytest
from tests.support.catalogs import backup_id
from tests.support.command_line import quiet
from tests.support.looks import seen
from tests.support.made_changes import MadeChanges, named, put
from tests.support.stream_metas import read_stream_meta

from lakebackup.store.writer import CatalogWriter
from lakebackup_jobs.logs.upkeep.truncate import TruncateRequest, run

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

# Where the cut is, to the ts: the cases of log_truncate_files. All else: test_log_truncate.py.
pytestmark = [pytest.mark.spark, pytest.mark.long]


def test_what_ends_before_goes(spark: SparkSession, empty_catalog: Path, tmp_path: Path) -> None:
    shutil.copytree(empty_catalog, tmp_path / "catalog")
    made = MadeChanges(tmp_path, CatalogWriter(spark, str(tmp_path)))
    # File i, of table i + 1, covers [i, i + 2]; flush 0 has files 0 to 3, and so on.
    for first in range(0, 24, 4):
        changes = [put(i + 1, b"k", ts, b"v") for i in range(first, first + 4) for ts in (i, i + 2)]
        made.flush(changes, first + 5, names=[named(i + 1, f"t{i}", 0) for i in range(first, first + 4)])
    request = TruncateRequest(str(tmp_path), "shop", until=17, ranges_only=True, delete=True)
    done = run(request, spark=spark, reporter=quiet())
    assert (done["files"], done["of_files"]) == (15, 24)
    left = seen(tmp_path, "SELECT scope, min_ts, max_ts FROM files WHERE cf = 'write' ORDER BY min_ts")
    assert [(row["min_ts"], row["max_ts"]) for row in left] == [(i, i + 2) for i in range(15, 24)]
    metas = sorted(path.relative_to(tmp_path) for path in (tmp_path / "shop" / "stream-metas").iterdir())
    assert [str(path)[-len(backup_id(1)) - 5 : -5] for path in metas] == [backup_id(n) for n in (4, 5, 6)]
    # The fourth keeps one file, the sixteenth.
    listed = [info["path"] for info in read_stream_meta(made.storage, str(metas[0]))]
    assert [path for path in listed if (tmp_path / path).exists()] == listed[-1:]
    assert (left[0]["scope"], left[0]["max_ts"]) == ("16", 17)
    assert [(row["from_ts"], row["to_ts"]) for row in seen(tmp_path, "SELECT * FROM coverage")] == [(17, 25)]
