"""Every verb on a destination and a catalog in S3: what asks, what keeps, what travels, what restores.

Topics that go there and come back, follow, compact, merge, prune, verify, rebuild: tests/kafka/test_s3.py;
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
SOURCE, TAKEN = "prod", "2014-02-02T020000Z"


def records(first: int, end: int, partition: int = 0) -> list[Record]:
    return [
        Record(partition, offset, 1000 * offset, b"k%d" % (offset % 4), b'{"n": %d}' % offset)
        for offset in range(first, end)
    ]


@dataclass(frozen=True)
class Made:
    """A destination with its catalog in S3, the ids of its two backups of one topic, a copy in a folder."""

    place: str
    ids: tuple[str, str]
    folder: Path


@pytest.fixture(scope="module")
def made(s3: S3Proxy, tmp_path_factory: pytest.TempPathFactory) -> Made:
    folder = tmp_path_factory.mktemp("made")
    backups = MadeBackups(folder, SOURCE)
    ids = (backups.backup([records(0, 10), records(0, 5, 1)]), backups.backup([records(10, 20)]))
    backups.flush()
    place = f"s3://{s3.bucket()}/a place/ü"
    put_all(place, folder)
    CatalogWriter(None, place).register_home()
    return Made(place, ids, folder)


def put_all(uri: str, folder: Path) -> None:
    storage = open_storage(uri)
    for file in folder.rglob("*"):
        if file.is_file():
            storage.put(str(file.relative_to(folder)), file.read_bytes())


def offsets(files: Sequence[bytes]) -> list[int]:
    rows = [row for data in files for row in fastavro.reader(io.BytesIO(data))]
    return sorted(row["offset"] for row in rows if isinstance(row, dict))


@pytest.mark.long
def test_what_asks(cli: Commands, made: Made, tmp_path: Path) -> None:
    place, (first, second) = made.place, made.ids
    there = ("--repo", place)
    assert [row["backup_id"] for row in cli.rows("list", *there)] == [second, first]
    assert cli.rows("show", second, *there)[0]["parent"] == first
    assert cli.out("show", "--tree", *there).count(first) == 1
    paths = [row["path"] for row in cli.rows("files", first, *there)]
    assert len(paths) == 2
    assert offsets([open_storage(place).get(path) for path in paths]) == sorted([*range(10), *range(5)])
    now = time.time_ns() // 1_000_000
    count = "SELECT count(*) AS n FROM records('orders')"
    for more in ((), ("--engine", "spark"), ("--as-of", str(now))):
        assert cli.rows("sql", count, *there, *more) == [{"n": 25}]
    for where, catalog in ((place, f"{made.folder}/catalog"), (str(made.folder), f"{place}/catalog")):
        assert cli.rows("sql", count, "--repo", where, "--catalog", catalog) == [{"n": 25}]
    key = "SELECT kafka_offset AS o FROM records('orders') WHERE key = 'k3' AND partition = 0 ORDER BY 1"
    assert [row["o"] for row in cli.rows("sql", key, *there)] == [3, 7, 11, 15, 19]
    assert "not made yet" in cli.fails(3, "list", *there, "--as-of", "2020-01-01")
    totals, *changes = cli.rows("diff", first, second, *there)
    assert ([row["entries"] for row in totals["totals"]], [row["entries"] for row in changes]) == ([10], [10])
    assert cli.rows("diff", first, second, "--records", *there)
    page = tmp_path / "report.html"
    assert cli.rows("report", *there, "--html", str(page))
    assert "orders" in page.read_text("utf-8")


@pytest.mark.long
def test_what_keeps(cli: Commands, made: Made) -> None:
    place, first = made.place, made.ids[0]
    there, before = ("--repo", place), str(time.time_ns() // 1_000_000)
    cli.told("policy", "set", SOURCE, "--full", "daily 02:30", "--window", "14d", *there)
    assert cli.rows("sql", "SELECT full_schedule AS f FROM policies", *there) == [{"f": "daily 02:30"}]
    assert "daily 02:30" in cli.out("policy", "show", *there)
    assert cli.rows("sql", "SELECT * FROM policies", *there, "--as-of", before) == []
    assert [row["source"] for row in cli.told("due", *there)["due"]] == [SOURCE]
    cli.told("hold", first, "--forever", "--reason", "the first", *there)
    held = "SELECT backup_id FROM holds"
    assert cli.rows("sql", held, *there) == [{"backup_id": first}]
    cli.told("hold", first, "--release", "--reason", "enough", *there)
    assert cli.rows("sql", held, *there) == []
    with Lease.acquire(open_storage(place), f"source-{SOURCE}", "somebody who died") as _:
        assert "somebody who died" in cli.fails(8, "hold", first, "--forever", "--reason", "again", *there)
        lease = cli.told("catalog", "break-lease", f"source-{SOURCE}", "--reason", "dead", *there)
        assert lease["holder"] == "somebody who died"
        cli.told("hold", first, "--forever", "--reason", "again", *there)
    assert cli.rows("sql", held, *there) == [{"backup_id": first}]
    assert cli.told("catalog", "optimize", "--dry-run", *there)["files"] > 8


@pytest.mark.long
def test_what_restores(cli: Commands, spark: SparkSession, made: Made, tmp_path: Path, s3: S3Proxy) -> None:
    there = ("--repo", made.place)
    restore = ("restore", "topics", *there)
    chosen = ("--partial", "--select", "SELECT * FROM files WHERE region = '0' AND added_in = 2")
    bucket = f"s3://{s3.bucket()}"
    assert cli.told(*restore, *chosen, "--to", f"dir:{bucket}/some")["entries"] == 10
    storage = open_storage(f"{bucket}/some")
    assert offsets([storage.get(found.path) for found in storage.list("topics/")]) == list(range(10, 20))
    assert "already" in cli.fails(5, *restore, "orders", "--to", f"dir:{bucket}/some")

    table = f"delta:{bucket}/tables/orders"
    plan = str(tmp_path / "plan.json")
    planned = cli.told(*restore, "orders", "--to", table, "--dry-run", "--save-plan", plan)
    assert planned["files"] == 3
    assert cli.told(*restore, "--plan", plan)["entries"] == 25
    rows = spark.read.format("delta").load(f"{bucket}/tables/orders")
    assert sorted((row.partition, row.offset) for row in rows.collect()) == [
        *((0, offset) for offset in range(20)),
        *((1, offset) for offset in range(5)),
    ]
    assert "there is a Delta table" in cli.fails(5, *restore, "orders", "--to", table)
    until = ["--to-time", "1970-01-01T00:00:02"]
    assert cli.told(*restore, "orders", "--to", f"dir:{tmp_path}/out", *until)["entries"] == 6
    assert "cannot be written" in cli.fails(
        2, *restore, "orders", "--to", table, "--dry-run", "--append", "--save-plan", f"{bucket}/plan.json"
    )
    assert cli.rows("sql", "SELECT count(DISTINCT restore_id) AS n FROM restores", *there) == [{"n": 3}]


@pytest.mark.long
def test_what_travels(cli: Commands, made: Made, empty_catalog: Path, tmp_path: Path, s3: S3Proxy) -> None:
    bucket = f"s3://{s3.bucket()}"
    for rows in (f"{bucket}/rows", str(tmp_path / "rows")):
        cli.told("catalog", "export", rows, "--repo", made.place)
    there = {found.path: found.bytes for found in open_storage(f"{bucket}/rows").list()}
    assert there.keys() == {found.name for found in (tmp_path / "rows").glob("*.json*")}
    other = ("--repo", put_catalog(f"{bucket}/other", empty_catalog))
    cli.told("catalog", "init", *other)
    trust = ("--trust-root", made.place)
    assert cli.told("catalog", "import", f"{bucket}/rows", *trust, *other)["backups"] == 2
    assert sorted(row["backup_id"] for row in cli.rows("list", *other)) == sorted(made.ids)
    # The data is where it was.
    assert cli.rows("sql", "SELECT count(*) AS n FROM records('orders')", *other) == [{"n": 25}]
    open_storage(bucket).put("others/backups.txt", b"{}")
    given = ("catalog", "import", *other, "--backups")
    assert "does not end in .jsonl" in cli.fails(2, *given, f"{bucket}/others/backups.txt")
    assert "backups.jsonl does not exist" in cli.fails(3, *given, f"{bucket}/others/backups.jsonl")


@pytest.mark.long
def test_archives(cli: Commands, empty_catalog: Path, tmp_path: Path, s3: S3Proxy) -> None:
    bucket = f"s3://{s3.bucket()}"
    archive = tmp_path / "archive"
    write_backup(archive, TAKEN, "full", [Doc(b"a", b"1", 1), Doc(b"b", b"2", 2)])
    there = put_catalog(f"{bucket}/backups", empty_catalog)
    put_all(f"{bucket}/archive", archive)
    taken = cli.told("archive", "import", str(archive), "--source", "shop", "--repo", there)
    assert (taken["imported"], taken["entries"]) == (1, 2)
    taken = cli.told("archive", "import", f"{bucket}/archive", "--source", "shop", "--repo", there)
    assert (taken["imported"], taken["known"]) == (0, 1)
    cli.told("archive", "restore", "shop", "--repo", there, "--to", str(tmp_path / "documents"))
    (lines,) = (tmp_path / "documents").rglob("*.jsonl")
    assert [json.loads(line)["key"] for line in lines.read_text("utf-8").splitlines()] == ["a", "b"]
    cli.told("archive", "export", "shop", "--repo", there, "--to", str(tmp_path / "again"))
    assert read_archive(tmp_path / "again") == read_archive(archive)
    for verb in ("restore", "export"):
        said = cli.fails(2, "archive", verb, "shop", "--repo", there, "--to", f"{bucket}/out")
        assert "no folder of this machine" in said


def test_a_server_for_jdbc_is_for_folders(cli: Commands, made: Made) -> None:
    assert "no folder of this machine" in cli.fails(5, "serve", "thrift", "--repo", made.place)
