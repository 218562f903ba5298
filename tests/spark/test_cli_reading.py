"""The looking verbs on a real catalog, each as a process of its own, which never starts Java."""

from __future__ import annotations

import csv
import io
import json
import re
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest

from lakebackup import layout, sidecar
from lakebackup.model import Backup, DataFile, Digest, Position, Scope, json_line
from lakebackup.storage import open_storage
from lakebackup.store import CatalogWriter, destination_id

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

SOURCE, EPOCH, AT = "kafka-test", "0" * 31 + "1", 1795269900000
FIRST, SECOND = "20261121T140500Z-0000000a", "20261121T150500Z-0000000b"


def publish(spark: SparkSession, destination: Path, backup_id: str, number: int, topics: list[str]) -> None:
    storage = open_storage(str(destination))
    home = destination_id(storage)
    files = [
        DataFile(
            destination=home,
            path=layout.data_path(SOURCE, EPOCH, topic, 0, number),
            backup_id=backup_id,
            added_in=number,
            source=SOURCE,
            scope=topic,
            epoch=EPOCH,
            region="0",
            format="kafka-avro-2",
            codec="zstandard",
            bytes=1_500_000,
            raw_bytes=2_000_000,
            sha256="0" * 64,
            entries=10,
            min_ts=AT,
            max_ts=AT + number,
            start_position=10 * number,
            end_position=10 * number + 10,
        )
        for topic in topics
    ]
    digest = Digest()
    for file in files:
        digest.add(json_line(file))
    sidecar.write_part(storage, layout.parts_path(SOURCE, backup_id, 0), files)
    region: dict[str, Any] = {"backup_id": backup_id, "source": SOURCE, "epoch": EPOCH}
    manifest = sidecar.Manifest(
        backup=Backup(
            backup_id=backup_id,
            number=number,
            source=SOURCE,
            destination=home,
            kind="full" if number == 1 else "differential",
            level=0 if number == 1 else 1,
            parent=None if number == 1 else FIRST,
            base=FIRST,
            chain_position=number - 1,
            place=number,
            parent_place=None if number == 1 else number - 1,
            start_ts=None,
            end_ts=AT + number,
            started_at=AT * 1000,
            finished_at=AT * 1000 + 5,
            files=len(files),
            bytes=sum(file.bytes for file in files),
            entries=sum(file.entries for file in files),
            digest=digest.hex(),
            isolation="read_committed",
            codec="zstandard",
            created_by="test",
            tool="0",
        ),
        positions=[
            Position(
                **region,
                scope=topic,
                region="0",
                start_position=10 * number,
                end_position=10 * number + 10,
                low_position=0,
                high_position=100,
                ts=AT + number,
            )
            for topic in topics
        ],
        scopes=[Scope(**region, scope=topic, regions=1, settings="{}", replication=1) for topic in topics],
        gaps=[],
        parts=1,
    )
    sidecar.write_manifest(storage, layout.manifest_path(SOURCE, backup_id), manifest)
    writer = CatalogWriter.open(spark, str(destination), None)
    writer.migrate()
    writer.commit_backup(storage, manifest, held=None)


@pytest.fixture(scope="module")
def backups(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("backups")
    publish(spark, folder, FIRST, 1, ["orders", "payments"])
    publish(spark, folder, SECOND, 2, ["orders"])
    return folder


def lakebackup(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "lakebackup_jobs.cli", *arguments, "--from", str(folder)]
    # No Java to be found: a verb that started it would fail.
    return subprocess.run(
        command,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
        env={"PATH": "", "HOME": str(folder)},
    )


def told(folder: Path, *arguments: str) -> str:
    done = lakebackup(folder, *arguments)
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


def test_list(backups: Path) -> None:
    rows = [json.loads(line) for line in told(backups, "list", "--json").splitlines()]
    assert [(row["backup_id"], row["kind"], row["files"]) for row in rows] == [
        (SECOND, "differential", 1),
        (FIRST, "full", 2),
    ]
    table = told(backups, "list").splitlines()
    assert table[0].split()[:2] == ["backup_id", "kind"]
    assert FIRST in table[2]
    assert "2026-11-21T14:05:00.001Z" in table[2]
    assert "3.0 MB" in table[2]
    assert len(list(csv.DictReader(io.StringIO(told(backups, "list", "--csv"))))) == 2
    assert told(backups, "list", "--source", "another", "--json") == ""


def test_files_by_the_beginning_of_an_id(backups: Path) -> None:
    rows = list(csv.DictReader(io.StringIO(told(backups, "files", SECOND[:11], "--csv"))))
    assert [(row["scope"], row["start_position"], row["bytes"]) for row in rows] == [
        ("orders", "20", "1500000")
    ]
    assert "1.5 MB" in told(backups, "files", SECOND)


def test_show(backups: Path) -> None:
    shown = json.loads(told(backups, "show", FIRST, "--json"))
    assert shown["backup_id"] == FIRST
    assert [(topic["scope"], topic["entries"]) for topic in shown["topics"]] == [
        ("orders", 10),
        ("payments", 10),
    ]
    text = told(backups, "show", FIRST)
    for part in (FIRST, "read_committed", "payments", "2026-11-21T14:05:00.001Z", "3.0 MB"):
        assert part in text


def test_sql(backups: Path) -> None:
    question = "SELECT scope, sum(entries) AS records FROM files GROUP BY scope ORDER BY scope"
    rows = [json.loads(line) for line in told(backups, "sql", question, "--json").splitlines()]
    assert rows == [{"scope": "orders", "records": 20}, {"scope": "payments", "records": 10}]
    assert told(backups, "sql", question, "--csv") == "scope,records\norders,20\npayments,10\n"
    assert [line.split() for line in told(backups, "sql", question).splitlines()] == [
        ["scope", "records"],
        ["orders", "20"],
        ["payments", "10"],
    ]


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["show", "2026"], 2, "several"),
        (["files", "1999"], 3, "1999"),
        (["sql", "SELECT * FROM read_csv('/etc/hostname')"], 2, ""),
        (["sql", "DELETE FROM files"], 2, ""),
        (["sql", "SELECT bites FROM files"], 2, "bites"),
        (["list", "--json", "--csv"], 2, "exclude"),
    ],
)
def test_what_goes_wrong(backups: Path, arguments: list[str], code: int, message: str) -> None:
    done = lakebackup(backups, *arguments)
    assert done.returncode == code, done.stderr
    assert done.stdout == ""
    assert message in done.stderr
    assert "Traceback" not in done.stderr


def test_no_catalog(tmp_path: Path) -> None:
    done = lakebackup(tmp_path, "list")
    assert done.returncode == 3
    assert "no catalog" in done.stderr
    assert list(tmp_path.iterdir()) == [], "looking creates nothing"


@pytest.mark.parametrize(
    ("verb", "queries"),
    [
        (["prune", "--keep-time", "1ms"], {"prune_topics", "prune_cuts"}),
        (["compact", "orders", "--all-keyed"], {"compact_points"}),
        (["restore", "topics", "orders", "--to", "dir:out"], {"restore_coverage", "selected"}),
        (["sql", "SELECT path FROM files"], {"select"}),
    ],
)
def test_the_sql_that_decides_can_be_seen(backups: Path, verb: list[str], queries: set[str]) -> None:
    before = sorted(backups.rglob("*"))
    done = lakebackup(backups, *verb, "--explain", "--json")
    assert (done.returncode, done.stderr) == (0, "")
    asked = [json.loads(line) for line in done.stdout.splitlines()]
    assert queries <= {one["query"] for one in asked}
    for one in asked:
        named = set(re.findall(r"(?<!:):([a-z_]+)", one["sql"]))
        assert named <= set(one["parameters"]), one
    text = told(backups, *verb, "--explain")
    assert text.count(";\n\n") == len(asked)
    assert all(f"-- {query}\n" in text for query in queries)
    assert sorted(backups.rglob("*")) == before


def test_what_was_asked_before_a_refusal_is_shown_too(backups: Path) -> None:
    wanted = ("restore", "topics", "orders", "--to", "dir:out", "--to-time", "now", "--explain")
    done = lakebackup(backups, *wanted)
    assert done.returncode == 5, done.stderr
    assert "-- restore_coverage\n-- :source = " in done.stdout


def test_the_catalog_as_it_was(backups: Path) -> None:
    early = lakebackup(backups, "list", "--as-of", "2020-01-01")
    assert early.returncode == 3
    assert "was not made yet at 2020-01-01" in early.stderr
    question = "SELECT (SELECT count(*) FROM files) = (SELECT count(*) FROM now_files) AS same"
    assert told(backups, "sql", question, "--as-of", "now", "--json") == '{"same": true}\n'
