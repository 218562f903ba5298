"""Statements are found by name, in any folder and wherever the package is installed."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

import lakebackup_sql
from lakebackup_sql import area, load, names

PACKAGE = Path(lakebackup_sql.__file__).parent


@pytest.fixture
def kind(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Path]:
    """An empty folder of statements, used in place of the package's."""
    monkeypatch.setattr(lakebackup_sql, "files", lambda _: tmp_path)
    caches = (lakebackup_sql.names, lakebackup_sql._statements)
    for cached in caches:
        cached.cache_clear()
    (tmp_path / "things").mkdir()
    yield tmp_path / "things"
    for cached in caches:
        cached.cache_clear()


def test_a_statement_has_an_area_that_callers_need_not_know() -> None:
    assert area("queries", "prune_cuts") == "prune/topics"
    assert area("queries", "restore_files") == "restore/topics"
    assert load("queries", "prune_cuts") == (PACKAGE / "queries/prune/topics/prune_cuts.sql").read_text(
        "utf-8"
    )
    assert names("migrations") == (
        "0001_initial",
        "0002_policy_topics",
        "0003_runner",
        "0004_removed_backups",
        "0006_policy_rules",
        "0007_drills",
        "0008_failures",
        "0012_open_transactions",
        "0013_who",
        "0015_file_identity",
        "0016_folders",
        "0017_compression",
        "0018_data_keys",
        "0019_encrypted_snapshots",
    )
    with pytest.raises(KeyError, match="no statement queries/prune/prune_cuts"):
        load("queries", "prune/prune_cuts")


def test_two_statements_of_one_name_are_refused(kind: Path) -> None:
    for folder in ("a", "b"):
        (kind / folder).mkdir()
        (kind / folder / "same.sql").write_text("SELECT 1")
    with pytest.raises(ValueError, match="two statements same"):
        names("things")


def test_statements_are_found_in_a_zip(tmp_path: Path) -> None:
    archive = tmp_path / "package.zip"
    with zipfile.ZipFile(archive, "w") as zip_file:
        for file in PACKAGE.rglob("*"):
            if file.suffix in (".py", ".sql"):
                zip_file.write(file, file.relative_to(PACKAGE.parent))
    code = "import lakebackup_sql as s; print(s.__file__, s.names('queries') + s.names('views'))"
    result = subprocess.run(
        [sys.executable, "-c", code],
        env={"PYTHONPATH": str(archive)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert result.stdout == f"{archive}/lakebackup_sql/__init__.py {names('queries') + names('views')}\n"
