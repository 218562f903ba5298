"""The numbers of the next backup of a source, and of its files."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Set
from datetime import UTC, datetime

from lakebackup.plan.partitions import StoredTopic
from lakebackup.plan.topics.backup import NewestFile
from lakebackup.rows.backups import Scope
from lakebackup.rules import layout
from lakebackup.store.reader import CatalogReader
from lakebackup_jobs.lifecycle.identity import micros

# How many of the last backups are searched for the newest files, first and second.
_RECENT_BACKUPS = (8, 256)


def latest_number(reader: CatalogReader, source: str) -> int:
    """The number of a source's last backup, or a higher number that departures name; 0 without any."""
    (committed,) = reader.rows("latest_number", source=source)
    number = committed["number"] or 0
    (departed,) = reader.rows("departed_number", source=source, number=number)
    return departed["number"] or number


def next_backup(reader: CatalogReader, source: str) -> tuple[str, int, int]:
    """The id, the number and the start (us since 1970 UTC) of a source's next backup."""
    start = datetime.now(UTC)
    return layout.new_backup_id(start), latest_number(reader, source) + 1, micros(start)


def newest_files(
    reader: CatalogReader,
    source: str,
    topics: Iterable[Scope | StoredTopic],
    partitions: Set[tuple[str, str]] | None = None,
) -> list[NewestFile]:
    """The newest data file of each partition that has one.

    `partitions`: the (topic, partition) pairs that matter; None: all. Most of them have a file in one of the
    last backups, so that the rows of older ones need not be read. The result may have other partitions too.
    """
    epochs = {topic.scope: topic.epoch for topic in topics}
    if partitions is None:
        return _newest_files(reader, source, epochs, since=0)
    last_number, missing = latest_number(reader, source), set(partitions)
    files: dict[tuple[str, str], NewestFile] = {}
    for recent in (*_RECENT_BACKUPS, last_number):
        scopes = ",".join(sorted({scope for scope, _ in missing}))
        rows = _newest_files(reader, source, epochs, since=max(last_number - recent, 0), scopes=scopes)
        # The result also has files of the topics' other partitions: they show how large the records are.
        files = {(file.scope, file.region): file for file in rows} | files
        missing -= files.keys()
        if not missing or recent >= last_number:
            break
    return list(files.values())


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
    partitions: Set[tuple[str, str]] | None = None,
) -> dict[tuple[str, str], int]:
    """The first file number that is free in the catalog, by topic and partition; partitions without files are
    left out. `partitions`: see `newest_files`."""
    files = newest_files(reader, source, topics, partitions)
    return {(file.scope, file.region): file.next_sequence for file in files}
