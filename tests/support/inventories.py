"""Runs the examples of docs/inventories.md as they are printed there, and imports their rows without Java."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import duckdb
from tests.support.made_backups import MadeBackups

from lakebackup.plan.upkeep.import_backups import BackupsPlan, counted, plan_backups
from lakebackup.recovery.import_reader import ImportRows, import_files
from lakebackup.store.reader import CatalogReader
from lakebackup.store.writer import CatalogWriter

PAGE = Path(__file__).parents[2] / "docs" / "inventories.md"
BLOCKS = re.findall(r"```sql\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
QUESTIONS = [block for block in BLOCKS if not block.startswith("-- ")]


def rows_of(table: str, file: str) -> list[dict[str, Any]]:
    reading = ImportRows(table, tuple(import_files(table, file)), is_export=False)
    rows = list(reading.read(0))
    assert {row["row_problem"] for row in rows} <= {None}
    return rows


def write_rows(program: str) -> None:
    """Run the example of a program in the current folder, which has the program's lists."""
    (example,) = (block for block in BLOCKS if block.startswith(f"-- {program}\n"))
    with duckdb.connect() as con:
        con.execute(example)


def import_all(catalog: MadeBackups, program: str, *, listed: bool = False) -> list[str]:
    """Run the example of a program and import what it wrote; returns the ids of the new backups."""
    write_rows(program)
    plan = import_rows(catalog, rows_of("backups", "backups.jsonl"), program, listed=listed, mirror=True)
    return [backup.backup_id for backup in plan.new]


def import_rows(
    catalog: MadeBackups,
    rows: list[dict[str, Any]],
    program: str = "other",
    *,
    listed: bool = False,
    mirror: bool = False,
) -> BackupsPlan:
    """Import backups of a program as the command does; returns the plan."""
    catalog_rows = {row["backup_id"]: row for row in catalog.reader().rows("every_backup")}
    plan = plan_backups(
        rows,
        catalog_rows,
        is_export=False,
        source_kind=program,
        listed=listed,
        compared=listed,
        mirror=mirror,
    )
    assert not plan.wrong
    assert not plan.against
    writer = CatalogWriter(None, str(catalog.folder))
    for state, ids in plan.states.items():
        writer.set_states(tuple(ids), state, actor="me", reason="catalog import")
    catalog.number += 1
    catalog.add(*counted(plan.new, {}))
    return plan


def listed_rows(folder: Path, *rows: dict[str, Any]) -> list[dict[str, Any]]:
    """Rows of backups as an import reads them from a file."""
    file = folder / "listed.jsonl"
    file.write_text("".join(f"{json.dumps(row)}\n" for row in rows), encoding="utf-8")
    return rows_of("backups", str(file))


def select(reader: CatalogReader, sql: str) -> list[tuple[Any, ...]]:
    return [tuple(row.values()) for row in reader.select(sql).read_all().to_pylist()]


def path_to(reader: CatalogReader, source: str, time: str) -> list[str]:
    """The ids of the backups that a restore to a time needs, by the query that the page shows."""
    query = QUESTIONS[0].replace("db1.sales", source).replace("2026-11-03 14:05:00", time)
    return [str(row[2]) for row in select(reader, query)]
