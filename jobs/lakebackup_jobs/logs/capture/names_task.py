"""Follows the names of a change feed's tables, from the meta keys of a flush. It runs in a task of the
flush."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa

from lakebackup.errors import Damaged
from lakebackup.formats.logs.events import DELETES, PUT_TYPE, WRITE
from lakebackup.formats.logs.meta_keys import MetaWrite, Names, Naming
from lakebackup.formats.logs.table_filter import TableFilter
from lakebackup.plan.logs.restore import NEVER
from lakebackup.rows.logs import LogTable


def names_of(
    records: Iterable[tuple[str, pa.RecordBatch]],
    old_namings: Iterable[Mapping[str, Any]],
    *,
    source: str,
    backup_id: str,
    old_checkpoint: int | None,
    until: int | None,
    tables: TableFilter,
) -> list[LogTable]:
    """Return the rows of log_tables for the meta keys that were committed after `names_known_to`, up to
    `until`.

    `old_checkpoint` and `until` are the previous checkpoint and the new one, up to which every transaction is
    complete. `old_checkpoint` is None if there is none yet. `until` is None if no transaction is complete
    yet; then there are no rows. `old_namings` has the rows of the query log_namings.

    `records` has the puts of meta keys, as pairs of column family and batch (events.stored_schema()), in any
    order: the writes of the span, also those that an earlier flush read ahead of its checkpoint, and the
    values that these writes name.

    A table that gets a name that matches the filter is captured from the next flush on. That flush records
    since when the table is covered.

    Raises Damaged for a value without a name, and for a missing value unless the log begins after it.
    """
    last_namings = list(old_namings)
    if until is None or until == old_checkpoint:
        return []
    log_start_ts = until if old_checkpoint is None else old_checkpoint
    names = Names(_naming(row) for row in last_namings)
    covered_from: dict[int, int] = {row["table_id"]: row["covered_from"] for row in last_namings}
    namings = list(
        names.apply(_writes(records, names_known_to(last_namings, old_checkpoint), until, log_start_ts))
    )
    for new_naming in namings:
        table_id = new_naming.table_id
        if table_id not in covered_from:
            # Events of unknown table ids are captured.
            is_covered = table_id < 0 or any(
                _is_in_filter(n, tables) for n in namings if n.table_id == table_id
            )
            covered_from[table_id] = new_naming.from_ts - 1 if is_covered else NEVER
    return [
        LogTable(
            backup_id=backup_id, source=source, covered_from=covered_from[naming.table_id], **naming._asdict()
        )
        for naming in namings
    ]


def names_known_to(old_namings: Sequence[Any], old_checkpoint: int | None) -> int:
    """Return the ts up to which the names are known: the old checkpoint, or -1 while nothing has a name.

    A feed describes its tables first, even before the ts at which a log begins. So the first names have no
    lower bound.
    """
    return -1 if old_checkpoint is None or not old_namings else old_checkpoint


def _is_in_filter(naming: Naming, table_filter: TableFilter) -> bool:
    return naming.action != "drop" and table_filter.matches(naming.db, naming.name)


def _naming(row: Mapping[str, Any]) -> Naming:
    return Naming(row["table_id"], row["db"], row["name"], row["from_ts"], row["action"])


def _writes(
    records: Iterable[tuple[str, pa.RecordBatch]], after_ts: int, until_ts: int, log_start_ts: int
) -> Iterator[MetaWrite]:
    """Yield the writes that were committed in (after_ts, until_ts], each with its value.

    Raises Damaged if the value of a write is missing, unless it was committed up to `log_start_ts`.
    """
    writes: list[dict[str, Any]] = []
    values: dict[tuple[bytes, int], bytes] = {}
    for family, batch in records:
        for row in batch.to_pylist():
            if family != WRITE:
                values[row["key"], row["start_ts"]] = row["value"]
            elif row["type"] in (PUT_TYPE, DELETES) and after_ts < row["commit_ts"] <= until_ts:
                writes.append(row)
    for row in writes:
        value = row["value"]
        if row["type"] == PUT_TYPE and value is None:
            value = values.get((row["key"], row["start_ts"]))
            if value is None and row["commit_ts"] <= log_start_ts:
                continue  # The feed no longer holds the value.
            if value is None:
                key = row["key"].decode(errors="replace")
                raise Damaged(
                    f"Meta key {key!r}, committed at {row['commit_ts']}: the value that it got at start ts "
                    f"{row['start_ts']} is not in the log.",
                    hint="The feed must have every prewrite since the task started; start a new task.",
                )
        yield MetaWrite(row["commit_ts"], row["start_ts"], row["key"], value)
