"""The rows of a flush whose log files and parts are stored."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING

from lakebackup.formats.logs.metafile import write_stream_meta
from lakebackup.rows.base import CHANGES
from lakebackup.rules import layout
from lakebackup.store import manifest as sidecar
from lakebackup.store.delta_append import LISTED
from lakebackup.store.manifest import Manifest
from lakebackup_jobs.lifecycle.run import backup_row
from lakebackup_jobs.logs.feeds import ISOLATION
from lakebackup_jobs.logs.skips import REASON

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lakebackup.formats.logs.events import Domain
    from lakebackup.plan.logs.flush import Flush
    from lakebackup.rows.backups import Backup, Gap, Position
    from lakebackup.storage import Storage
    from lakebackup_jobs.lifecycle.tasks.totals import Totals
    from lakebackup_jobs.lifecycle.workspace import Workspace
    from lakebackup_jobs.logs.capture.flush import LogRequest

Ends = dict[tuple[str, str], int]


def ends_of(texts: Sequence[str]) -> Ends:
    """The offset up to which the tasks captured each partition: (topic, partition) -> end."""
    return {(topic, str(partition)): end for text in texts for topic, partition, _, end in json.loads(text)}


def captured(flush: Flush, ends: Ends) -> tuple[Position, ...]:
    """What a flush covers: what was planned, as far as it was captured."""
    return tuple(
        replace(row, end_position=ends.get((row.scope, row.region), row.start_position))
        for row in flush.positions
    )


def passed(gaps: Sequence[Gap], ends: Ends) -> tuple[Gap, ...]:
    """The planned gaps but those of skipped messages that the flush did not come to."""
    return tuple(
        gap
        for gap in gaps
        if gap.reason != REASON
        or gap.from_position < ends.get((gap.scope, gap.region), gap.from_position + 1)
    )


def bridged(gaps: Sequence[Gap], end_ts: int, seen_ts: int) -> tuple[Gap, ...]:
    """The gaps of a flush with their times. `seen_ts`: the greatest ts that the task has read so far.

    The lost events may have been committed after the checkpoint, which another region holds back: they were
    sent before what was read of their partition now. Until any of it is read, the next flush finds the gap
    again.
    """
    return tuple(replace(gap, to_ts=max(end_ts, seen_ts, gap.from_ts + 1)) for gap in gaps)


def idle(flush: Flush, ends: Ends) -> bool:
    """Whether there is nothing to publish: nothing was captured, since no transaction is whole."""
    moved = any(row.end_position > row.start_position for row in captured(flush, ends))
    return flush.newest is not None and not passed(flush.gaps, ends) and not moved


def row_of(
    request: LogRequest, work: Workspace, flush: Flush, totals: Totals, checkpoint: int | None, domain: Domain
) -> Backup:
    """The flush as a backup: its log reaches from the end of the one before to the checkpoint.

    Without a checkpoint, `start_ts` is None and nothing is covered; the first checkpoint becomes both ends.
    """
    endts, before = request.settings.endts, flush.resolved_ts
    if checkpoint is not None and endts is not None:
        checkpoint = min(checkpoint, endts)
    return backup_row(
        work,
        flush,
        totals,
        flush.newest,
        source_kind=CHANGES,
        kind="log",
        level=1,
        ts_domain=domain,
        start_ts=checkpoint if before is None else before,
        end_ts=checkpoint or before or 0,
        isolation=ISOLATION,
        codec=request.settings.codec,
    )


def manifest(work: Workspace, flush: Flush, backup: Backup, ends: Ends) -> Manifest:
    """The rows of a flush whose log files and parts are stored; writes the stream's meta file."""
    storage, source, parts = work.storage, work.source, len(flush.tasks) + 1
    rows = sidecar.read_parts(storage, source, flush.backup_id, parts)
    write_stream_meta(storage, source, flush.backup_id, backup.end_ts, rows)
    return Manifest(
        backup=backup,
        positions=captured(flush, ends),
        scopes=flush.scopes,
        gaps=bridged(passed(flush.gaps, ends), backup.end_ts, _seen_ts(storage, flush, source, parts)),
        parts=parts,
    )


def _seen_ts(storage: Storage, flush: Flush, source: str, parts: int) -> int:
    rows = sidecar.read_part(storage, layout.parts_path(source, flush.backup_id, parts - 1))
    return next(row.max_ts or 0 for row in rows if row.format == LISTED["log_regions"])
