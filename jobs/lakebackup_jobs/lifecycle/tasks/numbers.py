"""Numbers that the next backup of a source takes."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING

from lakebackup.plan.topics.backup import NewestFile
from lakebackup.rules import layout
from lakebackup_jobs.lifecycle.identity import micros

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Set

    from lakebackup.plan.partitions import StoredTopic
    from lakebackup.rows.backups import Scope
    from lakebackup.store.reader import CatalogReader

# So many of the last backups are looked at first, and then.
_RECENT = (8, 256)


def latest_number(reader: CatalogReader, source: str) -> int:
    """The number of a source's last backup, 0 without one."""
    (committed,) = reader.rows("latest_number", source=source)
    number = committed["number"] or 0
    (departed,) = reader.rows("departed_number", source=source, number=number)
    return departed["number"] or number


def next_backup(reader: CatalogReader, source: str) -> tuple[str, int, int]:
    """Id, number and start (us since 1970 UTC) of the backup that a source takes now."""
    now = datetime.now(UTC)
    return layout.new_backup_id(now), latest_number(reader, source) + 1, micros(now)


def newest_files(
    reader: CatalogReader,
    source: str,
    topics: Iterable[Scope | StoredTopic],
    places: Set[tuple[str, str]] | None = None,
) -> list[NewestFile]:
    """The newest data file of each partition that has one.

    `places`: the topics and partitions that matter. Most have a file in one of the last backups, so that the
    rows of all need not be read.
    """
    epochs = {topic.scope: topic.epoch for topic in topics}
    if places is None:
        return _newest_files(reader, source, epochs, since=0)
    newest, left = latest_number(reader, source), set(places)
    found: dict[tuple[str, str], NewestFile] = {}
    for recent in (*_RECENT, newest):
        scopes = ",".join(sorted({scope for scope, _ in left}))
        rows = _newest_files(reader, source, epochs, since=max(newest - recent, 0), scopes=scopes)
        # Those of a topic's other partitions say how large records of it are.
        found = {(file.scope, file.region): file for file in rows} | found
        left -= found.keys()
        if not left or recent >= newest:
            break
    return list(found.values())


def _newest_files(
    reader: CatalogReader,
    source: str,
    epochs: Mapping[str, str],
    *,
    since: int,
    scopes: str | None = None,
) -> list[NewestFile]:
    rows = reader.rows("next_sequence", source=source, since=since, scopes=scopes)
    return [NewestFile(**row) for row in rows if epochs.get(row["scope"]) == row["epoch"]]


def next_sequences(
    reader: CatalogReader,
    source: str,
    topics: Iterable[Scope | StoredTopic],
    places: Set[tuple[str, str]] | None = None,
) -> dict[tuple[str, str], int]:
    """The first number that no file in the catalog has, by topic and partition; 0 where there is none.
    `places`: as for `newest_files`."""
    files = newest_files(reader, source, topics, places)
    return {(file.scope, file.region): file.next_sequence for file in files}
