"""Numbers that the next backup of a source takes."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING

from lakebackup.plan.topics.backup import NewestFile
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


def newest_files(
    reader: CatalogReader, source: str, topics: Iterable[Scope | StoredTopic]
) -> list[NewestFile]:
    """The newest data file of each partition that has one."""
    epochs = {topic.scope: topic.epoch for topic in topics}
    found = (NewestFile(**row) for row in reader.rows("next_sequence", source=source))
    return [file for file in found if epochs.get(file.scope) == file.epoch]


def next_sequences(
    reader: CatalogReader, source: str, topics: Iterable[Scope | StoredTopic]
) -> dict[tuple[str, str], int]:
    """The first number that no file in the catalog has, by topic and partition; 0 where there is none."""
    return {(file.scope, file.region): file.next_sequence for file in newest_files(reader, source, topics)}
