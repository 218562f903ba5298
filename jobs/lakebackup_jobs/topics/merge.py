"""Merge several consecutive backups into one of a lower level, from their files alone.

The result is a backup like any other. It ends at the positions and the instant of the last merged backup and
takes its place. The merged backups stay until a prune. An interrupted merge does not change them; run again,
the merge is resumed.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa
from pydantic import TypeAdapter

from lakebackup.errors import Damaged, Refused
from lakebackup.plan.topics.generations import read_generations
from lakebackup.plan.topics.merge import Member, MergePlan, add_topics, choose, group_files
from lakebackup.plan.topics.request import only_source
from lakebackup.requests import RunRequest
from lakebackup.rows.backups import Backup, Gap, Position
from lakebackup.rows.base import TOPICS, pick
from lakebackup.rows.topics import Group
from lakebackup.rules import layout, topic_settings
from lakebackup.rules.kinds import require_kind_of
from lakebackup.rules.retention import roll_ms
from lakebackup.storage import working
from lakebackup.store import manifest as sidecar
from lakebackup.store import tombstones
from lakebackup.store.behind import current_catalog
from lakebackup.store.data_keys import RunEncryption
from lakebackup.store.manifest import Manifest
from lakebackup.store.reader import CatalogReader
from lakebackup.store.writer import Session
from lakebackup_jobs.kafka.format.registry import SCHEMAS_TOPIC
from lakebackup_jobs.lifecycle.keyring import open_replaced
from lakebackup_jobs.lifecycle.parts import parts_of, run_tasks
from lakebackup_jobs.lifecycle.progress import Reporter
from lakebackup_jobs.lifecycle.run import Life, backup_row
from lakebackup_jobs.lifecycle.source import Source
from lakebackup_jobs.lifecycle.tasks.numbers import next_backup, next_sequences
from lakebackup_jobs.lifecycle.tasks.plan_shares import all_rows, clear, require_plan, store_plan, stored_plan
from lakebackup_jobs.lifecycle.tasks.runner import of_files
from lakebackup_jobs.lifecycle.tasks.totals import Totals
from lakebackup_jobs.lifecycle.workspace import Workspace
from lakebackup_jobs.topics.resume import tasks_done
from lakebackup_jobs.topics.tasks.decode import decode_backup
from lakebackup_jobs.topics.tasks.merge import Merge, MergedFile, divide

# When there are more tasks than this, a Spark task takes several.
MOST_TASKS = 2_000


@dataclass(frozen=True, slots=True)
class MergeRequest(RunRequest):
    """A request to merge backups of `level` into one of the level below.

    `until`: the last backup to merge, by the beginning of its id. `to_ts` (ms): merge only backups that end
    by then. `recipients`: who can read the new files; without recipients they are not encrypted.
    """

    level: int
    source: str | None = None
    until: str | None = None
    to_ts: int | None = None
    drop_gone: bool = False
    target_bytes: int = 128 << 20
    schema_topics: tuple[str, ...] = (SCHEMAS_TOPIC,)
    recipients: tuple[str, ...] = ()
    note: str | None = None


@dataclass(frozen=True, slots=True)
class InProgress:
    """The draft of a merge. `tasks`: how many there are; None: their input is not written yet. `asked`: a
    fingerprint, which is equal for two merges that do the same."""

    backup_id: str
    number: int
    started_at: int
    tasks: int | None
    asked: str


def run(request: MergeRequest, *, spark: Session = None, reporter: Reporter) -> dict[str, Any]:
    """Merge backups, and return a summary. It is no error when there is nothing to merge.

    Raises NotFound (no catalog, no such backup), UsageProblem (level 0), Refused (the last backup lacks
    topics, or its tombstones are in doubt), Damaged (a file differs from its row in the catalog; no backup
    was made), Busy (another run works on the source), EnvironmentProblem.
    """
    reader = current_catalog(request.destination, request.catalog)
    source = layout.check_source(only_source(reader, request.source))
    if request.dry_run:
        return {"dry_run": True, **_summary(request, source, _plan(request, reader, source))}
    work = Workspace(request, source, reporter, spark)
    with work.running("merge") as lease:
        topics = TopicsMerge(work, request)
        life = Life(topics, lease)
        result = life.finish_interrupted()
        if result is not None:
            result["resumed"] = True
        elif draft := topics.plan():
            result = life.run(draft) | {"resumed": False}
        else:
            result = {"backup_id": None, **_summary(request, source, None)}
    return work.timed(result)


class TopicsMerge(Source[InProgress]):
    """A merge of backups of one source."""

    DRAFT = TypeAdapter(InProgress)
    WORD = "merge"
    DISCARD_WHEN_REFUSED = True

    #: What to merge; set by `plan`. A merge that is resumed is planned too, to see whether it is the same.
    merge_plan: MergePlan

    def __init__(self, workspace: Workspace, request: MergeRequest) -> None:
        super().__init__(workspace)
        self.request = request
        self.reader = workspace.reader()
        self.encryption = RunEncryption.of(request.recipients, workspace.storage)

    @property
    def record_path(self) -> str:
        return layout.merge_path(self.workspace.source)

    def plan(self) -> InProgress | None:
        """The draft of the merge; None: there is nothing to merge."""
        work = self.workspace
        plan = _plan(self.request, self.reader, work.source)
        if plan is None:
            return None
        self.merge_plan = plan
        if self.request.until and plan.parent:
            tombstones.require_not_pruned(work.storage, work.source, plan.parent.backup_id)
        return InProgress(*next_backup(self.reader, work.source), None, self._fingerprint(plan))

    def prepare(self, draft: InProgress) -> InProgress:
        file, storage = self.merge_plan.file, self.workspace.storage
        groups = group_files(all_rows(file, MergedFile), self.request.target_bytes, self._rolls())
        shares, ranks = divide(groups)
        store_plan(storage, self.folder(draft), file, shares, {"ranks": ranks}, most_tasks=len(shares))
        return replace(draft, tasks=len(shares))

    def resume_blocker(self, draft: InProgress) -> str | None:
        current = self.plan()
        # Older versions stored the files in another form.
        stored = stored_plan(self.workspace.storage, self.folder(draft))
        if draft.tasks is None or stored is None or "key_id" not in stored[0].file.schema().names:
            return "it was not planned to its end"
        if current is None or (current.asked, current.number) != (draft.asked, draft.number):
            return "what there is to merge is not what it was"
        return None

    def _fingerprint(self, plan: MergePlan) -> str:
        """A digest of the merged backups, as they are now, and of the result's kind, level and file size."""
        content = [
            [member.backup_id for member in plan.members], plan.level, plan.kind, self.request.target_bytes,
            [[getattr(topic, name) for name in topic.__match_args__] for topic in plan.topics],
            *filter(None, [list(self.request.recipients)]),
        ]  # fmt: skip
        return hashlib.sha256(json.dumps(content).encode()).hexdigest()

    def _rolls(self) -> dict[str, int | None]:
        """The time (ms) that a file's records may span, by topic; None: any."""
        topics = self.merge_plan.topics
        return {topic.scope: roll_ms(topic_settings.in_force(topic.settings), None) for topic in topics}

    def copy(self, draft: InProgress) -> Totals:
        work, plan = self.workspace, self.merge_plan
        if plan.without:
            work.reporter.warning(
                f"topics left out, since the last backup does not have them: {', '.join(plan.without)}"
            )
        shares, state = require_plan(work.storage, self.folder(draft))
        roots = open_replaced(self.reader, shares.file, self.encryption)
        job = Merge(
            **parts_of(work, draft, plan.level, plan.parent, self.encryption),
            plan=shares,
            ranks=state["ranks"],
            target_bytes=self.request.target_bytes,
            rolls=self._rolls(),
            roots=roots,
            sequences=next_sequences(self.reader, work.source, plan.topics),
        )
        # Of another statement than the files, so a file that is planned twice or not at all is noticed.
        expected, size = sum(topic.entries for topic in plan.topics), shares.file.total("bytes")
        work.choose_runner(self.request, of_files(size))
        work.reporter.start(expected, size, "merge")
        limit = MOST_TASKS if work.runner == "spark" else None
        totals = run_tasks(work, job, shares.numbers, max_tasks=limit)
        if draft.tasks and totals.entries != expected:
            raise Refused(
                f"What was merged holds {totals.entries} records, its backups hold {expected}: they changed "
                "meanwhile. Nothing was merged.",
                hint="Run it again.",
            )
        return totals

    def manifest(self, draft: InProgress, totals: Totals) -> Manifest:
        self._decode(draft)
        plan, source = self.merge_plan, self.workspace.source
        identity: dict[str, Any] = {"backup_id": draft.backup_id, "source": source}
        scopes = ",".join(topic.scope for topic in plan.topics)
        reader, parameters = with_members(self.reader, plan), {"source": source, "last": plan.last.backup_id}
        groups = reader.rows("compact_groups", source=source, backup_id=plan.last.backup_id, scopes=scopes)
        return Manifest(
            backup=self._backup(draft, totals),
            positions=[Position(**identity, **row) for row in reader.rows("merge_positions", **parameters)],
            scopes=[topic.row(**identity) for topic in plan.topics],
            gaps=[Gap(**identity, **row) for row in reader.rows("merge_gaps", **parameters)],
            groups=[Group(**identity, **row) for row in groups],
            parts=draft.tasks or 0,
        )

    def _decode(self, draft: InProgress) -> None:
        """Write the rows decoded from the new data files: a prune deletes those of the merged files."""
        work = self.workspace
        part_paths = [
            layout.parts_path(work.source, draft.backup_id, task) for task in range(draft.tasks or 0)
        ]
        parts = {topic.scope: part_paths for topic in self.merge_plan.topics}
        decode_backup(work, draft.backup_id, parts, self.request.schema_topics, self.encryption)

    def _backup(self, draft: InProgress, totals: Totals) -> Backup:
        plan = self.merge_plan
        first, last, parent = plan.members[0], plan.last, plan.parent
        default_note = f"merge of {len(plan.members)} backups, {first.backup_id} to {last.backup_id}"
        return backup_row(
            self.workspace,
            draft,
            totals,
            parent,
            kind=plan.kind,
            level=plan.level,
            place=last.place,
            branch=last.branch if parent else 0,
            end_ts=last.end_ts,
            isolation=last.isolation,
            codec=last.codec,
            note=self.request.note or default_note,
        )

    def discard(self, draft: InProgress) -> int:
        """Delete the files of completed tasks; returns how many."""
        storage, source, count = self.workspace.storage, self.workspace.source, 0
        for task in sorted(tasks_done(self.workspace, draft.backup_id)):
            with suppress(Damaged):  # the files of a damaged part become orphans, which a prune finds
                rows = sidecar.read_part(storage, layout.parts_path(source, draft.backup_id, task))
                count += working.delete(storage, (row.path for row in rows))
        return count

    def finish(self, draft: InProgress) -> None:
        clear(self.workspace.storage, self.folder(draft))

    def result(self, draft: InProgress, backup: Backup) -> dict[str, Any]:  # noqa: ARG002
        return {
            "backup_id": backup.backup_id,
            **_summary(self.request, self.workspace.source, self.merge_plan),
            "made_files": backup.files,
            "made_bytes": backup.bytes,
        }


def _plan(request: MergeRequest, reader: CatalogReader, source: str) -> MergePlan | None:
    """Plan the merge; None when there is nothing to merge. Writes nothing to the repository."""
    require_kind_of(reader, source, TOPICS)
    if request.until is None:
        newest = reader.first_row("latest_backup", source=source, level=None)
        tip = newest["backup_id"] if newest else ""
    else:
        tip = reader.resolve_backup(request.until, source)
    rows = reader.rows("merge_path", backup_id=tip)
    if request.until is not None:
        _require_restorable(tip, source, rows)
        _require_in_line(tip, request.level, reader)
    path = [pick(Member, row) for row in rows]
    plan = choose(request.level, path, request.to_ts)
    if plan is None:
        return None
    members = with_members(reader, plan)
    parameters: dict[str, Any] = {"source": source, "last": plan.last.backup_id}
    generations = read_generations(reader, source, plan.last)
    plan = add_topics(
        plan, members.rows("merge_scopes", **parameters), generations, drop_gone=request.drop_gone
    )
    return replace(plan, file=members.plan_file("merge_files", **parameters))


def with_members(reader: CatalogReader, plan: MergePlan) -> CatalogReader:
    """A reader with the relation `to_merge`: the backups that are merged."""
    backup_ids = pa.array([member.backup_id for member in plan.members], pa.string())
    return reader.with_rows("to_merge", pa.table({"backup_id": backup_ids}))


def _require_restorable(backup_id: str, source: str, path: Sequence[Mapping[str, Any]]) -> None:
    *_, last = path or [{"backup_id": None, "source": None, "intact": False}]
    if (last["backup_id"], last["source"], last["intact"]) != (backup_id, source, True):
        raise Refused(
            f"Backup {backup_id} is none of {source} that can be restored: nothing can be merged up to it.",
            hint="`SELECT * FROM unusable_backups` says why.",
        )


def _require_in_line(backup_id: str, level: int, reader: CatalogReader) -> None:
    """Refuse a merge up to a backup that later backups of its chain bypass.

    A merge replaces its members for all later backups, also for one that depends on only some of them.
    """
    parent = reader.first_row("parent_backup", backup_id=backup_id)
    if level > 1 and parent and parent["reason"] == "aside":
        raise Refused(
            f"Later backups of its chain do not depend on backup {backup_id}, but on an earlier one in its "
            "place: what they need would be missing.",
            hint="Leave --backup out, or `lakebackup merge 1` up to it: that makes a full of its own.",
        )


def _summary(request: MergeRequest, source: str, plan: MergePlan | None) -> dict[str, Any]:
    return {
        "source": source,
        "level": request.level,
        "kind": plan.kind if plan else None,
        "parent": plan.parent.backup_id if plan and plan.parent else None,
        "merged": [
            {"backup_id": m.backup_id, "kind": m.kind, "level": m.level, "end_ts": m.end_ts}
            for m in (plan.members if plan else ())
        ],
        "topics": len(plan.topics) if plan else 0,
        "files": plan.file.rows if plan else 0,
        **{name: plan.file.total(name) if plan else 0 for name in ("bytes", "entries")},
        "older_files": plan.older if plan else 0,
        "left_out": list(plan.without) if plan else [],
        "because": None if plan else f"no two backups of level {request.level} follow one another",
    }
