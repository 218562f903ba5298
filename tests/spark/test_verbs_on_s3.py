"""Every verb on a destination and a catalog in S3: queries, policies and holds, restores, exports, archives.

Backups and restores of topics, follow, compact, merge, prune, verify, rebuild: tests/kafka/test_s3.py;
`catalog optimize`: test_catalog_on_s3.py; `serve connect`: test_sessions_and_servers.py.
"""

from __future__ import annotations

import io
import json
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

import fastavro
import pytest
from tests.support.archives import Doc, read_archive, write_backup
from tests.support.made_backups import MadeBackups, Record
from tests.support.s3 import put_catalog

from lakebackup.storage import open_storage
from lakebackup.store.lease import Lease
from lakebackup.store.writer import CatalogWriter

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from pyspark.sql import SparkSession
    from tests.support.command_line import Commands
    from tests.support.s3 import S3Proxy

pytestmark = [pytest.mark.spark, pytest.mark.s3]
SOURCE, BACKUP_TIME = "prod", "2014-02-02T020000Z"


def records(first: int, end: int, partition: int = 0) -> list[Record]:
    return [
        Record(partition, offset, 1000 * offset, b"k%d" % (offset % 4), b'{"n": %d}' % offset)
        for offset in range(first, end)
    ]


@dataclass(frozen=True)
class S3Repository:
    """A destination with its catalog in S3, the ids of its two backups of one topic, a copy in a folder."""

    uri: str
    ids: tuple[str, str]
    folder: Path


@pytest.fixture(scope="module")
def repository(s3: S3Proxy, tmp_path_factory: pytest.TempPathFactory) -> S3Repository:
    folder = tmp_path_factory.mktemp("made")
    backups = MadeBackups(folder, SOURCE)
    ids = (backups.backup([records(0, 10), records(0, 5, 1)]), backups.backup([records(10, 20)]))
    backups.flush()
    uri = f"s3://{s3.bucket()}/a place/ü"
    put_all(uri, folder)
    CatalogWriter(None, uri).register_home()
    return S3Repository(uri, ids, folder)


def put_all(uri: str, folder: Path) -> None:
    storage = open_storage(uri)
    for file in folder.rglob("*"):
        if file.is_file():
            storage.put(str(file.relative_to(folder)), file.read_bytes())


def offsets(files: Sequence[bytes]) -> list[int]:
    rows = [row for data in files for row in fastavro.reader(io.BytesIO(data))]
    return sorted(row["offset"] for row in rows if isinstance(row, dict))


@pytest.mark.long
def test_reading_verbs(cli: Commands, repository: S3Repository, tmp_path: Path) -> None:
    uri, (first, second) = repository.uri, repository.ids
    repo = ("--repo", uri)
    assert [row["backup_id"] for row in cli.rows("list", *repo)] == [second, first]
    assert cli.rows("show", second, *repo)[0]["parent"] == first
    assert cli.output("show", "--tree", *repo).count(first) == 1
    paths = [row["path"] for row in cli.rows("files", first, *repo)]
    assert len(paths) == 2
    assert offsets([open_storage(uri).get(path) for path in paths]) == sorted([*range(10), *range(5)])
    now_ms = time.time_ns() // 1_000_000
    count = "SELECT count(*) AS n FROM records('orders')"
    for options in ((), ("--engine", "spark"), ("--as-of", str(now_ms))):
        assert cli.rows("sql", count, *repo, *options) == [{"n": 25}]
    for root, catalog in ((uri, f"{repository.folder}/catalog"), (str(repository.folder), f"{uri}/catalog")):
        assert cli.rows("sql", count, "--repo", root, "--catalog", catalog) == [{"n": 25}]
    key = "SELECT kafka_offset AS o FROM records('orders') WHERE key = 'k3' AND partition = 0 ORDER BY 1"
    assert [row["o"] for row in cli.rows("sql", key, *repo)] == [3, 7, 11, 15, 19]
    assert "not made yet" in cli.fails(3, "list", *repo, "--as-of", "2020-01-01")
    totals, *changes = cli.rows("diff", first, second, *repo)
    assert ([row["entries"] for row in totals["totals"]], [row["entries"] for row in changes]) == ([10], [10])
    assert cli.rows("diff", first, second, "--records", *repo)
    page = tmp_path / "report.html"
    assert cli.rows("report", *repo, "--html", str(page))
    assert "orders" in page.read_text("utf-8")


@pytest.mark.long
def test_policies_holds_and_leases(cli: Commands, repository: S3Repository) -> None:
    uri, first = repository.uri, repository.ids[0]
    repo, start_ms = ("--repo", uri), str(time.time_ns() // 1_000_000)
    cli.result("policy", "set", SOURCE, "--full", "daily 02:30", "--window", "14d", *repo)
    assert cli.rows("sql", "SELECT full_schedule AS f FROM policies", *repo) == [{"f": "daily 02:30"}]
    assert "daily 02:30" in cli.output("policy", "show", *repo)
    assert cli.rows("sql", "SELECT * FROM policies", *repo, "--as-of", start_ms) == []
    assert [row["source"] for row in cli.result("due", *repo)["due"]] == [SOURCE]
    cli.result("hold", first, "--forever", "--reason", "the first", *repo)
    query = "SELECT backup_id FROM holds"
    assert cli.rows("sql", query, *repo) == [{"backup_id": first}]
    cli.result("hold", first, "--release", "--reason", "enough", *repo)
    assert cli.rows("sql", query, *repo) == []
    with Lease.acquire(open_storage(uri), f"source-{SOURCE}", "somebody who died") as _:
        assert "somebody who died" in cli.fails(8, "hold", first, "--forever", "--reason", "again", *repo)
        lease = cli.result("catalog", "break-lease", f"source-{SOURCE}", "--reason", "dead", *repo)
        assert lease["holder"] == "somebody who died"
        cli.result("hold", first, "--forever", "--reason", "again", *repo)
    assert cli.rows("sql", query, *repo) == [{"backup_id": first}]
    assert cli.result("catalog", "optimize", "--dry-run", *repo)["files"] > 8


@pytest.mark.long
def test_restores(
    cli: Commands, spark: SparkSession, repository: S3Repository, tmp_path: Path, s3: S3Proxy
) -> None:
    repo = ("--repo", repository.uri)
    restore = ("restore", "topics", *repo)
    selection = ("--partial", "--select", "SELECT * FROM files WHERE region = '0' AND added_in = 2")
    bucket = f"s3://{s3.bucket()}"
    assert cli.result(*restore, *selection, "--to", f"dir:{bucket}/some")["entries"] == 10
    storage = open_storage(f"{bucket}/some")
    assert offsets([storage.get(blob.path) for blob in storage.list("topics/")]) == list(range(10, 20))
    assert "already" in cli.fails(5, *restore, "orders", "--to", f"dir:{bucket}/some")

    table = f"delta:{bucket}/tables/orders"
    plan = str(tmp_path / "plan.json")
    planned = cli.result(*restore, "orders", "--to", table, "--dry-run", "--save-plan", plan)
    assert planned["files"] == 3
    assert cli.result(*restore, "--plan", plan)["entries"] == 25
    rows = spark.read.format("delta").load(f"{bucket}/tables/orders")
    assert sorted((row.partition, row.offset) for row in rows.collect()) == [
        *((0, offset) for offset in range(20)),
        *((1, offset) for offset in range(5)),
    ]
    assert "there is a Delta table" in cli.fails(5, *restore, "orders", "--to", table)
    until = ["--to-time", "1970-01-01T00:00:02"]
    assert cli.result(*restore, "orders", "--to", f"dir:{tmp_path}/out", *until)["entries"] == 6
    assert "cannot be written" in cli.fails(
        2, *restore, "orders", "--to", table, "--dry-run", "--append", "--save-plan", f"{bucket}/plan.json"
    )
    assert cli.rows("sql", "SELECT count(DISTINCT restore_id) AS n FROM restores", *repo) == [{"n": 3}]


@pytest.mark.long
def test_export_and_import(
    cli: Commands, repository: S3Repository, empty_catalog: Path, tmp_path: Path, s3: S3Proxy
) -> None:
    bucket = f"s3://{s3.bucket()}"
    for rows in (f"{bucket}/rows", str(tmp_path / "rows")):
        cli.result("catalog", "export", rows, "--repo", repository.uri)
    sizes = {blob.path: blob.bytes for blob in open_storage(f"{bucket}/rows").list()}
    assert sizes.keys() == {path.name for path in (tmp_path / "rows").glob("*.json*")}
    other_repo = ("--repo", put_catalog(f"{bucket}/other", empty_catalog))
    cli.result("catalog", "init", *other_repo)
    trust = ("--trust-root", repository.uri)
    assert cli.result("catalog", "import", f"{bucket}/rows", *trust, *other_repo)["backups"] == 2
    assert sorted(row["backup_id"] for row in cli.rows("list", *other_repo)) == sorted(repository.ids)
    # The rows name the repository in which the data still is.
    assert cli.rows("sql", "SELECT count(*) AS n FROM records('orders')", *other_repo) == [{"n": 25}]
    open_storage(bucket).put("others/backups.txt", b"{}")
    import_words = ("catalog", "import", *other_repo, "--backups")
    assert "does not end in .jsonl" in cli.fails(2, *import_words, f"{bucket}/others/backups.txt")
    assert "backups.jsonl does not exist" in cli.fails(3, *import_words, f"{bucket}/others/backups.jsonl")


@pytest.mark.long
def test_archives(cli: Commands, empty_catalog: Path, tmp_path: Path, s3: S3Proxy) -> None:
    bucket = f"s3://{s3.bucket()}"
    archive = tmp_path / "archive"
    write_backup(archive, BACKUP_TIME, "full", [Doc(b"a", b"1", 1), Doc(b"b", b"2", 2)])
    uri = put_catalog(f"{bucket}/backups", empty_catalog)
    put_all(f"{bucket}/archive", archive)
    result = cli.result("archive", "import", str(archive), "--source", "shop", "--repo", uri)
    assert (result["imported"], result["entries"]) == (1, 2)
    result = cli.result("archive", "import", f"{bucket}/archive", "--source", "shop", "--repo", uri)
    assert (result["imported"], result["known"]) == (0, 1)
    cli.result("archive", "restore", "shop", "--repo", uri, "--to", str(tmp_path / "documents"))
    (lines,) = (tmp_path / "documents").rglob("*.jsonl")
    assert [json.loads(line)["key"] for line in lines.read_text("utf-8").splitlines()] == ["a", "b"]
    cli.result("archive", "export", "shop", "--repo", uri, "--to", str(tmp_path / "again"))
    assert read_archive(tmp_path / "again") == read_archive(archive)
    for verb in ("restore", "export"):
        message = cli.fails(2, "archive", verb, "shop", "--repo", uri, "--to", f"{bucket}/out")
        assert "no folder of this machine" in message


def test_a_jdbc_server_needs_a_local_folder(cli: Commands, repository: S3Repository) -> None:
    assert "no folder of this machine" in cli.fails(5, "serve", "thrift", "--repo", repository.uri)
