"""Backups that a restore to the newest state passes over."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lakebackup.rules.times import format_ts

if TYPE_CHECKING:
    from lakebackup.store.reader import CatalogReader


def passed_over(source: str, number: int, reader: CatalogReader) -> list[str]:
    """What to say of newer backups than `number`, to which the newest state is restored."""
    return [
        f"backup {row['backup_id']} of {format_ts(row['end_ts'])} is passed over: it cannot be restored, "
        "the view unusable_backups says why"
        for row in reader.rows("passed_over", source=source, number=number)
    ]
