"""Makes the archives of Spark's classes (class_data.py): starts Spark, uses it once, and ends it."""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from lakebackup_jobs.runtime.java import class_data, jvm
from lakebackup_jobs.runtime.settings import spark_settings

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    import pyarrow as pa
    from pyspark.sql import SparkSession

# Seconds in which the JVM writes it, beside whatever else runs.
_END_S = 600
_SQL, _TASKS = "sql", "tasks"


def make() -> None:
    """Make the archives that are not there, unless another process does, or there is no room.

    Where one cannot be made an empty file is left, so that not every command tries again.
    """
    class_path = jvm.class_path(spark_settings())
    paths = {sql: class_data.archive(class_path, sql=sql) for sql in (False, True)}
    folder = paths[True].parent
    missing = [sql for sql, path in paths.items() if not class_data.is_whole(path)]
    if not missing or not class_data.has_room(paths[True]):
        return
    with (folder / ".lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return
        print("==> making archives of Spark's classes, from which it starts faster (250 MB)", flush=True)
        for left in folder.glob("making-*"):  # by a process that was killed
            shutil.rmtree(left, ignore_errors=True)
        for sql in missing:  # each in a process of its own, which can start one JVM
            subprocess.run(
                [sys.executable, "-P", "-m", f"{__package__}.class_data_maker", _SQL if sql else _TASKS],
                check=False,
            )
        for old in folder.glob(f"{paths[True].name.split('-')[0]}-*.jsa"):
            if old not in paths.values():
                old.unlink()
                class_data.bytes_file(old).unlink(missing_ok=True)


def _make(sql: bool) -> None:
    path = class_data.archive(jvm.class_path(spark_settings()), sql=sql)
    path.unlink(missing_ok=True)
    path.touch()
    with tempfile.TemporaryDirectory(prefix="making-", dir=path.parent) as folder:
        made = Path(folder) / path.name
        jvm.start(spark_settings(), archive_to=made)
        _use(folder, sql=sql)
        jvm.end(_END_S)
        if made.exists():  # else the JVM was too slow
            class_data.bytes_file(path).write_text(str(class_data.size(made)), "ascii")
            made.replace(path)


def _use(folder: str, *, sql: bool) -> None:
    """Do what jobs do: tasks in Python; a Delta table, SQL over it."""
    from lakebackup_jobs.runtime.session import spark_session, warm_context

    warm_context().parallelize(range(2), 2).mapPartitions(list).collect()
    if not sql:
        return
    spark: SparkSession = spark_session()
    rows = spark.range(0, 4, numPartitions=2).mapInArrow(_same, "id BIGINT")
    rows.write.format("delta").save(f"{folder}/table")
    table = spark.read.format("delta").load(f"{folder}/table")
    table.createOrReplaceTempView("used")
    spark.sql("SELECT max(a.id) AS id FROM used a JOIN used b ON a.id = b.id GROUP BY a.id % 2").collect()


def _same(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    return iter(batches)


if __name__ == "__main__":
    if len(sys.argv) > 1:
        _make(sys.argv[1] == _SQL)
    else:
        os.nice(19)  # whatever else runs comes first
        make()
