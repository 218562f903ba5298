"""The looking verbs on a real catalog: they never start Java."""

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

SOURCE, EPOCH, AT = "kafka-test", "0" * 31 + "1", 1795269900000
FIRST, SECOND = "20261121T140500Z-0000000a", "20261121T150500Z-0000000b"


def publish(destination: Path, backup_id: str, number: int, topics: list[str]) -> None:
    own: dict[str, Any] = {"backup_id": backup_id, "source": SOURCE, "epoch": EPOCH}
    files = [
        replace(
            data_file(number, topic=topic, source=SOURCE),
            **own,
            bytes=1_500_000,
            raw_bytes=2_000_000,
            min_ts=AT,
            max_ts=AT + number,
            start_position=10 * number,
            end_position=10 * number + 10,
        )
        for topic in topics
    ]
    chain = {"base": FIRST, "parent": None if number == 1 else FIRST, "end_ts": AT + number}
    times = {"started_at": AT * 1000, "finished_at": AT * 1000 + 5}
    manifest = sidecar.Manifest(
        backup=made_backup(number, files, on=1, backup_id=backup_id, source=SOURCE, **chain, **times),
        positions=[
            made_position(10 * number, 10 * number + 10, **own, scope=topic, ts=AT + number)
            for topic in topics
        ],
        scopes=[made_scope(**own, scope=topic) for topic in topics],
        gaps=[],
        parts=1,
    )
    storage = open_storage(str(destination))
    writer = CatalogWriter(None, str(destination))
    writer.migrate()
    writer.commit_backup(storage, put_sidecar(storage, (manifest, [files])), held=None)


@pytest.fixture(scope="module")
def backups(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("backups")
    publish(folder, FIRST, 1, ["orders", "payments"])
    publish(folder, SECOND, 2, ["orders"])
    return folder


class Looking(Commands):
    """Commands on a destination, where none may start a session."""

    def on(self, folder: Path, *words: str) -> str:
        """What a command prints that succeeds and complains of nothing."""
        code, out, err = self.run(*words, "--repo", folder)
        assert (code, err) == (0, "")
        return out

    def rows_on(self, folder: Path, *words: str) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.on(folder, *words, "--json").splitlines()]


@pytest.fixture
def command(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Looking:
    def started(**_: object) -> None:
        pytest.fail("a verb that looks has started Spark")

    monkeypatch.setattr("lakebackup_jobs.runtime.session.spark_session", started)
    return Looking(capsys)


def test_list(command: Looking, backups: Path) -> None:
    rows = command.rows_on(backups, "list")
    assert [(row["backup_id"], row["kind"], row["files"]) for row in rows] == [
        (SECOND, "differential", 1),
        (FIRST, "full", 2),
    ]
    table = command.on(backups, "list").splitlines()
    assert table[0].split()[:2] == ["backup_id", "kind"]
    assert FIRST in table[2]
    assert "2026-11-21T14:05:00.001Z" in table[2]
    assert "3.0 MB" in table[2]
    assert len(list(csv.DictReader(io.StringIO(command.on(backups, "list", "--csv"))))) == 2


def test_show(command: Looking, backups: Path) -> None:
    (shown,) = command.rows_on(backups, "show", FIRST)
    assert shown["backup_id"] == FIRST
    assert [(topic["scope"], topic["entries"]) for topic in shown["topics"]] == [
        ("orders", 10),
        ("payments", 10),
    ]
    text = command.on(backups, "show", FIRST)
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
def test_what_goes_wrong(
    command: Looking, backups: Path, arguments: list[str], code: int, message: str
) -> None:
    ended, out, err = command.run(*arguments, "--repo", backups)
    assert (ended, out) == (code, ""), err
    assert message in err
    assert "Traceback" not in err


def test_no_catalog(command: Looking, tmp_path: Path) -> None:
    assert "no catalog" in command.fails(3, "list", "--repo", tmp_path)
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
def test_the_sql_that_decides_can_be_seen(
    command: Looking, backups: Path, verb: list[str], queries: set[str]
) -> None:
    before = sorted(backups.rglob("*"))
    asked = command.rows_on(backups, *verb, "--explain")
    assert queries <= {one["query"] for one in asked}
    for one in asked:
        named = set(re.findall(r"(?<!:):([a-z_]+)", one["sql"]))
        assert named <= set(one["parameters"]), one
    text = command.on(backups, *verb, "--explain")
    assert text.count(";\n\n") == len(asked)
    assert all(f"-- {query}\n" in text for query in queries)
    assert sorted(backups.rglob("*")) == before


def test_what_was_asked_before_a_refusal_is_shown_too(command: Looking, backups: Path) -> None:
    wanted = ("restore", "topics", "orders", "--to", "dir:out", "--to-time", "now", "--explain")
    code, out, err = command.run(*wanted, "--repo", backups)
    assert code == 5, err
    assert "-- restore_coverage\n-- :source = " in out


def test_the_catalog_as_it_was(command: Looking, backups: Path) -> None:
    told = command.fails(3, "list", "--as-of", "2020-01-01", "--repo", backups)
    assert "was not made yet at 2020-01-01" in told
    question = "SELECT (SELECT count(*) FROM files) = (SELECT count(*) FROM now_files) AS same"
    assert command.on(backups, "sql", question, "--as-of", "now", "--json") == '{"same": true}\n'
