"""A synthetic catalog of a topic to which each backup adds one record: tables as so many commits leave them.

Each backup is a commit of one row to each of five tables, and small files are merged when they are due. To
have 10,000 backups in minutes, this module writes the entries of the logs itself, as `commit_once` would.
"""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
from tests.support.rows import EPOCH, backup_id, backup_row, file_row, filled

from lakebackup.rows.backups import Backup, Position, Scope
from lakebackup.rows.tables import ARROW_SCHEMAS, as_row
from lakebackup.rows.upkeep import Audit
from lakebackup.sql_engine.delta import table as delta
from lakebackup.sql_engine.delta.log import FOLDER, put_summed
from lakebackup.sql_engine.delta.table import in_order, newest_version, put_rows, settings_of
from lakebackup.sql_engine.delta.tiers import TableFile, due_files
from lakebackup.sql_engine.delta.upkeep import tidy_log
from lakebackup.storage import Storage
from lakebackup.store.writer import CatalogWriter

SOURCE, EVERY_MS = "made", 240_000
_ROWS_AT_ONCE = 1_000


def backup(number: int, destination: str, start_ms: int) -> dict[str, Any]:
    """Return the rows of a backup: table -> row. `start_ms`: when the first interval began."""
    end_ts = start_ms + number * EVERY_MS
    parent = None
    if number > 1:
        parent = replace(_backup(number - 1, destination, start_ms, None), chain_position=number - 2)
    place = {"source": SOURCE, "scope": "orders"}
    of_backup = {**place, "backup_id": backup_id(number)}
    return {
        "files": file_row(
            number, **place, destination=destination, bytes=300, raw_bytes=300, entries=1, min_ts=end_ts - 9,
            path=f"{SOURCE}/{EPOCH}/topics/orders/partition=0/orders+0-{number:010d}.data",
            sha256=f"{number * 7919:064x}", max_ts=end_ts - 1, start_position=number - 1, end_position=number,
        ),
        "positions": filled(
            Position, **of_backup, start_position=number - 1, end_position=number, high_position=number,
            ts=end_ts,
        ),
        "scopes": filled(Scope, **of_backup, regions=1, settings="{}", replication=1),
        "backups": _backup(number, destination, start_ms, parent),
        "audit": filled(Audit, at=end_ts * 1000, action="backup topics", subject=SOURCE, outcome="ok"),
    }  # fmt: skip


def _backup(number: int, destination: str, start_ms: int, parent: Backup | None) -> Backup:
    end_ts = start_ms + number * EVERY_MS
    return backup_row(
        number, parent, source=SOURCE, destination=destination, files=1, bytes=300, entries=1, end_ts=end_ts,
        started_at=end_ts * 1000, finished_at=end_ts * 1000, base=backup_id(1), source_kind="kafka",
        ts_domain="ms", state="complete",
    )  # fmt: skip


def make(folder: Path, backups: int, *, merged: bool = True) -> None:
    """Make the catalog of `backups` backups in `folder`, the newest of now. Its file `start` has the time at
    which the first interval began (ms). `merged`: merge small files when they are due."""
    writer = CatalogWriter(None, str(folder))
    writer.migrate()
    destination = writer.register_home()
    start_ms = time.time_ns() // 1_000_000 - backups * EVERY_MS
    (folder / "start").write_text(str(start_ms), "utf-8")
    tables = {
        table: _Table(writer._storage, table, start_ms, merged=merged)
        for table in backup(1, destination, start_ms)
    }
    for first in range(1, backups + 1, _ROWS_AT_ONCE):
        numbers = range(first, min(first + _ROWS_AT_ONCE, backups + 1))
        rows = [backup(number, destination, start_ms) for number in numbers]
        for name, table in tables.items():
            table.append([as_row(row[name]) for row in rows], first)
    for name, table in tables.items():
        if name == "backups":
            table.record({table_name: logged.version for table_name, logged in tables.items()})
        tidy_log(table.storage, name)


class _Table:
    """A table to which commits are written by hand."""

    def __init__(self, storage: Storage, table: str, start_ms: int, *, merged: bool) -> None:
        self.storage, self._table, self._merged = storage, table, merged
        self._commit_ms = start_ms
        self._uri = f"{storage.uri}/{table}"
        self._settings = settings_of(self._uri)
        self.version = newest_version(self._uri)
        self._files: dict[TableFile, pa.Table] = {}

    def append(self, rows: Sequence[dict[str, Any]], first: int) -> None:
        """Commit rows, each in a file of its own. `first`: the number of the backup of the first row."""
        added = pa.Table.from_pylist(list(rows), schema=ARROW_SCHEMAS[self._table])
        for offset in range(len(added)):
            row = added.slice(offset, 1)
            self._commit_ms += EVERY_MS
            self._commit([], [row], {backup_id(first + offset): 1})
            if self._merged and (due := due_files(self._files)):
                merged = in_order(self._table, pa.concat_tables(self._files[file] for file in due))
                self._commit(due, [merged.combine_chunks()], {})

    def record(self, versions: dict[str, int]) -> None:
        """Commit only the versions of other tables, as each commit to `backups` does."""
        prefix = delta._VERSION_OF
        names = versions.keys() & set(delta._COMMITTED_BEFORE)
        self._commit([], [], {prefix + name: versions[name] for name in sorted(names)})

    def _commit(self, removed: Sequence[TableFile], added: Sequence[pa.Table], ids: dict[str, int]) -> None:
        self.version += 1
        now_ms = self._commit_ms
        common = {"dataChange": not removed, "partitionValues": {}}
        lines: list[dict[str, Any]] = [{"commitInfo": {"timestamp": now_ms, "operation": "WRITE"}}]
        for file in removed:
            del self._files[file]
            lines.append({"remove": {**common, "path": file.path, "deletionTimestamp": now_ms}})
        for rows in added:
            file = json.loads(put_rows(self.storage, f"{self._table}/", rows, self._settings))
            lines.append({"add": {**common, **file, "modificationTime": now_ms}})
            order = json.loads(file["stats"])["minValues"].get("min_ts", now_ms)
            self._files[TableFile(order, file["path"], file["size"], len(rows))] = rows
        lines += [{"txn": {"appId": name, "version": version}} for name, version in ids.items()]
        data = "".join(json.dumps(line, separators=(",", ":")) + "\n" for line in lines).encode()
        put_summed(self.storage, f"{self._table}/{FOLDER}/{self.version:020d}.json", data)
