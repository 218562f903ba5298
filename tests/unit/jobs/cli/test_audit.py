"""What each command leaves in the audit log, and which runs are failures of a source."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from tests.support.looks import select_rows

from lakebackup.errors import Refused
from lakebackup.store.caller import calling, current, without_secrets
from lakebackup.store.writer import CatalogWriter
from lakebackup_jobs.cli import main
from lakebackup_jobs.lifecycle.run import Life

SECRET = "s3cr3t-pass"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "db").mkdir()
    (tmp_path / "db" / "a").write_text("x")
    root = tmp_path / "r"
    assert main(["backup", "snapshot", str(tmp_path / "db"), "--repo", str(root)]) == 0
    return root


def entries(root: Path) -> list[dict[str, Any]]:
    return select_rows(root, "SELECT action, subject, actor, host, command, outcome FROM audit ORDER BY at")


def test_each_command_that_writes_has_an_entry(root: Path, tmp_path: Path) -> None:
    repo, target = ["--repo", str(root)], ["--to", str(tmp_path / "out")]
    for words in (
        ["restore", "snapshot", "--source", "db", *target],
        ["restore", "snapshot", "--source", "db", *target],  # the target is complete: nothing happens
        ["restore", "snapshot", "--source", "db", "--to", str(tmp_path / "more"), "--dry-run"],
        ["verify"],
        ["policy", "set", "db", "--keep-last", "3"],
        ["policy", "show", "db"],
        ["hold", "latest", "--forever", "--reason", "audit"],
        ["prune", "--source", "db"],  # only reports
    ):
        assert main([*words, *repo]) == 0, words
    rows = entries(root)
    assert [(row["action"], row["subject"] or None, row["outcome"]) for row in rows[:4]] == [
        ("backup snapshot", "db", "ok"),
        ("restore snapshot", "db", "ok"),
        ("verify", None, "ok"),
        ("set_policy", "db", "ok"),
    ]
    assert [row["action"] for row in rows[4:]] == ["hold"]
    assert all(row["host"] and row["host"] in row["actor"] for row in rows)
    assert rows[3]["command"] == f"lakebackup policy set db --keep-last 3 --repo {root}"
    (restore,) = select_rows(root, "SELECT DISTINCT actor FROM restores")
    assert restore["actor"] == rows[1]["actor"]


def test_entries_are_in_the_destination_too(root: Path) -> None:
    (path,) = (root / "audit").iterdir()
    entry = json.loads(path.read_text())
    assert entry["action"] == "backup snapshot"
    assert entry["outcome"] == "ok"
    assert entry["command"].startswith("lakebackup backup snapshot ")


def test_a_failed_run_has_its_error_as_outcome(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SOME_PASSWORD", SECRET)

    def refuse(*_: object) -> None:
        raise Refused(f"no {SECRET}", hint="Ask somebody.")

    monkeypatch.setattr(Life, "run", refuse)
    assert main(["backup", "snapshot", str(tmp_path / "db"), "--repo", str(root)]) == 5
    assert entries(root)[-1]["outcome"] == "Refused: no ****\nAsk somebody."
    assert select_rows(root, "SELECT message FROM failures") == [{"message": "no ****\nAsk somebody."}]


def test_a_typo_is_no_failed_run_and_makes_no_source(root: Path, tmp_path: Path) -> None:
    typo = str(tmp_path / "dbb")
    assert main(["backup", "snapshot", typo, "--repo", str(root)]) == 3
    assert main(["backup", "snapshot", typo, "--source", "db", "--repo", str(root)]) == 3
    assert main(["backup", "snapshot", str(tmp_path / "db"), "--mode", "ful", "--repo", str(root)]) == 2
    assert select_rows(root, "SELECT source, failed_runs FROM status") == [{"source": "db", "failed_runs": 0}]
    assert len(entries(root)) == 1


def test_a_backup_of_a_deleted_source_is_a_failed_run(root: Path, tmp_path: Path) -> None:
    shutil.rmtree(tmp_path / "db")
    assert main(["backup", "snapshot", str(tmp_path / "db"), "--repo", str(root)]) == 3
    (row,) = select_rows(root, "SELECT failed_runs, failure FROM status")
    assert row["failed_runs"] == 1
    assert "There is no folder" in row["failure"]


def test_a_restore_warns_when_the_audit_log_cannot_be_written(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(CatalogWriter, "append_audit", fail)
    words = ["restore", "snapshot", "--source", "db", "--to", str(tmp_path / "out"), "--repo", str(root)]
    assert main(words) == 0
    assert (tmp_path / "out").is_dir()
    assert "not recorded in the audit log" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (["--kafka-property", f"sasl.password={SECRET}"], "--kafka-property sasl.password=****"),
        ([f"--kafka-property=sasl.password={SECRET}=="], "--kafka-property=sasl.password=****"),
        (["--token", SECRET, "x"], "--token **** x"),
        ([f"kafka://me:{SECRET}@host:9092"], "kafka://****@host:9092"),
        (["--map", "a=b", "--where", "x = 1"], "--map a=b --where x = 1"),
        ([f"ssl.keystore.key={SECRET}"], "ssl.keystore.key=****"),
        ([f"basic.auth.user.info=me:{SECRET}"], "basic.auth.user.info=****"),
        ([f"s3://b/x?region=e&x=1&secret_key={SECRET}"], "s3://b/x?region=e&x=1&secret_key=****"),
        ([f"https://h/x?sig={SECRET}"], "https://h/x?sig=****"),
        ([f"https://h/x?X-Amz-Signature={SECRET}"], "https://h/x?X-Amz-Signature=****"),
        ([f"s3://key:with@{SECRET}@bucket/x"], "s3://****@bucket/x"),
    ],
)
def test_a_command_is_shown_without_secrets(words: list[str], text: str) -> None:
    assert " ".join(without_secrets(words)) == text


def test_a_command_is_current_only_within_its_block() -> None:
    with calling(["verify"]):
        assert current().command == "lakebackup verify"
    assert current().command is None
