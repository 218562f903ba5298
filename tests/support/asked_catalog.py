"""A catalog made by hand in which every question of docs/questions.md has an answer."""

from __future__ import annotations

import re
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from tests.support.catalogs import made_backup, made_position
from tests.support.made_backups import MadeBackups, Record
from tests.support.rows import EPOCH, file_row, filled

from lakebackup.rows.backups import Gap
from lakebackup.rows.queues import QueuePoint, QueuePosition, QueueRestore, QueueSchema, QueueTransaction
from lakebackup.rows.upkeep import Audit, Check, StorageObject

PAGE = Path(__file__).parents[2] / "docs" / "questions.md"


def time_of_day_ms(hour: int, minute: int) -> int:
    """A time on the day that the page is about, in ms since 1970 UTC."""
    return int(datetime(2026, 1, 1, hour, minute, tzinfo=UTC).timestamp() * 1000)


ENDS = [time_of_day_ms(13, 30), time_of_day_ms(13, 40), time_of_day_ms(13, 50), time_of_day_ms(14, 8)]


def questions() -> dict[str, str]:
    """Every question of the page -> its SELECT."""
    pairs = re.findall(
        r"\*\*(.+?)\*\*[^`]*?(?:`[^`]+`[^`]*)*```sql\n(.*?)```", PAGE.read_text("utf-8"), re.DOTALL
    )
    return dict(pairs)


def settled(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Rows without the columns that depend on the current time."""
    return [{name: row[name] for name in row if not re.search("age|ago|lag", name)} for row in rows]


def made_catalog(folder: Path) -> MadeBackups:
    """Three backups of two partitions, a fourth with a gap in partition 0; a file of the second is missing.
    An engine with queues that was restored to an earlier state."""
    backups = MadeBackups(folder)

    def records(partition: int, first: int, ts: int) -> list[Record]:
        return [Record(partition, o, ts - 100 + partition, b"k", b"v") for o in range(first, first + 20)]

    for step, end_ts in enumerate(ENDS[:3]):
        backups.backup([records(p, 20 * step, end_ts) for p in (0, 1)], end_ts=end_ts)
    records_ts = time_of_day_ms(13, 59)
    last = backups.backup([records(0, 65, records_ts), records(1, 60, records_ts)], full=True, end_ts=ENDS[3])
    gap = Gap(
        backup_id=last, source="prod", scope="orders", epoch=EPOCH, region="0", from_position=60,
        to_position=65, reason="purged", from_ts=ENDS[2], to_ts=ENDS[3], bridged=False,
    )  # fmt: skip
    (lost_path,) = (
        backups.reader()
        .select("SELECT path FROM files WHERE added_in = 2 AND region = '1'")
        .read_all()["path"]
    )
    (backups.folder / lost_path.as_py()).unlink()
    check_columns = {"check_id": "c", "at": 1000 * time_of_day_ms(15, 0), "destination": backups.destination}
    orphan = StorageObject(
        **check_columns, path="prod/left.data", bytes=10, modified_ms=ENDS[0] - 2 * 86_400_000
    )
    missing = Check(**check_columns, backup_id=None, path=lost_path, mode="hash", outcome="missing")
    audit = Audit(
        at=1000 * time_of_day_ms(15, 0), actor="me@here", action="prune", subject="prod", detail="{}"
    )
    backups.add(gap, missing, orphan, audit)
    _social(backups)
    backups.flush()
    return backups


def _social(backups: MadeBackups) -> None:
    """A full, a differential that was superseded, and one that continues the full after a restore."""
    partition_columns = {"source": "social", "scope": "edges", "epoch": EPOCH}
    for number, last_tid in ((5, 1400), (6, 1600), (7, 1700)):
        file = file_row(
            number,
            **partition_columns,
            destination=backups.destination,
            path=f"social/{number}",
            bytes=100,
            entries=5,
        )
        source_columns = {"source": "social", "source_kind": "queues", "destination": backups.destination}
        backup = made_backup(
            number, [file], full_number=5, **source_columns, end_ts=time_of_day_ms(14, number)
        )
        if number == 7:
            backup = replace(backup, parent=backup.base, parent_place=5)
        keys = {"source": "social", "backup_id": backup.backup_id}
        point = filled(QueuePoint, **keys, first_tid=last_tid - 10, last_tid=last_tid, open_transactions=1)
        partition_keys = {**partition_columns, **keys}
        backups.add(
            file,
            backup,
            replace(point, restore_id="r" if number == 7 else None),
            made_position(0, 5, **partition_keys),
            filled(QueuePosition, **partition_keys, no_transaction_position=number, last_tid=last_tid),
            filled(QueueTransaction, **partition_keys, transaction_id="t", first_tid=last_tid - 5, entries=2),
            filled(QueueSchema, **keys, version=1, from_tid=1, definition='{"name": "text"}'),
        )
    restore_columns = {"restore_id": "r", "backup_id": backup.base, "full_id": backup.base, "last_tid": 1400}
    restored_at = 1000 * time_of_day_ms(14, 6) + 30_000_000
    backups.add(
        filled(
            QueueRestore, **partition_columns, **restore_columns, at=restored_at, whole=True, end_position=5
        )
    )
