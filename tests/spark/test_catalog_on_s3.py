"""The catalog in object storage: no acknowledged commit is lost, and reading it takes few requests."""

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
def repo_uri(s3: S3Proxy, empty_catalog: Path) -> str:
    """The URI of a destination with a catalog without rows."""
    return put_catalog(f"s3://{s3.bucket()}/a place/ü", empty_catalog)


@pytest.fixture
def requests(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Method and URL of each request that this process sends."""
    sent_requests: list[str] = []
    send = botocore.httpsession.URLLib3Session.send

    def recording_send(session: botocore.httpsession.URLLib3Session, request: object) -> object:
        sent_requests.append(f"{request.method} {request.url}")  # type: ignore[attr-defined]
        return send(session, request)  # type: ignore[arg-type]

    monkeypatch.setattr(botocore.httpsession.URLLib3Session, "send", recording_send)
    return sent_requests


def entry(actor: str, instant: int) -> Audit:
    return Audit(at=instant, actor=actor, action="a", subject="s", detail="{}")


def log_of(catalog: Storage, table: str) -> list[str]:
    return [blob.path.rpartition("/")[2] for blob in catalog.list(f"{table}/{FOLDER}/")]


def test_spark_makes_a_catalog_on_s3_and_both_engines_read_it(spark: SparkSession, s3: S3Proxy) -> None:
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
def test_no_commit_is_lost_when_a_writer_is_killed(
    spark: SparkSession, repo_uri: str, processes: int, each: int
) -> None:
    catalog = open_storage(f"{repo_uri}/catalog")
    command = [sys.executable, "-c", APPEND_MANY, catalog.uri]
    workers = [subprocess.Popen([*command, str(process), str(each)]) for process in range(processes)]
    with subprocess.Popen([*command, "killed", "1000000"], stdout=subprocess.PIPE) as victim:
        assert victim.stdout
        printed_numbers = [int(victim.stdout.readline()) for _ in range(min(each, 10))]
        victim.kill()
        printed_numbers += [int(line) for line in victim.stdout]
    for number in range(processes):
        frame = spark.createDataFrame([as_row(entry("spark", number))], spark_columns("audit"))
        with Lease.acquire(catalog, "catalog", "spark", wait_s=120):
            frame.write.format("delta").mode("append").save(f"{catalog.uri}/audit")
    assert [worker.wait(240) for worker in workers] == [0] * processes

    table = rows_of(f"{catalog.uri}/audit")
    rows = sorted(zip(table["actor"].to_pylist(), table["at"].to_pylist(), strict=True))
    assert len(rows) == len(set(rows))
    acknowledged = {(str(process), number) for process in range(processes) for number in range(each)}
    acknowledged |= {("spark", number) for number in range(processes)} | {
        ("killed", number) for number in printed_numbers
    }
    unacknowledged = set(rows) - acknowledged
    assert acknowledged <= set(rows)
    assert unacknowledged <= {
        ("killed", printed_numbers[-1] + 1)
    }  # the commit in progress may have succeeded
    versions = [int(name[:20]) for name in log_of(catalog, "audit") if name.endswith(".json")]
    assert versions == list(range(1 + len(rows)))
    assert SparkEngine(spark, catalog.uri).table("audit").count() == len(rows)


def test_two_commits_after_one_version_are_both_kept(repo_uri: str) -> None:
    catalog = open_storage(f"{repo_uri}/catalog")
    schema = ARROW_SCHEMAS["audit"]
    added = [
        write_rows(catalog, "audit", pa.Table.from_pylist([as_row(entry(actor, 1))], schema))
        for actor in "xy"
    ]
    # Without the lease, as if it had been lost: only the conditional put protects the commits.
    threads = [threading.Thread(target=commit, args=(catalog, "audit", [a], a)) for a in added]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not commit(catalog, "audit", added[:1], added[0])
    assert sorted(rows_of(f"{catalog.uri}/audit")["actor"].to_pylist()) == ["x", "y"]


def test_an_append_takes_few_requests(repo_uri: str, requests: list[str]) -> None:
    catalog = open_storage(f"{repo_uri}/catalog")
    append(catalog, "audit", [entry("a", 0)], "0")
    for number in range(1, 12):
        requests.clear()
        append(catalog, "audit", [entry("a", number)], f"{number}")
        expected = [
            "GET",
            "PUT",
            "PUT",
        ]  # the newest commits, the file, the commit; and a checkpoint now and then
        assert [request.split()[0] for request in requests[:3]] == expected
        assert len(requests) == (5 if number % 10 == 9 else 3), requests
    requests.clear()
    assert not append(catalog, "audit", [entry("a", 11)], "11")
    assert len(requests) == 1
    requests.clear()
    assert len(rows_of(f"{catalog.uri}/audit")) == 12
    assert len(requests) == 13  # the listing, and each file once


def test_a_lost_commit_is_noticed(repo_uri: str) -> None:
    """The row of `backups` is committed last: its log notes the versions of the other tables."""
    storage, writer = open_storage(repo_uri), CatalogWriter(None, repo_uri)
    for number in (1, 2):
        publish(storage, writer, manifest(number))
    assert CatalogReader(repo_uri).tables_behind() == []
    catalog = open_storage(f"{repo_uri}/catalog")
    newest = max(name for name in log_of(catalog, "positions") if name.endswith(".json"))
    catalog.delete(f"positions/{FOLDER}/{newest}")
    with pytest.raises(Refused, match="newest commits of positions are not there"):
        current_catalog(repo_uri)


def test_a_table_in_place_of_another_is_read_anew(repo_uri: str, empty_catalog: Path) -> None:
    catalog = open_storage(f"{repo_uri}/catalog")
    for number in range(3):
        append(catalog, "audit", [entry("old", number)], f"old {number}")
    for blob in catalog.list("audit/"):
        catalog.delete(blob.path)
    put_catalog(repo_uri, empty_catalog)
    code = (
        "import sys; from lakebackup.sql_engine.delta.table import append; "
        "from lakebackup.rows.upkeep import Audit;"
        "from lakebackup.storage import open_storage\n"
        "for n in range(4): append(open_storage(sys.argv[1]), 'audit',"
        " [Audit(at=n, actor='a longer name', action='a', subject='s', detail='{}')], str(n))"
    )
    subprocess.run([sys.executable, "-c", code, catalog.uri], check=True)
    assert set(rows_of(f"{catalog.uri}/audit")["actor"].to_pylist()) == {"a longer name"}


def test_a_new_reader_needs_no_commit_before_the_checkpoint(repo_uri: str) -> None:
    catalog = open_storage(f"{repo_uri}/catalog")
    for number in range(12):
        append(catalog, "audit", [entry("a", number)], f"{number}")
    for name in log_of(catalog, "audit"):
        if name[:20] < f"{9:020d}":  # the version of the checkpoint
            catalog.delete(f"audit/{FOLDER}/{name}")
    code = (
        "import sys; from lakebackup.sql_engine.delta.dataset import rows_of; "
        "print(len(rows_of(sys.argv[1])))"
    )
    process = subprocess.run(
        [sys.executable, "-c", code, f"{catalog.uri}/audit"], capture_output=True, text=True, check=True
    )
    assert int(process.stdout) == 12


def test_a_flipped_bit_is_noticed(repo_uri: str) -> None:
    catalog = open_storage(f"{repo_uri}/catalog")
    append(catalog, "audit", [entry("a", 1)], "1")
    (file,) = (blob.path for blob in catalog.list("audit/") if blob.path.endswith(".parquet"))
    data = bytearray(catalog.get(file))
    data[len(data) // 2] ^= 1
    catalog.put(file, bytes(data))
    with pytest.raises(Damaged, match="checksum"):
        rows_of(f"{catalog.uri}/audit")
    catalog.put(f"audit/{FOLDER}/{open_table(f'{catalog.uri}/audit').version() + 1:020d}.json", b"")
    with pytest.raises(Damaged, match="is empty"):
        open_table(f"{catalog.uri}/audit")


def test_a_missing_file_is_damage_and_not_a_missing_catalog(repo_uri: str) -> None:
    catalog = open_storage(f"{repo_uri}/catalog")
    append(catalog, "audit", [entry("a", 1)], "1")
    for table in ("audit", "migrations"):
        for blob in list(catalog.list(f"{table}/")):
            if blob.path.endswith(".parquet"):
                catalog.delete(blob.path)
    with pytest.raises(Damaged, match="is gone") as caught:
        CatalogReader.open(repo_uri)
    assert "catalog rebuild" in caught.value.hint
    with pytest.raises(Damaged, match="is gone"):
        CatalogReader(repo_uri).select("SELECT * FROM audit").read_all()


def test_a_commit_succeeds_without_its_checkpoint(
    repo_uri: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    catalog = open_storage(f"{repo_uri}/catalog")
    original_put = type(catalog).put

    def put_without_checkpoints(storage: Storage, path: str, data: bytes, **options: Any) -> None:
        if "checkpoint" in path:
            raise EnvironmentProblem("SlowDown")
        original_put(storage, path, data, **options)

    monkeypatch.setattr(type(catalog), "put", put_without_checkpoints)
    for number in range(12):
        assert append(catalog, "audit", [entry("a", number)], f"{number}")
    assert "no new checkpoint: SlowDown" in caplog.text
    assert len(rows_of(f"{catalog.uri}/audit")) == 12
    monkeypatch.undo()
    for number in range(12, 24):
        assert append(catalog, "audit", [entry("a", number)], f"{number}")
    assert [name for name in log_of(catalog, "audit") if "checkpoint" in name]
    assert len(rows_of(f"{catalog.uri}/audit")) == 24


def test_refusals_to_the_jvm_are_reported_as_those_to_python(
    spark: SparkSession, s3: S3Proxy, repo_uri: str
) -> None:
    bucket = repo_uri.removeprefix("s3://").partition("/")[0]
    settings = spark._jsc.hadoopConfiguration()  # type: ignore[attr-defined]
    with FaultProxy(s3.port, rights=frozenset()) as proxy:
        settings.set(f"fs.s3a.bucket.{bucket}.endpoint", proxy.endpoint)
        with pytest.raises(NoPermission, match=f"in s3://{bucket}.* answers AccessDenied") as refused:
            SparkEngine(spark, f"{repo_uri}/catalog").table("audit").count()
    assert "s3:ListBucket" in refused.value.hint
    with pytest.raises(EnvironmentProblem, match="There is no bucket no-such-bucket-of-mine at http"):
        SparkEngine(spark, "s3://no-such-bucket-of-mine/catalog").table("audit").count()


@pytest.fixture
def faulty(
    spark: SparkSession, s3: S3Proxy, repo_uri: str, monkeypatch: pytest.MonkeyPatch
) -> Iterator[FaultProxy]:
    """A proxy that the JVM and this process use for `repo_uri`."""
    bucket = repo_uri.removeprefix("s3://").partition("/")[0]
    with FaultProxy(s3.port) as proxy:
        settings = spark._jsc.hadoopConfiguration()  # type: ignore[attr-defined]
        settings.set(f"fs.s3a.bucket.{bucket}.endpoint", proxy.endpoint)
        monkeypatch.setenv("AWS_ENDPOINT_URL_S3", proxy.endpoint)
        yield proxy


@pytest.mark.parametrize("word", sorted(STATUS_OF))
def test_an_error_of_s3_becomes_one_sentence_on_both_paths(
    spark: SparkSession, repo_uri: str, faulty: FaultProxy, word: Any
) -> None:
    for method in ("GET", "HEAD"):
        faulty.fail(word, method, times=99)
    errors = []
    for read in (
        lambda: open_storage(repo_uri).get("catalog/audit/_delta_log"),
        lambda: SparkEngine(spark, f"{repo_uri}/catalog").table("audit").count(),
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
def test_transient_errors_are_retried_on_both_paths(
    spark: SparkSession, repo_uri: str, faulty: FaultProxy, monkeypatch: pytest.MonkeyPatch, kind: Any
) -> None:
    monkeypatch.setenv("LAKEBACKUP_S3__READ_TIMEOUT", "2")
    times = 1 if kind == "slow" else 2
    for read in (
        lambda: list(open_storage(repo_uri).list("catalog/audit/_delta_log/")),
        lambda: SparkEngine(spark, f"{repo_uri}/catalog").table("audit").schema.fields,
    ):
        faulty.fail(kind, "GET", times=times)
        assert read()
        assert faulty.faults.pop().times == 0


@pytest.mark.parametrize("engine", ["duck", "spark"])
def test_a_backup_published_during_a_query_is_seen_whole_or_not_at_all(
    spark: SparkSession, repo_uri: str, monkeypatch: pytest.MonkeyPatch, engine: str
) -> None:
    storage, writer = open_storage(repo_uri), CatalogWriter(spark, repo_uri)
    publish(storage, writer, manifest(1))
    catalog = CatalogReader.require(repo_uri) if engine == "duck" else SparkEngine(spark, writer.catalog_uri)
    commits = [manifest(2)]

    def publish_during_refresh(uris: Iterable[str]) -> None:
        """The worst order in which the answers to parallel requests can arrive."""
        for uri in sorted(uris, reverse=True):
            remote_log(uri).refresh()
            if uri.endswith("/files"):
                publish(storage, writer, commits.pop())

    monkeypatch.setattr(f"lakebackup.sql_engine.{engine}.prefetch", publish_during_refresh)
    answer = catalog.select(
        "SELECT b.backup_id, count(f.path) AS files FROM backups b LEFT JOIN files f "
        "ON f.backup_id = b.backup_id GROUP BY b.backup_id"
    )
    rows = answer.read_all() if isinstance(answer, pa.RecordBatchReader) else answer.toArrow()
    assert not commits
    assert rows.to_pylist() == [{"backup_id": backup_id(1), "files": 2}]


@pytest.mark.long
def test_optimize_and_as_of_work_on_s3(spark: SparkSession, repo_uri: str) -> None:
    storage, writer = open_storage(repo_uri), CatalogWriter(spark, repo_uri)
    publish(storage, writer, manifest(1))
    first_us = time.time_ns() // 1000
    for number in (2, 3):
        publish(storage, writer, manifest(number))
    table = f"{writer.catalog_uri}/backups"
    assert len(open_table(table).file_uris()) == 3
    writer.optimize("backups", retain_ms=7 * 86_400_000)
    assert len(open_table(table).file_uris()) == 1
    publish(storage, writer, manifest(4))
    for as_of, count in ((first_us, 1), (None, 4)):
        reader = CatalogReader.require(repo_uri, as_of=as_of)
        assert [row["number"] for row in reader.rows("list_backups", source=None)] == list(
            range(count, 0, -1)
        )
        engine = SparkEngine(spark, writer.catalog_uri, as_of=as_of)
        assert engine.query("list_files", backup_id=backup_id(1)).count() == 2
    assert CatalogReader.require(repo_uri).first_row("show_backup", backup_id=backup_id(4)) is not None
