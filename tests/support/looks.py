"""Reads the catalog of a repository."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from lakebackup.sql_engine.delta.dataset import rows_of as rows_of_table
from lakebackup.store.reader import CatalogReader


def select_rows(root: Path | str, sql: str) -> list[dict[str, Any]]:
    """The rows of a SELECT."""
    rows: list[dict[str, Any]] = CatalogReader.require(str(root)).select(sql).read_all().to_pylist()
    return rows


def rows_of(root: Path, table: str) -> list[str]:
    """The rows of a table, read from its files and sorted, without the times at which the catalog was
    made."""
    rows = rows_of_table(f"file://{root}/catalog/{table}").to_pylist()
    return sorted(
        str({k: v for k, v in row.items() if k not in ("created_at", "applied_at")}) for row in rows
    )
