"""Makes the archive of Spark's classes (class_data.py): starts Spark, uses it once, and ends it."""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from lakebackup_jobs.runtime import class_data, jvm
from lakebackup_jobs.runtime.settings import spark_settings

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    import pyarrow as pa
    from pyspark.sql import SparkSession

# Seconds in which the JVM writes it, beside whatever else runs.
_END_S = 600


def make() -> None:
    """Make the archive, unless it is there, another process makes it, or there is no room.

    When it cannot be made an empty file is left, so that not every command tries again.
    """
    settings = spark_settings()
    path = class_data.archive(jvm.class_path(settings))
    if class_data.is_whole(path) or not class_data.has_room(path):
        return
    with (path.parent / ".lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return
        print("==> making an archive of Spark's classes, from which it starts faster (190 MB)", flush=True)
        for left in path.parent.glob("making-*"):  # by a process that was killed
            shutil.rmtree(left, ignore_errors=True)
        path.unlink(missing_ok=True)
        path.touch()
        with tempfile.TemporaryDirectory(prefix="making-", dir=path.parent) as folder:
            made = Path(folder) / path.name
            jvm.start(settings, archive_to=made)
            _use(folder)
            jvm.end(_END_S)
            if made.exists():  # else the JVM was too slow
                class_data.bytes_file(path).write_text(str(class_data.size(made)), "ascii")
                made.replace(path)
        for old in path.parent.glob(f"{path.name.split('-')[0]}-*.jsa"):
            if old != path:
                old.unlink()
                class_data.bytes_file(old).unlink(missing_ok=True)


def _use(folder: str) -> None:
    """Do what jobs do: tasks in Python, a Delta table, SQL over it."""
    from lakebackup_jobs.runtime.session import spark_session

    spark: SparkSession = spark_session()
    spark.sparkContext.parallelize(range(2), 2).mapPartitions(list).collect()
    rows = spark.range(0, 4, numPartitions=2).mapInArrow(_same, "id BIGINT")
    rows.write.format("delta").save(f"{folder}/table")
    table = spark.read.format("delta").load(f"{folder}/table")
    table.createOrReplaceTempView("used")
    spark.sql("SELECT max(a.id) AS id FROM used a JOIN used b ON a.id = b.id GROUP BY a.id % 2").collect()


def _same(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    return iter(batches)


if __name__ == "__main__":
    os.nice(19)  # whatever else runs comes first
    make()
