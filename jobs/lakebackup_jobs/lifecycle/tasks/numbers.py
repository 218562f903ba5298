"""Numbers that the next backup of a source takes."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING

from lakebackup.rules import layout
from lakebackup_jobs.lifecycle.identity import micros

if TYPE_CHECKING:
    from collections.abc import Iterable

    from lakebackup.plan.partitions import StoredTopic
    from lakebackup.rows.backups import Scope
    from lakebackup.store.reader import CatalogReader


def latest_number(reader: CatalogReader, source: str) -> int:
    """The number of a source's last backup, 0 without one."""
    newest = reader.one("latest_number", source=source)
    return (newest["number"] or 0) if newest else 0


def next_backup(reader: CatalogReader, source: str) -> tuple[str, int, int]:
    """Id, number and start (us since 1970 UTC) of the backup that a source takes now."""
    now = datetime.now(UTC)
    return layout.new_backup_id(now), latest_number(reader, source) + 1, micros(now)


def next_sequences(
    reader: CatalogReader, source: str, topics: Iterable[Scope | StoredTopic]
) -> dict[tuple[str, str], int]:
    """The first number that no file in the catalog has, by topic and partition; 0 where there is none."""
    epochs = {topic.scope: topic.epoch for topic in topics}
    return {
        (row["scope"], row["region"]): row["next_sequence"]
        for row in reader.rows("next_sequence", source=source)
        if epochs.get(row["scope"]) == row["epoch"]
    }
