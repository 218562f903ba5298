"""The smallest kind of backup: a data file for each line of a text file. Shows what a new source needs."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter

from lakebackup.errors import Refused
from lakebackup.requests import RunRequest
from lakebackup.rows.backups import Backup, DataFile
from lakebackup.rules import layout
from lakebackup.storage import Storage
from lakebackup.store.manifest import Manifest
from lakebackup_jobs.lifecycle.identity import micros
from lakebackup_jobs.lifecycle.parts import run_tasks
from lakebackup_jobs.lifecycle.progress import Reporter
from lakebackup_jobs.lifecycle.run import Life, backup_row, result_of
from lakebackup_jobs.lifecycle.source import Source
from lakebackup_jobs.lifecycle.tasks.numbers import latest_number
from lakebackup_jobs.lifecycle.tasks.part import PartTask
from lakebackup_jobs.lifecycle.tasks.totals import Totals
from lakebackup_jobs.lifecycle.workspace import Workspace

KIND = "lines"


@dataclass(frozen=True, slots=True)
class LinesRequest(RunRequest):
    """A request to back up the lines of a file."""

    file: Path
    note: str | None = None


@dataclass(frozen=True, slots=True)
class Draft:
    """The lines from `start` to before `end`."""

    backup_id: str
    number: int
    started_at: int
    start: int
    end: int
    note: str | None


@dataclass(frozen=True, kw_only=True)
class CopyLines(PartTask):
    """Task i copies line `start` + i."""

    file: Path
    start: int

    def write(self, storage: Storage, task: int) -> list[DataFile]:
        position = self.start + task
        data = self.file.read_bytes().splitlines()[position]
        if data == b"torn":
            raise Refused(f"line {position} is torn")
        path = f"{self.source}/lines/{self.backup_id}/{position:06d}.data"
        storage.put(path, data)
        return [
            self.row(
                path=path, scope="", epoch="-", region="0", format=KIND, codec="null", bytes=len(data),
                raw_bytes=len(data), sha256=hashlib.sha256(data).hexdigest(), entries=1, min_ts=0, max_ts=0,
                start_position=position, end_position=position + 1,
            )
        ]  # fmt: skip


class Lines(Source[Draft]):
    """A file to which lines are only ever added."""

    DRAFT = TypeAdapter(Draft)
    DISCARD_WHEN_REFUSED = True

    def __init__(self, workspace: Workspace, request: LinesRequest) -> None:
        super().__init__(workspace)
        self.request = request

    def plan(self) -> Draft | None:
        started_at, reader = datetime.now(UTC), self.workspace.reader()
        source = self.workspace.source
        sql = f"SELECT coalesce(max(end_position), 0) AS upto FROM files WHERE source = '{source}'"
        start = reader.select(sql).read_all()["upto"][0].as_py()
        end = len(self.request.file.read_bytes().splitlines())
        number = latest_number(reader, source) + 1
        draft = Draft(
            layout.new_backup_id(started_at), number, micros(started_at), start, end, self.request.note
        )
        return draft if end > start else None

    def resume_blocker(self, draft: Draft) -> str | None:
        if draft.number != latest_number(self.workspace.reader(), self.workspace.source) + 1:
            return "another backup was taken since"
        return None if draft.note == self.request.note else "another note is asked for"

    def matches_request(self, draft: Draft) -> bool:
        return draft.note == self.request.note

    def copy(self, draft: Draft) -> Totals:
        work = self.workspace
        job = CopyLines(
            uri=work.storage.uri,
            destination=work.destination,
            source=work.source,
            backup_id=draft.backup_id,
            number=draft.number,
            file=self.request.file,
            start=draft.start,
        )
        work.choose_runner(self.request, self.request.file.stat().st_size)
        return run_tasks(work, job, range(draft.end - draft.start))

    def manifest(self, draft: Draft, totals: Totals) -> Manifest:
        backup = backup_row(
            self.workspace, draft, totals, None, source_kind=KIND, kind="full", level=0, end_ts=draft.number,
            isolation="-", codec="null", note=draft.note,
        )  # fmt: skip
        return Manifest(backup=backup, positions=(), scopes=(), gaps=(), parts=draft.end - draft.start)

    def discard(self, draft: Draft) -> int:
        return self.workspace.empty(f"{self.workspace.source}/lines/{draft.backup_id}/")

    def result(self, draft: Draft, backup: Backup) -> dict[str, Any]:
        return result_of(backup, {"lines": [draft.start, draft.end]})


def run(request: LinesRequest, reporter: Reporter, spark: Any = None) -> dict[str, Any] | None:
    """Take one backup; returns None if nothing is new."""
    work = Workspace(request, "notes", reporter, spark)
    with work.running("backup", KIND) as lease:
        work.writer().prepare()
        lines = Lines(work, request)
        life = Life(lines, lease)
        if result := life.finish_interrupted():
            return result
        draft = lines.plan()
        return life.run(draft) if draft else None
