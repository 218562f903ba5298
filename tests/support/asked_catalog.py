"""The catalog that the questions of docs/questions.md are asked of: made by hand, each has an answer."""

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


def at(hour: int, minute: int) -> int:
    """A time on the day of the page, in ms since 1970 UTC."""
    return int(datetime(2026, 1, 1, hour, minute, tzinfo=UTC).timestamp() * 1000)


ENDS = [at(13, 30), at(13, 40), at(13, 50), at(14, 8)]


def questions() -> dict[str, str]:
    """Every question of the page -> its SELECT."""
    found = re.findall(
        r"\*\*(.+?)\*\*[^`]*?(?:`[^`]+`[^`]*)*```sql\n(.*?)```", PAGE.read_text("utf-8"), re.DOTALL
    )
    return dict(found)


def settled(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Rows without what counts the time up to now."""
    return [{name: row[name] for name in row if not re.search("age|ago|lag", name)} for row in rows]


def made_catalog(folder: Path) -> MadeBackups:
    """Three backups of two partitions, a fourth over a gap in partition 0; a file of the second is gone. An
    engine with queues that was put back to an earlier state."""
    made = MadeBackups(folder)

    def records(partition: int, first: int, ts: int) -> list[Record]:
        return [Record(partition, o, ts - 100 + partition, b"k", b"v") for o in range(first, first + 20)]

    for step, end_ts in enumerate(ENDS[:3]):
        made.backup([records(p, 20 * step, end_ts) for p in (0, 1)], end_ts=end_ts)
    before = at(13, 59)
    last = made.backup([records(0, 65, before), records(1, 60, before)], full=True, end_ts=ENDS[3])
    gap = Gap(
        backup_id=last, source="prod", scope="orders", epoch=EPOCH, region="0", from_position=60,
        to_position=65, reason="purged", from_ts=ENDS[2], to_ts=ENDS[3], bridged=False,
    )  # fmt: skip
    (gone,) = (
        made.reader().select("SELECT path FROM files WHERE added_in = 2 AND region = '1'").read_all()["path"]
    )
    (made.folder / gone.as_py()).unlink()
    checked = {"check_id": "c", "at": 1000 * at(15, 0), "destination": made.destination}
    left = StorageObject(**checked, path="prod/left.data", bytes=10, modified_ms=ENDS[0] - 2 * 86_400_000)
    missing = Check(**checked, backup_id=None, path=gone, mode="hash", outcome="missing")
    audit = Audit(at=1000 * at(15, 0), actor="me@here", action="prune", subject="prod", detail="{}")
    made.add(gap, missing, left, audit)
    _social(made)
    made.flush()
    return made


def _social(made: MadeBackups) -> None:
    """A full, a differential that was abandoned, and one that continues the full."""
    place = {"source": "social", "scope": "edges", "epoch": EPOCH}
    for number, last_tid in ((5, 1400), (6, 1600), (7, 1700)):
        file = file_row(
            number, **place, destination=made.destination, path=f"social/{number}", bytes=100, entries=5
        )
        own = {"source": "social", "source_kind": "queues", "destination": made.destination}
        backup = made_backup(number, [file], on=5, **own, end_ts=at(14, number))
        if number == 7:
            backup = replace(backup, parent=backup.base, parent_place=5)
        kept = {"source": "social", "backup_id": backup.backup_id}
        point = filled(QueuePoint, **kept, first_tid=last_tid - 10, last_tid=last_tid, open_transactions=1)
        seen = {**place, **kept}
        made.add(
            file,
            backup,
            replace(point, restore_id="r" if number == 7 else None),
            made_position(0, 5, **seen),
            filled(QueuePosition, **seen, no_transaction_position=number, last_tid=last_tid),
            filled(QueueTransaction, **seen, transaction_id="t", first_tid=last_tid - 5, entries=2),
            filled(QueueSchema, **kept, version=1, from_tid=1, definition='{"name": "text"}'),
        )
    restored = {"restore_id": "r", "backup_id": backup.base, "full_id": backup.base, "last_tid": 1400}
    then = 1000 * at(14, 6) + 30_000_000
    made.add(filled(QueueRestore, **place, **restored, at=then, whole=True, end_position=5))
