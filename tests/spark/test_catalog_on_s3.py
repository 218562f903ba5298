"""The catalog in object storage: nothing that was acknowledged is lost, and reading it takes few requests."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from typing import TYPE_CHECKING, Any

import botocore.httpsession
import pyarrow as pa
import pytest
from tests.support.catalogs import APPEND_MANY, backup_id, manifest, publish
from tests.support.s3 import put_catalog
from tests.support.s3_faults import STATUS_OF, FaultProxy

from lakebackup.errors import Damaged, EnvironmentProblem, NoPermission, Refused
from lakebackup.rows.tables import ARROW_SCHEMAS, as_row, spark_columns
from lakebackup.rows.upkeep import Audit
from lakebackup.sql_engine.delta.dataset import rows_of
from lakebackup.sql_engine.delta.log import FOLDER, remote_log
from lakebackup.sql_engine.delta.table import append, commit, open_table, write_rows
from lakebackup.sql_engine.spark import SparkEngine
from lakebackup.storage import Storage, open_storage
from lakebackup.store.behind import current_catalog
from lakebackup.store.lease import Lease
from lakebackup.store.reader import CatalogReader
from lakebackup.store.writer import CatalogWriter
from lakebackup_sql import names

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

    from pyspark.sql import SparkSession
    from tests.support.s3 import S3Proxy

pytestmark = [pytest.mark.spark, pytest.mark.s3]


@pytest.fixture
def place(s3: S3Proxy, empty_catalog: Path) -> str:
    """A destination with a catalog without rows."""
    return put_catalog(f"s3://{s3.bucket()}/a place/ü", empty_catalog)


@pytest.fixture
def requests(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Method and address of each request that this process makes."""
    made: list[str] = []
    send = botocore.httpsession.URLLib3Session.send

    def counted(session: botocore.httpsession.URLLib3Session, request: object) -> object:
        made.append(f"{request.method} {request.url}")  # type: ignore[attr-defined]
        return send(session, request)  # type: ignore[arg-type]

    monkeypatch.setattr(botocore.httpsession.URLLib3Session, "send", counted)
    return made


def entry(actor: str, at: int) -> Audit:
    return Audit(at=at, actor=actor, action="a", subject="s", detail="{}")


def log_of(catalog: Storage, table: str) -> list[str]:
    return [found.path.rpartition("/")[2] for found in catalog.list(f"{table}/{FOLDER}/")]


def test_spark_makes_a_catalog_there_and_both_engines_read_it(spark: SparkSession, s3: S3Proxy) -> None:
    uri = f"s3://{s3.bucket()}"
    assert CatalogReader.open(uri) is None
    storage, writer = open_storage(uri), CatalogWriter(spark, uri)
    assert writer.migrate() == len(names("migrations"))
    publish(storage, writer, manifest(1))
    engine = SparkEngine(spark, writer.catalog_uri)
    assert [row.number for row in engine.query("list_backups", source=None).collect()] == [1]
    publish(storage, writer, manifest(2, topics=("orders", "payments")))
    assert [row.number for row in engine.query("list_backups", source=None).collect()] == [2, 1]
    writer.set_states([backup_id(2)], "deleted", actor="test", reason="test")
    reader = CatalogReader.require(uri)
    assert {row["number"]: row["state"] for row in reader.rows("list_backups", source=None)} == {
        1: "complete",
        2: "deleted",
    }
    assert engine.table("files").count() == 6
    assert reader.destinations().uris == {engine.table("destinations").collect()[0].destination: uri}


@pytest.mark.long
@pytest.mark.parametrize(("processes", "each"), [(2, 5), pytest.param(4, 50, id="many")])
def test_commits_of_processes_and_of_spark_are_all_kept_though_one_is_killed(
    spark: SparkSession, place: str, processes: int, each: int
) -> None:
    catalog = open_storage(f"{place}/catalog")
    command = [sys.executable, "-c", APPEND_MANY, catalog.uri]
    workers = [subprocess.Popen([*command, str(process), str(each)]) for process in range(processes)]
    with subprocess.Popen([*command, "killed", "1000000"], stdout=subprocess.PIPE) as victim:
        assert victim.stdout
        said = [int(victim.stdout.readline()) for _ in range(min(each, 10))]
        victim.kill()
        said += [int(line) for line in victim.stdout]
    for number in range(processes):
        frame = spark.createDataFrame([as_row(entry("spark", number))], spark_columns("audit"))
        with Lease.acquire(catalog, "catalog", "spark", wait_s=120):
            frame.write.format("delta").mode("append").save(f"{catalog.uri}/audit")
    assert [worker.wait(240) for worker in workers] == [0] * processes

    found = rows_of(f"{catalog.uri}/audit")
    rows = sorted(zip(found["actor"].to_pylist(), found["at"].to_pylist(), strict=True))
    assert len(rows) == len(set(rows))
    acknowledged = {(str(process), number) for process in range(processes) for number in range(each)}
    acknowledged |= {("spark", number) for number in range(processes)} | {
        ("killed", number) for number in said
    }
    unsaid = set(rows) - acknowledged
    assert acknowledged <= set(rows)
    assert unsaid <= {("killed", said[-1] + 1)}  # what was on its way may be there
    versions = [int(name[:20]) for name in log_of(catalog, "audit") if name.endswith(".json")]
    assert versions == list(range(1 + len(rows)))
    assert SparkEngine(spark, catalog.uri).table("audit").count() == len(rows)


def test_of_two_commits_behind_one_version_both_are_kept(place: str) -> None:
    catalog = open_storage(f"{place}/catalog")
    schema = ARROW_SCHEMAS["audit"]
    added = [
        write_rows(catalog, "audit", pa.Table.from_pylist([as_row(entry(actor, 1))], schema))
        for actor in "xy"
    ]
    # Without the lease, as if it had been lost: the conditional put alone decides.
    threads = [threading.Thread(target=commit, args=(catalog, "audit", [a], a)) for a in added]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not commit(catalog, "audit", added[:1], added[0])
    assert sorted(rows_of(f"{catalog.uri}/audit")["actor"].to_pylist()) == ["x", "y"]


def test_few_requests(place: str, requests: list[str]) -> None:
    catalog = open_storage(f"{place}/catalog")
    append(catalog, "audit", [entry("a", 0)], "0")
    for number in range(1, 12):
        requests.clear()
        append(catalog, "audit", [entry("a", number)], f"{number}")
        wanted = ["GET", "PUT", "PUT"]  # what is new, the file, the commit; and a checkpoint now and then
        assert [one.split()[0] for one in requests[:3]] == wanted
        assert len(requests) == (5 if number % 10 == 0 else 3), requests
    requests.clear()
    assert not append(catalog, "audit", [entry("a", 11)], "11")
    assert len(requests) == 1
    requests.clear()
    assert len(rows_of(f"{catalog.uri}/audit")) == 12
    assert len(requests) == 13  # the listing, and each file once


def test_a_lost_commit_is_noticed(place: str) -> None:
    """A backup's own row comes last: the log of `backups` notes how far the other tables were."""
    storage, writer = open_storage(place), CatalogWriter(None, place)
    for number in (1, 2):
        publish(storage, writer, manifest(number))
    assert CatalogReader(place).tables_behind() == []
    catalog = open_storage(f"{place}/catalog")
    newest = max(name for name in log_of(catalog, "positions") if name.endswith(".json"))
    catalog.delete(f"positions/{FOLDER}/{newest}")
    with pytest.raises(Refused, match="newest commits of positions are not there"):
        current_catalog(place)


def test_another_table_in_its_place_is_not_taken_for_it(place: str, empty_catalog: Path) -> None:
    catalog = open_storage(f"{place}/catalog")
    for number in range(3):
        append(catalog, "audit", [entry("old", number)], f"old {number}")
    for found in catalog.list("audit/"):
        catalog.delete(found.path)
    put_catalog(place, empty_catalog)
    code = (
        "import sys; from lakebackup.sql_engine.delta.table import append; "
        "from lakebackup.rows.upkeep import Audit;"
        "from lakebackup.storage import open_storage\n"
        "for n in range(4): append(open_storage(sys.argv[1]), 'audit',"
        " [Audit(at=n, actor='a longer name', action='a', subject='s', detail='{}')], str(n))"
    )
    subprocess.run([sys.executable, "-c", code, catalog.uri], check=True)
    assert set(rows_of(f"{catalog.uri}/audit")["actor"].to_pylist()) == {"a longer name"}


def test_a_reader_of_its_own_needs_no_entry_before_the_checkpoint(place: str) -> None:
    catalog = open_storage(f"{place}/catalog")
    for number in range(12):
        append(catalog, "audit", [entry("a", number)], f"{number}")
    for name in log_of(catalog, "audit"):
        if name[:20] < f"{10:020d}":
            catalog.delete(f"audit/{FOLDER}/{name}")
    code = (
        "import sys; from lakebackup.sql_engine.delta.dataset import rows_of; "
        "print(len(rows_of(sys.argv[1])))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, f"{catalog.uri}/audit"], capture_output=True, text=True, check=True
    )
    assert int(done.stdout) == 12


def test_a_file_with_another_byte_is_noticed(place: str) -> None:
    catalog = open_storage(f"{place}/catalog")
    append(catalog, "audit", [entry("a", 1)], "1")
    (file,) = (found.path for found in catalog.list("audit/") if found.path.endswith(".parquet"))
    data = bytearray(catalog.get(file))
    data[len(data) // 2] ^= 1
    catalog.put(file, bytes(data))
    with pytest.raises(Damaged, match="checksum"):
        rows_of(f"{catalog.uri}/audit")
    catalog.put(f"audit/{FOLDER}/{open_table(f'{catalog.uri}/audit').version() + 1:020d}.json", b"")
    with pytest.raises(Damaged, match="is empty"):
        open_table(f"{catalog.uri}/audit")


def test_a_file_that_is_gone_is_not_taken_for_no_catalog(place: str) -> None:
    catalog = open_storage(f"{place}/catalog")
    append(catalog, "audit", [entry("a", 1)], "1")
    for table in ("audit", "migrations"):
        for found in list(catalog.list(f"{table}/")):
            if found.path.endswith(".parquet"):
                catalog.delete(found.path)
    with pytest.raises(Damaged, match="is gone") as told:
        CatalogReader.open(place)
    assert "catalog rebuild" in told.value.hint
    with pytest.raises(Damaged, match="is gone"):
        CatalogReader(place).select("SELECT * FROM audit").read_all()


def test_a_checkpoint_that_cannot_be_put_does_not_fail_a_commit(
    place: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    catalog = open_storage(f"{place}/catalog")
    put = type(catalog).put

    def refused(storage: Storage, path: str, data: bytes, **how: Any) -> None:
        if "checkpoint" in path:
            raise EnvironmentProblem("SlowDown")
        put(storage, path, data, **how)

    monkeypatch.setattr(type(catalog), "put", refused)
    for number in range(12):
        assert append(catalog, "audit", [entry("a", number)], f"{number}")
    assert "no new checkpoint: SlowDown" in caplog.text
    assert len(rows_of(f"{catalog.uri}/audit")) == 12
    monkeypatch.undo()
    for number in range(12, 24):
        assert append(catalog, "audit", [entry("a", number)], f"{number}")
    assert [name for name in log_of(catalog, "audit") if "checkpoint" in name]
    assert len(rows_of(f"{catalog.uri}/audit")) == 24


def test_what_the_jvm_is_refused_ends_as_what_python_is_refused(
    spark: SparkSession, s3: S3Proxy, place: str
) -> None:
    bucket = place.removeprefix("s3://").partition("/")[0]
    settings = spark._jsc.hadoopConfiguration()  # type: ignore[attr-defined]
    with FaultProxy(s3.port, rights=frozenset()) as proxy:
        settings.set(f"fs.s3a.bucket.{bucket}.endpoint", proxy.endpoint)
        with pytest.raises(NoPermission, match=f"in s3://{bucket}.* answers AccessDenied") as refused:
            SparkEngine(spark, f"{place}/catalog").table("audit").count()
    assert "s3:ListBucket" in refused.value.hint
    with pytest.raises(EnvironmentProblem, match="There is no bucket no-such-bucket-of-mine at http"):
        SparkEngine(spark, "s3://no-such-bucket-of-mine/catalog").table("audit").count()


@pytest.fixture
def faulty(
    spark: SparkSession, s3: S3Proxy, place: str, monkeypatch: pytest.MonkeyPatch
) -> Iterator[FaultProxy]:
    """A proxy that the JVM and this process use for `place`."""
    bucket = place.removeprefix("s3://").partition("/")[0]
    with FaultProxy(s3.port) as proxy:
        settings = spark._jsc.hadoopConfiguration()  # type: ignore[attr-defined]
        settings.set(f"fs.s3a.bucket.{bucket}.endpoint", proxy.endpoint)
        monkeypatch.setenv("AWS_ENDPOINT_URL_S3", proxy.endpoint)
        yield proxy


@pytest.mark.parametrize("word", sorted(STATUS_OF))
def test_an_error_of_s3_ends_as_one_sentence_on_both_paths(
    spark: SparkSession, place: str, faulty: FaultProxy, word: Any
) -> None:
    for method in ("GET", "HEAD"):
        faulty.fail(word, method, times=99)
    errors = []
    for read in (
        lambda: open_storage(place).get("catalog/audit/_delta_log"),
        lambda: SparkEngine(spark, f"{place}/catalog").table("audit").count(),
    ):
        with pytest.raises(EnvironmentProblem) as refused:
            read()
        errors.append(refused.value)
    in_python, in_the_jvm = errors
    assert (in_the_jvm.hint, in_the_jvm.exit_code) == (in_python.hint, 6)
    text = "There is no bucket" if word == "NoSuchBucket" else f"{faulty.endpoint} answers {word}"
    assert text in in_python.message
    assert text in in_the_jvm.message


@pytest.mark.parametrize("kind", ["503", "reset", "cut", pytest.param("slow", marks=pytest.mark.long)])
def test_what_passes_is_tried_again_on_both_paths(
    spark: SparkSession, place: str, faulty: FaultProxy, monkeypatch: pytest.MonkeyPatch, kind: Any
) -> None:
    monkeypatch.setenv("LAKEBACKUP_S3__READ_TIMEOUT", "2")
    times = 1 if kind == "slow" else 2
    for read in (
        lambda: list(open_storage(place).list("catalog/audit/_delta_log/")),
        lambda: SparkEngine(spark, f"{place}/catalog").table("audit").schema.fields,
    ):
        faulty.fail(kind, "GET", times=times)
        assert read()
        assert faulty.faults.pop().times == 0


@pytest.mark.parametrize("engine", ["duck", "spark"])
def test_a_backup_that_comes_while_the_catalog_is_looked_at_is_seen_whole_or_not_at_all(
    spark: SparkSession, place: str, monkeypatch: pytest.MonkeyPatch, engine: str
) -> None:
    storage, writer = open_storage(place), CatalogWriter(spark, place)
    publish(storage, writer, manifest(1))
    asked = CatalogReader.require(place) if engine == "duck" else SparkEngine(spark, writer.catalog_uri)
    commits = [manifest(2)]

    def slow(uris: Iterable[str]) -> None:
        """The least welcome of the orders in which answers to requests side by side come."""
        for uri in sorted(uris, reverse=True):
            remote_log(uri).refresh()
            if uri.endswith("/files"):
                publish(storage, writer, commits.pop())

    monkeypatch.setattr(f"lakebackup.sql_engine.{engine}.prefetch", slow)
    seen = asked.select(
        "SELECT b.backup_id, count(f.path) AS files FROM backups b LEFT JOIN files f "
        "ON f.backup_id = b.backup_id GROUP BY b.backup_id"
    )
    rows = seen.read_all() if isinstance(seen, pa.RecordBatchReader) else seen.toArrow()
    assert not commits
    assert rows.to_pylist() == [{"backup_id": backup_id(1), "files": 2}]


@pytest.mark.long
def test_it_is_kept_small_and_looked_back_at(spark: SparkSession, place: str) -> None:
    storage, writer = open_storage(place), CatalogWriter(spark, place)
    publish(storage, writer, manifest(1))
    then = time.time_ns() // 1000
    for number in (2, 3):
        publish(storage, writer, manifest(number))
    table = f"{writer.catalog_uri}/backups"
    assert len(open_table(table).file_uris()) == 3
    writer.optimize("backups", retain_hours=168.0)
    assert len(open_table(table).file_uris()) == 1
    publish(storage, writer, manifest(4))
    for at, count in ((then, 1), (None, 4)):
        reader = CatalogReader.require(place, as_of=at)
        assert [row["number"] for row in reader.rows("list_backups", source=None)] == list(
            range(count, 0, -1)
        )
        engine = SparkEngine(spark, writer.catalog_uri, as_of=at)
        assert engine.query("list_files", backup_id=backup_id(1)).count() == 2
    assert CatalogReader.require(place).one("show_backup", backup_id=backup_id(4)) is not None
