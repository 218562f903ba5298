"""Makes the archives of Spark's classes (see class_data.py): starts Spark, uses it once, and ends its JVM."""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path

import pyarrow as pa
from pyspark.sql import SparkSession

from lakebackup_jobs.runtime.java import class_data, jvm
from lakebackup_jobs.runtime.session import spark_session, warm_context
from lakebackup_jobs.runtime.settings import spark_settings

# Seconds that the JVM may take to write an archive, while other programs run.
_END_S = 600
_SQL, _TASKS = "sql", "tasks"


def make() -> None:
    """Make the missing archives, unless another process makes them or there is no room.

    If an archive cannot be made, an empty file stays in its place, so that not every command tries again.
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
        for abandoned in folder.glob("making-*"):  # a killed process did not delete it
            shutil.rmtree(abandoned, ignore_errors=True)
        for sql in missing:  # each in its own process, since a process starts only one JVM
            subprocess.run(
                [sys.executable, "-P", "-m", f"{__package__}.class_data_maker", _SQL if sql else _TASKS],
                check=False,
            )
        for archive in folder.glob(f"{paths[True].name.split('-')[0]}-*.jsa"):
            if archive not in paths.values():
                archive.unlink()
                class_data.bytes_file(archive).unlink(missing_ok=True)


def _make(sql: bool) -> None:
    path = class_data.archive(jvm.class_path(spark_settings()), sql=sql)
    path.unlink(missing_ok=True)
    path.touch()
    with tempfile.TemporaryDirectory(prefix="making-", dir=path.parent) as folder:
        new_archive = Path(folder) / path.name
        jvm.start(spark_settings(), archive_to=new_archive)
        _use(folder, sql=sql)
        jvm.end(_END_S)
        if new_archive.exists():  # otherwise the JVM was too slow
            class_data.bytes_file(path).write_text(str(class_data.size(new_archive)), "ascii")
            new_archive.replace(path)


def _use(folder: str, *, sql: bool) -> None:
    """Do what jobs do: run tasks in Python; with `sql`, also write a Delta table and query it."""
    warm_context().parallelize(range(2), 2).mapPartitions(list).collect()
    if not sql:
        return
    spark: SparkSession = spark_session()
    rows = spark.range(0, 4, numPartitions=2).mapInArrow(_unchanged, "id BIGINT")
    rows.write.format("delta").save(f"{folder}/table")
    table = spark.read.format("delta").load(f"{folder}/table")
    table.createOrReplaceTempView("used")
    spark.sql("SELECT max(a.id) AS id FROM used a JOIN used b ON a.id = b.id GROUP BY a.id % 2").collect()


def _unchanged(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    return iter(batches)


if __name__ == "__main__":
    if len(sys.argv) > 1:
        _make(sys.argv[1] == _SQL)
    else:
        os.nice(19)  # other programs run first
        make()
