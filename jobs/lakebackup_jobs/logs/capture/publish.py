"""Builds the catalog rows of a flush whose log files and parts are stored."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace

from lakebackup.formats.logs.events import Domain
from lakebackup.formats.logs.metafile import write_stream_meta
from lakebackup.plan.logs.flush import Flush
from lakebackup.rows.backups import Backup, Gap, Position
from lakebackup.rows.base import CHANGES
from lakebackup.rules import layout
from lakebackup.storage import Storage
from lakebackup.store import manifest as sidecar
from lakebackup.store.delta_append import LISTED
from lakebackup.store.manifest import Manifest
from lakebackup_jobs.lifecycle.run import backup_row
from lakebackup_jobs.lifecycle.tasks.totals import Totals
from lakebackup_jobs.lifecycle.workspace import Workspace
from lakebackup_jobs.logs.capture.flush import LogRequest
from lakebackup_jobs.logs.feeds import ISOLATION
from lakebackup_jobs.logs.skips import REASON

Ends = dict[tuple[str, str], int]


def ends_of(texts: Sequence[str]) -> Ends:
    """The offset up to which the tasks captured each partition: (topic, partition) -> end.

    `texts`: the column `ends` of the tasks' rows.
    """
    return {(topic, str(partition)): end for text in texts for topic, partition, _, end in json.loads(text)}


def captured(flush: Flush, ends: Ends) -> tuple[Position, ...]:
    """The planned positions of a flush, cut to the offsets that its tasks captured."""
    return tuple(
        replace(position, end_position=ends.get((position.scope, position.region), position.start_position))
        for position in flush.positions
    )


def passed(gaps: Sequence[Gap], ends: Ends) -> tuple[Gap, ...]:
    """The planned gaps, without those of skipped messages that the flush did not reach."""
    return tuple(
        gap
        for gap in gaps
        if gap.reason != REASON
        or gap.from_position < ends.get((gap.scope, gap.region), gap.from_position + 1)
    )


def bridged(gaps: Sequence[Gap], end_ts: int, seen_ts: int) -> tuple[Gap, ...]:
    """The gaps of a flush with their `to_ts`. `seen_ts`: the greatest ts that the task has read so far.

    Another region may hold back the checkpoint, so the lost events may have been committed after it. They
    were sent before the events that this flush read of their partition. As long as no flush reads any of
    those, the next flush plans the gap again.
    """
    return tuple(replace(gap, to_ts=max(end_ts, seen_ts, gap.from_ts + 1)) for gap in gaps)


def idle(flush: Flush, ends: Ends) -> bool:
    """Whether a flush has nothing to publish. It captured nothing because no transaction is complete."""
    has_new_offsets = any(row.end_position > row.start_position for row in captured(flush, ends))
    return flush.newest is not None and not passed(flush.gaps, ends) and not has_new_offsets


def row_of(
    request: LogRequest, work: Workspace, flush: Flush, totals: Totals, checkpoint: int | None, domain: Domain
) -> Backup:
    """The row of a flush as a backup. Its log reaches from the previous checkpoint to `checkpoint`.

    While there is no checkpoint, `start_ts` is None and nothing is covered. The first checkpoint becomes both
    `start_ts` and `end_ts`.
    """
    endts, old_checkpoint = request.settings.endts, flush.resolved_ts
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
        start_ts=checkpoint if old_checkpoint is None else old_checkpoint,
        end_ts=checkpoint or old_checkpoint or 0,
        isolation=ISOLATION,
        codec=request.settings.codec,
    )


def manifest(work: Workspace, flush: Flush, backup: Backup, ends: Ends) -> Manifest:
    """The manifest of a flush whose log files and parts are stored; writes the stream's meta file."""
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
