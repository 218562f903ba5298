"""What each verb says of a change feed, over real tables, without Java: its result, or what to do instead."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from tests.support.catalogs import backup_id
from tests.support.command_line import result_rows
from tests.support.encrypted import Host, KeyPair
from tests.support.made_backups import MadeBackups
from tests.support.made_changes import MadeChanges, commit, delete, prewrite, put_change, table_name_row

from lakebackup.formats.logs.cipher import Cipher
from lakebackup.store.writer import CatalogWriter
from lakebackup_jobs.cli import main

# 2026-01-01T00:00:00Z as a timestamp oracle counts it.
NEW_YEAR = 1767225600000 << 18


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two flushes and a full between them."""
    root = tmp_path_factory.mktemp("made")
    MadeBackups(root)
    changes = MadeChanges(root, CatalogWriter(None, str(root)), start_ts=NEW_YEAR)
    events = [put_change(21, b"a", NEW_YEAR + 5, b"1"), prewrite(21, b"b", NEW_YEAR + 4, b"long")]
    changes.flush(events, NEW_YEAR + 10, names=[table_name_row(21, "orders", NEW_YEAR + 1)])
    changes.full(NEW_YEAR + 10)
    late = NEW_YEAR + (5000 << 18)
    changes.flush([commit(21, b"b", NEW_YEAR + 4, late), delete(21, b"a", late)], late + 9)
    return root


@pytest.fixture
def root(template: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("LAKEBACKUP_REPO", str(tmp_path / "backups"))
    return shutil.copytree(template, tmp_path / "backups")


def error_of(capsys: pytest.CaptureFixture[str], *arguments: str, code: int) -> str:
    assert main([*arguments]) == code
    return capsys.readouterr().err


def test_a_full_of_an_encrypted_log_is_refused_unless_asked_for(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    MadeBackups(tmp_path)
    writer = CatalogWriter(None, str(tmp_path))
    changes = MadeChanges(tmp_path, writer, cipher=Cipher("k1", bytes(32)))
    changes.flush([put_change(21, b"a", 5, b"secret")], 10, names=[table_name_row(21, "orders", 1)])
    assert "1 log files of shop are encrypted" in error_of(
        capsys, "log", "snapshot", "shop", "--repo", str(tmp_path), code=5
    )


def test_a_full_in_clear_is_refused_with_recipients(
    root: Path, capsys: pytest.CaptureFixture[str], host: Host, keys: KeyPair
) -> None:
    host.has(keys.recipient)
    text = error_of(capsys, "log", "snapshot", "shop", code=5)
    assert "A full is not encrypted, and recipients are set under [encryption]" in text
    assert "--plain" in text
    assert len(list(root.glob("shop/fulls/*"))) == 1


def test_a_due_run_makes_no_full_in_clear_with_recipients(
    root: Path, capsys: pytest.CaptureFixture[str], host: Host, keys: KeyPair
) -> None:
    result_rows(capsys, "policy", "set", "shop", "--full", "hourly")
    host.has(keys.recipient)
    text = error_of(capsys, "due", "--run", code=5)
    assert "A full is not encrypted" in text
    assert "What was due of shop failed." in text
    assert len(list(root.glob("shop/fulls/*"))) == 1


def test_a_change_feed_is_listed_and_shown(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    listed = [(row["number"], row["kind"], row["intact"]) for row in result_rows(capsys, "list")]
    assert listed == [(3, "log", True), (2, "full", True), (1, "log", True)]
    (backup,) = result_rows(capsys, "show", backup_id(1))
    (table,) = backup["tables"]
    assert (table["scope"], table["name"], table["files"]) == ("21", "shop.orders", 2)
    assert len(result_rows(capsys, "files", backup_id(3))) == 3
    assert main(["list"]) == 0
    assert "2026-01-01T00:00:05.000Z" in capsys.readouterr().out
    changes = result_rows(capsys, "diff", backup_id(1), backup_id(3))
    assert {row.get("change") for row in changes if "path" in row} <= {"added"}
    assert main(["show", "--tree"]) == 0
    capsys.readouterr()
    (span,) = result_rows(
        capsys, "sql", "SELECT source, scope, status, from_ts, to_ts, to_time FROM coverage"
    )
    late = NEW_YEAR + (5000 << 18) + 9
    assert (span["status"], span["from_ts"], span["to_ts"]) == ("restorable", NEW_YEAR, late)
    assert str(span["to_time"]).startswith("2026-01-01T00:00:05")
    (lag,) = result_rows(capsys, "sql", "SELECT restorable_ts, lag_ms FROM rpo")
    assert (lag["restorable_ts"], lag["lag_ms"] > 0) == (late, True)


@pytest.mark.long
def test_the_report_has_times(root: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["report"]) == 0
    assert "2026-01-01 00:00:05 UTC" in capsys.readouterr().out
    assert main(["report", "--html", str(tmp_path / "report.html")]) == 0
    assert "2026-01-01 00:00 UTC" in (tmp_path / "report.html").read_text()


@pytest.mark.parametrize(
    ("arguments", "code", "hint"),
    [
        (["restore", "topics", "x", "--source", "shop", "--to", "dir:x"], 5, "lakebackup log restore"),
        (["compact", "--source", "shop", "--dry-run"], 5, "log compact"),
        (["prune"], 2, "lakebackup log truncate shop --to-time"),
        (["prune", "14", "--delete"], 2, "lakebackup log truncate shop --to-time"),
        (["policy", "set", "shop", "--keep-daily", "7"], 2, "log truncate"),
    ],
)
def test_verbs_for_topics_refuse_a_change_feed(
    root: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], code: int, hint: str
) -> None:
    text = error_of(capsys, *arguments, code=code)
    assert "a change feed" in text
    assert hint in text


def test_a_policy_limits_a_truncation(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    truncate = ["log", "truncate", "shop", "--endts", str(NEW_YEAR + 10), "--dry-run"]
    result_rows(capsys, *truncate)
    result_rows(capsys, "policy", "set", "shop", "--redundancy", "2")
    assert "what its policy keeps of shop" in error_of(capsys, *truncate, code=5)


def test_nothing_is_due_and_a_full_can_be_held(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert result_rows(capsys, "due") == [{"event": "result", "v": 1, "due": [], "next": None}]
    result_rows(capsys, "hold", backup_id(2), "--reason", "law", "--forever")
    rows = result_rows(capsys, "sql", "SELECT number, status, reason FROM obsolete_backups ORDER BY number")
    valid = ("VALID", "no_limit")
    assert [(row["status"], row["reason"]) for row in rows] == [valid, ("KEEP", "held"), valid]


def test_an_export_has_its_tables(root: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (result,) = [
        row for row in result_rows(capsys, "catalog", "export", str(tmp_path / "rows")) if "tables" in row
    ]
    rows = {row["table"]: row["rows"] for row in result["tables"]}
    assert (rows["backups"], rows["log_regions"], rows["log_tables"]) == (3, 2, 1)
