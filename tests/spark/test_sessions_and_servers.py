"""Sessions of Spark, and the servers, each started by its command and asked by a client of its own kind."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import textwrap
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pyspark
import pytest
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from tests.support.disks import flip
from tests.support.s3 import put_catalog

from lakebackup.errors import EnvironmentProblem, NotFound, Refused
from lakebackup.rows.upkeep import Audit
from lakebackup.storage import open_storage
from lakebackup.store.roots import destination_id
from lakebackup.store.writer import CatalogWriter
from lakebackup_jobs.runtime.child import free_port
from lakebackup_jobs.runtime.java.home import java_home
from lakebackup_jobs.runtime.run_as import find_account, require_reader
from lakebackup_jobs.runtime.session import connect_server, spark_session
from lakebackup_jobs.runtime.settings import spark_settings

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    import pyarrow as pa
    from pyspark.sql import SparkSession
    from tests.support.s3 import S3Proxy

pytestmark = pytest.mark.spark


def digests(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Runs in a worker, which therefore needs our package and our Python."""
    import pyarrow

    from lakebackup_jobs.runtime.java.jars import pinned

    for batch in batches:
        count = len(pinned("spark"))
        here = sys.executable
        yield pyarrow.RecordBatch.from_pylist(
            [{"jars": count, "python": here}] * batch.num_rows,
            schema=pyarrow.schema([("jars", pyarrow.int32()), ("python", pyarrow.string())]),
        )


def sizes(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    import pyarrow

    for batch in batches:
        yield pyarrow.RecordBatch.from_pydict({"mb": pyarrow.array([batch.nbytes >> 20], pyarrow.int64())})


def test_there_is_one_session(spark: SparkSession) -> None:
    assert spark_session() is spark


def test_settings_that_results_depend_on(spark: SparkSession) -> None:
    assert spark.conf.get("spark.sql.session.timeZone") == "UTC"
    assert spark.conf.get("spark.sql.ansi.enabled") == "true"
    assert spark.conf.get("spark.sql.shuffle.partitions") == "2"


def test_large_rows_reach_a_worker_in_small_batches(spark: SparkSession) -> None:
    rows = spark.sql("SELECT repeat('x', 1048576) AS value FROM range(0, 150, 1, 1)")
    batches = [row.mb for row in rows.mapInArrow(sizes, "mb BIGINT").collect()]
    assert sum(batches) == 150
    assert max(batches) <= 65


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
def test_start_and_end_leave_the_terminal_alone() -> None:
    """The JVM ends first, while its connection for accumulators is open."""
    program = (
        "from lakebackup_jobs.runtime import session; from lakebackup_jobs.runtime.java import jvm\n"
        "print(session.spark_session().sparkContext.parallelize(range(3)).count())\n"
        "jvm.end()\n"
    )
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


ROOT_ONLY = pytest.mark.skipif(os.geteuid() != 0, reason="only root can run a server as somebody else")
QUESTIONS = """
SELECT 'audit', action, subject FROM audit;
SELECT 'points', count(*) FROM restore_points;
SELECT 'who', reflect('java.lang.System', 'getProperty', 'user.name');
SELECT 'secret', reflect('java.lang.System', 'getenv', 'LAKEBACKUP_KAFKA__SASL_PASSWORD');
SELECT 'home', reflect('java.lang.System', 'getenv', 'HOME');
INSERT INTO delta.`{root}/catalog/audit` VALUES (1, 'a', 'b', 'c', 'd');
CREATE TABLE planted USING delta LOCATION '{root}/planted' AS SELECT 1 AS a;
INSERT OVERWRITE DIRECTORY '{root}/planted' USING csv SELECT 1;
SELECT 'end', 1;
"""


@pytest.fixture
def place(spark: SparkSession, empty_catalog: Path) -> Iterator[Path]:
    """A destination that everybody may read and only its owner write."""
    folder = Path(tempfile.mkdtemp(prefix="lakebackup-test-serve-"))
    shutil.copytree(empty_catalog, folder / "catalog")
    destination_id(open_storage(str(folder)))
    writer = CatalogWriter(spark, str(folder))
    writer.append([Audit(at=1, actor="me", action="look", subject="it", detail="{}")])
    writer.register_home()
    for found in (folder, *folder.rglob("*")):
        found.chmod(0o755 if found.is_dir() else 0o644)
    yield folder
    shutil.rmtree(folder)


@contextmanager
def served(*arguments: str) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """A server as a process of its own, and the address it says it is ready at; then Ctrl-C."""
    process = subprocess.Popen(
        [sys.executable, "-m", "lakebackup_jobs", "serve", *arguments, "--json"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ | {"LAKEBACKUP_KAFKA__SASL_PASSWORD": "hunter2"},
    )
    try:
        assert process.stdout
        assert process.stderr
        said = process.stdout.readline()
        assert said, process.stderr.read()
        yield process, json.loads(said)["url"]
        process.send_signal(signal.SIGINT)
        assert process.wait(240) == 0, process.stderr.read()
    finally:
        process.kill()
        process.communicate()


def state_of(folder: Path) -> dict[str, int]:
    return {str(found): found.stat().st_size for found in folder.rglob("*") if found.is_file()}


def beeline(url: str, questions: str, folder: Path) -> subprocess.CompletedProcess[str]:
    script = folder / "questions.sql"
    script.write_text(questions)
    spark_home = Path(pyspark.__file__).parent
    options = ["--silent=true", "--outputformat=csv2", "--force=true"]
    return subprocess.run(
        [str(spark_home / "bin" / "beeline"), "-u", url, *options, "-f", str(script)],
        capture_output=True,
        text=True,
        check=False,
        timeout=900,
        env={"PATH": "/usr/bin:/bin", "HOME": str(folder), "SPARK_HOME": str(spark_home)}
        | {"JAVA_HOME": str(java_home())},
    )


@pytest.mark.long
@ROOT_ONLY
def test_a_jdbc_client_reads_the_views_and_can_change_nothing(place: Path, tmp_path: Path) -> None:
    port = free_port()
    before = state_of(place)
    with served("thrift", "--repo", str(place), "--port", str(port)) as (_, url):
        assert url == f"jdbc:hive2://127.0.0.1:{port}/default"
        done = beeline(url, QUESTIONS.format(root=place), tmp_path)
    # Without a terminal, what beeline would draw there stands before each first line, which is the header.
    wanted = ("audit", "points", "who", "secret", "home", "end")
    lines = (line.split(",", 1) for line in done.stdout.splitlines() if "," in line)
    answers = {name: answer for name, answer in lines if name in wanted}
    assert answers.pop("home").rpartition("/")[2].startswith("lakebackup-thrift-"), done.stderr
    assert answers == {"audit": "look,it", "points": "0", "who": "nobody", "secret": "null", "end": "1"}
    assert done.stderr.count("Error: org.apache.hive") == 3, done.stderr
    assert state_of(place) == before
    assert not list(Path(tempfile.gettempdir()).glob("lakebackup-thrift-*/gateway"))


def test_an_account_that_can_write_is_refused(place: Path) -> None:
    mine = find_account("root" if os.geteuid() == 0 else None)
    with pytest.raises(Refused, match=f"{mine.name} can write to {place}"):
        require_reader(mine, place / "catalog", [place])
    assert not list(place.rglob(".lakebackup-probe*"))


@ROOT_ONLY
@pytest.mark.parametrize("where", [".", "catalog", "catalog/audit/_delta_log"])
def test_one_folder_that_the_account_can_write_to_is_enough(where: str, place: Path) -> None:
    nobody = find_account(None)
    require_reader(nobody, place / "catalog", [place])
    (place / where).chmod(0o777)
    with pytest.raises(Refused, match="can write to"):
        require_reader(nobody, place / "catalog", [place])


@ROOT_ONLY
def test_an_account_that_cannot_read_is_told(place: Path) -> None:
    (place / "catalog" / "files").chmod(0o700)
    with pytest.raises(EnvironmentProblem, match=r"cannot read /.*/catalog/files"):
        require_reader(find_account(None), place / "catalog", [place])


def test_an_account_that_is_not_there() -> None:
    with pytest.raises(NotFound, match="no account nobody-of-that-name"):
        find_account("nobody-of-that-name")


@pytest.mark.long
def test_a_notebook_asks_through_spark_connect(place: Path, empty_catalog: Path, s3: S3Proxy) -> None:
    program = """
        import sys
        from pyspark.sql import SparkSession
        from lakebackup.sql_engine.spark import SparkEngine

        spark = SparkSession.builder.remote(sys.argv[1]).getOrCreate()
        engine = SparkEngine(spark, sys.argv[2])
        engine.register()
        print(spark.sql("SELECT action FROM audit").collect()[0][0])
        print(engine.select("SELECT count(*) AS points FROM restore_points").collect()[0].points)
        SparkEngine(spark, sys.argv[3]).register(["audit"])
        print(spark.sql("SELECT action FROM audit").collect()[0][0])
        source = spark.read.format("lakebackup").option("view", "audit").option("columns", "action")
        print(source.load(sys.argv[2].removesuffix("/catalog")).collect()[0][0])
    """
    uri = put_catalog(f"s3://{s3.bucket()}/backups", empty_catalog)
    entry = Audit(at=1, actor="me", action="see", subject="it", detail="{}")
    CatalogWriter(None, uri).append_audit(entry)
    with served("connect", "--port", str(free_port())) as (_, url):
        done = subprocess.run(
            [sys.executable, "-c", textwrap.dedent(program), url, f"{place}/catalog", f"{uri}/catalog"],
            capture_output=True,
            text=True,
            check=False,
            timeout=900,
        )
    assert done.stdout.split() == ["look", "0", "see", "look"], done.stderr


@pytest.mark.long
@pytest.mark.parametrize(
    ("flags", "text"),
    [
        (["--master", "nonsense"], "Master must either be yarn or start with spark"),
        (["--master", "local[x]"], "Could not parse Master URL: 'local[x]'"),
        (["--master", "spark://127.0.0.1:1"], "its master does not answer"),
        (["--spark-conf", "spark.driver.memory=abc"], "Invalid maximum heap size"),
        (["--spark-conf", "spark.sql.shuffle.partitions=x"], "spark.sql.shuffle.partitions should be int"),
        (["--spark-conf", "spark.task.cpus=x"], "spark.task.cpus should be int, but was x"),
    ],
)
def test_settings_with_which_spark_does_not_start(flags: list[str], text: str, place: Path) -> None:
    """A JVM of its own each: only there an option of Spark can be wrong. A minute for the master."""
    command = [sys.executable, "-m", "lakebackup_jobs", "catalog", "optimize", "--repo", str(place), *flags]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=600)
    assert done.returncode == 6, done.stderr
    assert done.stderr.startswith(f"error: Spark did not start: {text}")
    assert len(done.stderr.splitlines()) == 2  # the hint, and no traceback
