"""Commands that only read a catalog: they work without Java."""

from __future__ import annotations

import csv
import io
import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.support.catalogs import data_file, made_backup, made_position, made_scope, put_sidecar
from tests.support.command_line import Commands

from lakebackup.storage import open_storage
from lakebackup.store import manifest as sidecar
from lakebackup.store.writer import CatalogWriter

SOURCE, EPOCH, END_TS = "kafka-test", "0" * 31 + "1", 1795269900000
FIRST, SECOND = "20261121T140500Z-0000000a", "20261121T150500Z-0000000b"


def publish(destination: Path, backup_id: str, number: int, topics: list[str]) -> None:
    scope_columns: dict[str, Any] = {"backup_id": backup_id, "source": SOURCE, "epoch": EPOCH}
    files = [
        replace(
            data_file(number, topic=topic, source=SOURCE),
            **scope_columns,
            bytes=1_500_000,
            raw_bytes=2_000_000,
            min_ts=END_TS,
            max_ts=END_TS + number,
            start_position=10 * number,
            end_position=10 * number + 10,
        )
        for topic in topics
    ]
    chain = {"base": FIRST, "parent": None if number == 1 else FIRST, "end_ts": END_TS + number}
    times = {"started_at": END_TS * 1000, "finished_at": END_TS * 1000 + 5}
    manifest = sidecar.Manifest(
        backup=made_backup(
            number, files, full_number=1, backup_id=backup_id, source=SOURCE, **chain, **times
        ),
        positions=[
            made_position(10 * number, 10 * number + 10, **scope_columns, scope=topic, ts=END_TS + number)
            for topic in topics
        ],
        scopes=[made_scope(**scope_columns, scope=topic) for topic in topics],
        gaps=[],
        parts=1,
    )
    storage = open_storage(str(destination))
    writer = CatalogWriter(None, str(destination))
    writer.migrate()
    writer.commit_backup(storage, put_sidecar(storage, (manifest, [files])), source_lease=None)


@pytest.fixture(scope="module")
def backups(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("backups")
    publish(folder, FIRST, 1, ["orders", "payments"])
    publish(folder, SECOND, 2, ["orders"])
    return folder


class Looking(Commands):
    """Commands on a destination, none of which may start a session."""

    def output_on(self, folder: Path, *words: str) -> str:
        """Run a command that must succeed without warnings; returns its output."""
        code, output, err = self.run(*words, "--repo", folder)
        assert (code, err) == (0, "")
        return output

    def rows_on(self, folder: Path, *words: str) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.output_on(folder, *words, "--json").splitlines()]


@pytest.fixture
def command(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Looking:
    def fail_on_start(**_: object) -> None:
        pytest.fail("a verb that looks has started Spark")

    for user in ("cli.look.sql", "cli.verb", "lifecycle.planning", "lifecycle.workspace"):
        monkeypatch.setattr(f"lakebackup_jobs.{user}.spark_session", fail_on_start)
    return Looking(capsys)


def test_list(command: Looking, backups: Path) -> None:
    rows = command.rows_on(backups, "list")
    assert [(row["backup_id"], row["kind"], row["files"]) for row in rows] == [
        (SECOND, "differential", 1),
        (FIRST, "full", 2),
    ]
    table = command.output_on(backups, "list").splitlines()
    assert table[0].split()[:2] == ["backup_id", "kind"]
    assert FIRST in table[2]
    assert "2026-11-21T14:05:00.001Z" in table[2]
    assert "3.0 MB" in table[2]
    assert len(list(csv.DictReader(io.StringIO(command.output_on(backups, "list", "--csv"))))) == 2


def test_show(command: Looking, backups: Path) -> None:
    (backup,) = command.rows_on(backups, "show", FIRST)
    assert backup["backup_id"] == FIRST
    assert [(topic["scope"], topic["entries"]) for topic in backup["topics"]] == [
        ("orders", 10),
        ("payments", 10),
    ]
    text = command.output_on(backups, "show", FIRST)
    for part in (FIRST, "payments", "2026-11-21 14:05:00 UTC", "3.0 MB"):
        assert part in text


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
def test_errors_have_exit_codes_and_messages(
    command: Looking, backups: Path, arguments: list[str], code: int, message: str
) -> None:
    exit_code, output, err = command.run(*arguments, "--repo", backups)
    assert (exit_code, output) == (code, ""), err
    assert message in err
    assert "Traceback" not in err


def test_a_missing_catalog_is_reported_and_not_created(command: Looking, tmp_path: Path) -> None:
    assert "no catalog" in command.fails(3, "list", "--repo", tmp_path)
    assert list(tmp_path.iterdir()) == [], "looking creates nothing"


@pytest.mark.parametrize(
    ("verb", "queries"),
    [
        (["prune", "--keep-time", "1ms"], {"prune_topics", "prune_cuts"}),
        (["compact", "orders", "--all-keyed"], {"compact_points"}),
        (["restore", "topics", "orders", "--to", "dir:out"], {"restore_coverage", "restore_files"}),
        (["sql", "SELECT path FROM files"], {"select"}),
    ],
)
def test_explain_shows_the_deciding_queries(
    command: Looking, backups: Path, verb: list[str], queries: set[str]
) -> None:
    paths = sorted(backups.rglob("*"))
    rows = command.rows_on(backups, *verb, "--explain")
    assert queries <= {row["query"] for row in rows}
    for row in rows:
        parameters = set(re.findall(r"(?<!:):([a-z_]+)", row["sql"]))
        assert parameters <= set(row["parameters"]), row
    text = command.output_on(backups, *verb, "--explain")
    assert text.count(";\n\n") == len(rows)
    assert all(f"-- {query}\n" in text for query in queries)
    assert sorted(backups.rglob("*")) == paths


def test_explain_shows_the_queries_before_a_refusal(command: Looking, backups: Path) -> None:
    words = ("restore", "topics", "orders", "--to", "dir:out", "--to-time", "now", "--explain")
    code, output, err = command.run(*words, "--repo", backups)
    assert code == 5, err
    assert "-- restore_coverage\n-- :source = " in output


def test_as_of_reads_an_earlier_catalog(command: Looking, backups: Path) -> None:
    message = command.fails(3, "list", "--as-of", "2020-01-01", "--repo", backups)
    assert "was not made yet at 2020-01-01" in message
    query = "SELECT (SELECT count(*) FROM files) = (SELECT count(*) FROM now_files) AS same"
    assert command.output_on(backups, "sql", query, "--as-of", "now", "--json") == '{"same": true}\n'
