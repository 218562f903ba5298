"""Which tables a change feed has, under which names, from a flush's meta keys. In a task."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from lakebackup.errors import Damaged
from lakebackup.formats.logs.events import DELETES, PUTS, WRITE
from lakebackup.formats.logs.meta_keys import MetaWrite, Names, Naming
from lakebackup.plan.logs.restore import NEVER
from lakebackup.rows.logs import LogTable

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    import pyarrow as pa

    from lakebackup.formats.logs.table_filter import TableFilter


def names_of(
    records: Iterable[tuple[str, pa.RecordBatch]],
    before: Iterable[Mapping[str, Any]],
    *,
    source: str,
    backup_id: str,
    after: int | None,
    until: int | None,
    tables: TableFilter,
) -> list[LogTable]:
    """Rows for what was committed in (after, until]: up to the checkpoint every transaction is whole.

    While nothing has a name (`before` is empty) it is what was committed up to `until`: a feed describes its
    tables before anything else, so also before the ts at which a log begins.

    `records`: column family and batch (columns of events.stored_schema()) of put meta keys, in any order: the
    writes of that span, also those that an earlier flush read ahead of its checkpoint, and the values that
    they name. `before`: rows of the query log_namings. `after`, `until`: the checkpoint before and the new
    one; `after` None: from the beginning, `until` None: nothing is whole yet. A table that gets into the
    filter is captured from the next flush on; that one records since when it is covered. Raises Damaged for a
    value without a name, or that is missing, unless the log begins after it.
    """
    known = list(before)
    if until is None or until == after:
        return []
    begins = until if after is None else after
    names = Names(_naming(row) for row in known)
    covered: dict[int, int] = {row["table_id"]: row["covered_from"] for row in known}
    namings = list(names.apply(_writes(records, since(known, after), until, begins)))
    for one in namings:
        table_id = one.table_id
        if table_id not in covered:
            # Events of ids that are not known yet are captured.
            ever = table_id < 0 or any(_meant(n, tables) for n in namings if n.table_id == table_id)
            covered[table_id] = one.from_ts - 1 if ever else NEVER
    return [
        LogTable(
            backup_id=backup_id, source=source, covered_from=covered[naming.table_id], **naming._asdict()
        )
        for naming in namings
    ]


def since(before: Sequence[Any], after: int | None) -> int:
    """Writes of meta keys after this ts count; see `names_of`."""
    return -1 if after is None or not before else after


def _meant(naming: Naming, tables: TableFilter) -> bool:
    return naming.action != "drop" and tables.takes(naming.db, naming.name)


def _naming(row: Mapping[str, Any]) -> Naming:
    return Naming(row["table_id"], row["db"], row["name"], row["from_ts"], row["action"])


def _writes(
    records: Iterable[tuple[str, pa.RecordBatch]], after: int, until: int, begins: int
) -> Iterator[MetaWrite]:
    writes: list[dict[str, Any]] = []
    values: dict[tuple[bytes, int], bytes] = {}
    for family, batch in records:
        for row in batch.to_pylist():
            if family != WRITE:
                values[row["key"], row["start_ts"]] = row["value"]
            elif row["type"] in (PUTS, DELETES) and after < row["commit_ts"] <= until:
                writes.append(row)
    for row in writes:
        value = row["value"]
        if row["type"] == PUTS and value is None:
            value = values.get((row["key"], row["start_ts"]))
            if value is None and row["commit_ts"] <= begins:
                continue  # it is older than what the feed still holds
            if value is None:
                key = row["key"].decode(errors="replace")
                raise Damaged(
                    f"Meta key {key!r}, committed at {row['commit_ts']}: the value that it got at start ts "
                    f"{row['start_ts']} is not in the log.",
                    hint="The feed must have every prewrite since the task started; start a new task.",
                )
        yield MetaWrite(row["commit_ts"], row["start_ts"], row["key"], value)
