"""Spark sessions, and the servers: each is started by its command and queried by a real client."""

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
    """Runs in a worker, which therefore needs the package and the Python of this process."""
    import pyarrow

    from lakebackup_jobs.runtime.java.jars import pinned

    for batch in batches:
        count = len(pinned("spark"))
        python = sys.executable
        yield pyarrow.RecordBatch.from_pylist(
            [{"jars": count, "python": python}] * batch.num_rows,
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
    (
        Path(folder) / f".{file.name}.crc"
    ).unlink()  # Hadoop's checksum file would reveal the change first; S3 has no such file
    with pytest.raises((PySparkException, Py4JError), match="CRC checksum verification failed"):
        spark.read.parquet(folder).collect()


def test_connectors_are_on_the_class_path(spark: SparkSession) -> None:
    from pyspark.sql.avro.functions import to_avro

    assert spark.range(1).select(to_avro("id").alias("a")).first() is not None
    reader = spark.read.format("kafka").option("kafka.bootstrap.servers", "127.0.0.1:9")
    assert "value" in reader.option("subscribe", "t").load().columns


def test_workers_use_this_package_and_this_python(spark: SparkSession) -> None:
    row = spark.range(1).mapInArrow(digests, "jars int, python string").first()
    assert row == (len(spark_settings()["spark.driver.extraClassPath"].split(":")), sys.executable)


@pytest.mark.long
def test_a_session_prints_nothing_at_its_start_and_end() -> None:
    """The JVM ends first, while its connection for accumulators is open."""
    program = (
        "from lakebackup_jobs.runtime import session; from lakebackup_jobs.runtime.java import jvm\n"
        "print(session.spark_session().sparkContext.parallelize(range(3)).count())\n"
        "jvm.end()\n"
    )
    process = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=180, check=False
    )
    assert (process.returncode, process.stdout, process.stderr) == (0, "3\n", "")


@pytest.mark.long
def test_settings_of_spark_submit_are_kept(tmp_path: Path) -> None:
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
    spark_options = ["--master", "local[1]", "--name", "mine", "--conf", "spark.sql.shuffle.partitions=7"]
    submit = str(Path(pyspark.__file__).parent / "bin" / "spark-submit")
    process = subprocess.run(
        [submit, *shlex.split(options), *spark_options, str(job)],
        env={**os.environ, "PYSPARK_PYTHON": sys.executable},
        capture_output=True, text=True, timeout=180, check=False,
    )  # fmt: skip
    assert process.returncode == 0, process.stderr
    assert process.stdout == "7 local[1] mine\n"


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
def repository(spark: SparkSession, empty_catalog: Path) -> Iterator[Path]:
    """A destination that everybody may read and only its owner may write."""
    folder = Path(tempfile.mkdtemp(prefix="lakebackup-test-serve-"))
    shutil.copytree(empty_catalog, folder / "catalog")
    destination_id(open_storage(str(folder)))
    writer = CatalogWriter(spark, str(folder))
    writer.append([Audit(at=1, actor="me", action="look", subject="it", detail="{}")])
    writer.register_home()
    for path in (folder, *folder.rglob("*")):
        path.chmod(0o755 if path.is_dir() else 0o644)
    yield folder
    shutil.rmtree(folder)


@contextmanager
def served(*arguments: str) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """A server in its own process, and the URL that it prints when it is ready; Ctrl-C ends it."""
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
        line = process.stdout.readline()
        assert line, process.stderr.read()
        yield process, json.loads(line)["url"]
        process.send_signal(signal.SIGINT)
        assert process.wait(240) == 0, process.stderr.read()
    finally:
        process.kill()
        process.communicate()


def state_of(folder: Path) -> dict[str, int]:
    return {str(path): path.stat().st_size for path in folder.rglob("*") if path.is_file()}


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
def test_a_jdbc_client_reads_the_views_and_can_change_nothing(repository: Path, tmp_path: Path) -> None:
    port = free_port()
    state_before = state_of(repository)
    with served("thrift", "--repo", str(repository), "--port", str(port)) as (_, url):
        assert url == f"jdbc:hive2://127.0.0.1:{port}/default"
        process = beeline(url, QUESTIONS.format(root=repository), tmp_path)
    # Without a terminal, beeline's drawing precedes each first line, which is the header.
    names = ("audit", "points", "who", "secret", "home", "end")
    lines = (line.split(",", 1) for line in process.stdout.splitlines() if "," in line)
    answers = {name: answer for name, answer in lines if name in names}
    assert answers.pop("home").rpartition("/")[2].startswith("lakebackup-thrift-"), process.stderr
    assert answers == {"audit": "look,it", "points": "0", "who": "nobody", "secret": "null", "end": "1"}
    assert process.stderr.count("Error: org.apache.hive") == 3, process.stderr
    assert state_of(repository) == state_before
    assert not list(Path(tempfile.gettempdir()).glob("lakebackup-thrift-*/gateway"))


def test_an_account_that_can_write_is_refused(repository: Path) -> None:
    account = find_account("root" if os.geteuid() == 0 else None)
    with pytest.raises(Refused, match=f"{account.name} can write to {repository}"):
        require_reader(account, repository / "catalog", [repository])
    assert not list(repository.rglob(".lakebackup-probe*"))


@ROOT_ONLY
@pytest.mark.parametrize("folder", [".", "catalog", "catalog/audit/_delta_log"])
def test_an_account_that_can_write_to_one_folder_is_refused(folder: str, repository: Path) -> None:
    nobody = find_account(None)
    require_reader(nobody, repository / "catalog", [repository])
    (repository / folder).chmod(0o777)
    with pytest.raises(Refused, match="can write to"):
        require_reader(nobody, repository / "catalog", [repository])


@ROOT_ONLY
def test_an_account_that_cannot_read_is_refused(repository: Path) -> None:
    (repository / "catalog" / "files").chmod(0o700)
    with pytest.raises(EnvironmentProblem, match=r"cannot read /.*/catalog/files"):
        require_reader(find_account(None), repository / "catalog", [repository])


def test_an_unknown_account_is_refused() -> None:
    with pytest.raises(NotFound, match="no account nobody-of-that-name"):
        find_account("nobody-of-that-name")


@pytest.mark.long
def test_a_notebook_queries_through_spark_connect(repository: Path, empty_catalog: Path, s3: S3Proxy) -> None:
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
        process = subprocess.run(
            [sys.executable, "-c", textwrap.dedent(program), url, f"{repository}/catalog", f"{uri}/catalog"],
            capture_output=True,
            text=True,
            check=False,
            timeout=900,
        )
    assert process.stdout.split() == ["look", "0", "see", "look"], process.stderr


_WRONG_TYPE = """[INVALID_CONF_VALUE.TYPE_MISMATCH] The value 'x' in the config "{}" """


@pytest.mark.long
@pytest.mark.parametrize(
    ("flags", "text"),
    [
        (["--master", "nonsense"], "Master must either be yarn or start with spark"),
        (["--master", "local[x]"], "Could not parse Master URL: 'local[x]'"),
        (["--master", "spark://127.0.0.1:1"], "its master does not answer"),
        (["--spark-conf", "spark.driver.memory=abc"], "Invalid maximum heap size"),
        (
            ["--spark-conf", "spark.sql.shuffle.partitions=x"],
            _WRONG_TYPE.format("spark.sql.shuffle.partitions"),
        ),
        (["--spark-conf", "spark.task.cpus=x"], _WRONG_TYPE.format("spark.task.cpus")),
    ],
)
def test_invalid_spark_settings_are_reported(flags: list[str], text: str, repository: Path) -> None:
    """Each starts its own JVM, since only there an option of Spark can be wrong. A minute for the master."""
    command = [
        sys.executable,
        "-m",
        "lakebackup_jobs",
        "sql",
        "SELECT 1 AS n",
        "--engine",
        "spark",
        "--repo",
        str(repository),
        *flags,
    ]
    process = subprocess.run(command, capture_output=True, text=True, check=False, timeout=600)
    assert process.returncode == 6, process.stderr
    assert process.stderr.startswith(f"error: Spark did not start: {text}")
    assert len(process.stderr.splitlines()) == 2  # the hint, and no traceback
