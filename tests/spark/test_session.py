from __future__ import annotations

import os
import shlex
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pyspark
import pytest
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from tests.support.disks import flip

from lakebackup.errors import EnvironmentProblem
from lakebackup_jobs.runtime.session import connect_server, spark_session, spark_settings

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    import pyarrow as pa
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark


def digests(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Runs in a worker, which therefore needs our package and our Python."""
    import pyarrow

    from lakebackup_jobs.runtime.jars import pinned

    for batch in batches:
        count = len(pinned("spark"))
        here = sys.executable
        yield pyarrow.RecordBatch.from_pylist(
            [{"jars": count, "python": here}] * batch.num_rows,
            schema=pyarrow.schema([("jars", pyarrow.int32()), ("python", pyarrow.string())]),
        )


def test_there_is_one_session(spark: SparkSession) -> None:
    assert spark_session() is spark


def test_settings_that_results_depend_on(spark: SparkSession) -> None:
    assert spark.conf.get("spark.sql.session.timeZone") == "UTC"
    assert spark.conf.get("spark.sql.ansi.enabled") == "true"
    assert spark.conf.get("spark.sql.shuffle.partitions") == "2"


def test_delta_writes_and_reads(spark: SparkSession, tmp_path: Path) -> None:
    table = str(tmp_path / "table")
    spark.range(100).write.format("delta").save(table)
    spark.range(100, 150).write.format("delta").mode("append").save(table)
    assert spark.read.format("delta").load(table).count() == 150
    assert spark.sql("SELECT count(*) AS n FROM delta.`" + table + "` VERSION AS OF 0").first() == (100,)


def test_a_flipped_bit_in_a_page_is_noticed(spark: SparkSession, tmp_path: Path) -> None:
    folder = str(tmp_path / "parquet")
    values = spark.range(20_000).selectExpr("uuid() AS word").coalesce(1)
    values.write.option("compression", "none").parquet(folder)
    assert len(spark.read.parquet(folder).collect()) == 20_000
    file = next(Path(folder).glob("part-*.parquet"))
    flip(file)
    (Path(folder) / f".{file.name}.crc").unlink()  # Hadoop's own sidecar would notice first; S3 has none
    with pytest.raises((PySparkException, Py4JError), match="CRC checksum verification failed"):
        spark.read.parquet(folder).collect()


def test_connectors_are_on_the_class_path(spark: SparkSession) -> None:
    from pyspark.sql.avro.functions import to_avro

    assert spark.range(1).select(to_avro("id").alias("a")).first() is not None
    reader = spark.read.format("kafka").option("kafka.bootstrap.servers", "127.0.0.1:9")
    assert "value" in reader.option("subscribe", "t").load().columns


def test_workers_have_our_package_and_our_python(spark: SparkSession) -> None:
    row = spark.range(1).mapInArrow(digests, "jars int, python string").first()
    assert row == (len(spark_settings()["spark.driver.extraClassPath"].split(":")), sys.executable)


@pytest.mark.long
def test_start_up_leaves_the_terminal_alone() -> None:
    program = "from lakebackup_jobs.runtime.session import spark_session as s; print(s().range(3).count())"
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=180, check=False
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "3\n", "")


@pytest.mark.long
def test_settings_given_to_spark_submit_stand(tmp_path: Path) -> None:
    job = tmp_path / "job.py"
    job.write_text(
        "from lakebackup_jobs.runtime.session import spark_session\n"
        "s = spark_session()\n"
        f"s.range(5).write.format('delta').save({str(tmp_path / 't')!r})\n"
        "names = ('spark.sql.shuffle.partitions', 'spark.master', 'spark.app.name')\n"
        "print(*(s.conf.get(name) for name in names))\n",
        "utf-8",
    )
    options = subprocess.run(
        [sys.executable, "-m", "lakebackup_jobs.runtime.session"],
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    ).stdout
    given = ["--master", "local[1]", "--name", "mine", "--conf", "spark.sql.shuffle.partitions=7"]
    submit = str(Path(pyspark.__file__).parent / "bin" / "spark-submit")
    done = subprocess.run(
        [submit, *shlex.split(options), *given, str(job)],
        env={**os.environ, "PYSPARK_PYTHON": sys.executable},
        capture_output=True, text=True, timeout=180, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert done.stdout == "7 local[1] mine\n"


def test_a_server_that_cannot_start_says_why() -> None:
    with (
        pytest.raises(EnvironmentProblem, match=r"did not start[\s\S]*Master must"),
        connect_server(extra={"spark.master": "no-such-master"}),
    ):
        pass
