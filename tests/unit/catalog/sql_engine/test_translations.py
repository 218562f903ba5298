"""The texts on DuckDB that are written when the package is installed or built."""

from __future__ import annotations

from pathlib import Path

import pytest

import lakebackup_sql
from lakebackup.sql_engine import translate, translations
from lakebackup_sql import TRANSLATED_KINDS, load, names, translation, translation_file

STATEMENTS = [(kind, name) for kind in TRANSLATED_KINDS for name in names(kind)]


def test_written_texts_follow_the_statements() -> None:
    """Files of changed statements are replaced, others stay as they are, and those of deleted ones go."""
    unchanged = Path(str(translation_file("queries", "list_backups")))
    changed = Path(str(translation_file("queries", "find_backups")))
    deleted = unchanged.parent / "deleted_statement.sql"
    translations.write()
    status, text = unchanged.stat(), changed.read_text(encoding="utf-8")
    changed.write_text("-- 0\nSELECT 1\n", encoding="utf-8")
    deleted.write_text("-- 0\nSELECT 1\n", encoding="utf-8")
    translations.write()
    assert (unchanged.stat().st_ino, unchanged.stat().st_mtime_ns) == (status.st_ino, status.st_mtime_ns)
    assert changed.read_text(encoding="utf-8") == text
    assert not deleted.exists()


@pytest.mark.parametrize(("kind", "name"), STATEMENTS)
def test_the_text_on_duckdb_is_the_translation_of_the_statement(kind: str, name: str) -> None:
    text = load(kind, name)
    assert translation(text) == translate(text)


def test_a_changed_statement_is_translated_again(monkeypatch: pytest.MonkeyPatch) -> None:
    text = load("queries", "list_backups")
    assert translation(text) == translate(text)
    monkeypatch.setitem(lakebackup_sql._LOADED, f"{text} ", ("queries", "list_backups"))
    assert translation(f"{text} ") is None
