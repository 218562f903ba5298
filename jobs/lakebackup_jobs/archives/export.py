"""Exports a backup and its chain as an archive: one folder of SQLite files per backup.

A topic becomes a bucket, a partition a vbucket, and an offset plus one a sequence number. Backups that were
imported from an archive are exported as their original files.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from importlib.metadata import version
from operator import attrgetter
from typing import Any

from pyspark.sql import SparkSession

from lakebackup.errors import NotFound, Refused, UsageProblem
from lakebackup.formats.archives import meta, tree
from lakebackup.requests import RunRequest
from lakebackup.rows.base import ARCHIVE, TOPICS
from lakebackup.rules import layout
from lakebackup.rules.kinds import require_kind
from lakebackup.rules.times import format_ts
from lakebackup.storage.nesting import require_outside
from lakebackup.store.reader import CatalogReader
from lakebackup.store.roots import Roots
from lakebackup_jobs.archives import read_task as archive_task
from lakebackup_jobs.archives.read_task import StoredObject
from lakebackup_jobs.archives.write_task import WriteJob
from lakebackup_jobs.lifecycle.atomic_dir import WORK, StagedFolder
from lakebackup_jobs.lifecycle.keyring import open_keys, open_roots
from lakebackup_jobs.lifecycle.progress import Reporter
from lakebackup_jobs.lifecycle.restore import Subject, restoring
from lakebackup_jobs.lifecycle.tasks.plan_shares import PlanShares, Share, all_rows, divided, store_plan
from lakebackup_jobs.lifecycle.tasks.progress import TaskProgress
from lakebackup_jobs.lifecycle.tasks.task import run_all
from lakebackup_jobs.lifecycle.workspace import Workspace
from lakebackup_sql import load

#: The number of vbuckets in the format.
MOST_PARTITIONS = 1024
_NO_BACKUP_HINT = "`lakebackup backup topics` or `lakebackup archive import` makes the first."
# The stored bytes of the data files that go into one .cbb file.
TARGET_BYTES = 512 << 20


@dataclass(frozen=True, slots=True)
class ArchiveExportRequest(RunRequest):
    """The request to export an archive. `what`: a backup's id or a source; None: the only source."""

    folder: str
    what: str | None = None
    buckets: tuple[str, ...] = ()
    target_bytes: int = TARGET_BYTES


@dataclass(frozen=True, slots=True)
class Chain:
    """A backup and, before it, the backups that its restore needs: rows of the query archive_path."""

    backups: tuple[Mapping[str, Any], ...]

    @property
    def last(self) -> Mapping[str, Any]:
        return self.backups[-1]

    @property
    def bytes(self) -> int:
        """The stored bytes of the chain."""
        return sum(row["bytes"] for row in self.backups)

    @property
    def summary(self) -> list[dict[str, Any]]:
        """The chain's backups, for the summary of a run."""
        return [
            {name: row[name] for name in ("backup_id", "kind", "level", "end_ts")} for row in self.backups
        ]


def chain_of(reader: CatalogReader, source_or_backup: str | None, to_ts: int | None = None) -> Chain:
    """Return the chain of a backup, or of a source's newest backup that ended by `to_ts` (ms).

    Raises NotFound, UsageProblem (several sources), Refused (the backup cannot be restored, ended after
    `to_ts`, or has files of another format).
    """
    # This query pins the reader to the current tables, so that a later prune is detected.
    reader.first_row("latest_prune", source=source_or_backup)
    sources = sorted({row["source"] for row in reader.rows("every_backup")})
    if source_or_backup is None and len(sources) > 1:
        raise UsageProblem(
            f"The catalog holds several sources: {', '.join(sources)}.", hint="Name one of them."
        )
    if source_or_backup is None or source_or_backup in sources:
        if not sources:
            raise NotFound("The catalog holds no backup.", hint=_NO_BACKUP_HINT)
        source = source_or_backup or sources[0]
        target = reader.first_row("archive_target", source=source, to_ts=to_ts)
        if target is None:
            when = "" if to_ts is None else f" that ended by {format_ts(to_ts)}"
            raise NotFound(
                f"There is no backup of {source}{when} that can be restored.",
                hint="`lakebackup list` shows the backups, the view unusable_backups what is wrong.",
            )
        backup_id = str(target["backup_id"])
    else:
        backup_id = reader.resolve_backup(source_or_backup)
    backups = tuple(reader.rows("archive_path", backup_id=backup_id))
    if backups[-1]["state"] != "complete" or not backups[-1]["intact"]:
        raise Refused(
            f"Backup {backup_id} cannot be restored: it, or a backup that it depends on, is incomplete.",
            hint="The view unusable_backups says why.",
        )
    last = backups[-1]
    if last["source_kind"] != ARCHIVE:
        require_kind(last["source"], TOPICS, [last["source_kind"]])
    if to_ts is not None and last["end_ts"] > to_ts:
        raise Refused(
            f"Backup {backup_id} ended at {format_ts(last['end_ts'])}, after {format_ts(to_ts)}.",
            hint=f"Name its source, {last['source']}, for its newest backup by then, or leave the time out.",
        )
    return Chain(backups)


def run(
    request: ArchiveExportRequest, *, spark: SparkSession | None = None, reporter: Reporter
) -> dict[str, Any]:
    """Export an archive and return a summary.

    Raises NotFound, Refused (the folder is not empty, a topic has too many partitions, the backup cannot be
    restored), Busy (a prune ran meanwhile), Damaged (a data file differs from the catalog).
    """
    work = Workspace(request, "", reporter, spark)
    reader = work.current()
    chain = chain_of(reader, request.what)
    require_outside(request, request.folder)
    staged = StagedFolder(request.folder)
    export = (_ImportedExport if chain.last["source_kind"] == ARCHIVE else _TopicsExport)(
        request, reader, chain, staged
    )
    summary = {
        "folder": str(staged.folder),
        "source": chain.last["source"],
        "backup_id": chain.last["backup_id"],
        "buckets": ", ".join(export.buckets),
        "backups": chain.summary,
    }
    if request.dry_run:
        return {"dry_run": True, **summary}
    staged.begin()
    subject = Subject(
        source=chain.last["source"],
        target=f"archive:{staged.folder}",
        selection=load("queries", export.SELECTION),
    )
    work.choose_runner(request, chain.bytes)
    with restoring(work, reader) as run:
        run.begin(subject)
        totals = export.write(work)
        run.complete(entries=totals["entries"], size=totals.get("bytes", chain.bytes))
    return work.timed({**summary, **totals})


def select_buckets(requested: Sequence[str], existing: Sequence[str]) -> list[str]:
    """Return the requested buckets, or all if none is requested. Raises NotFound."""
    unknown = sorted(set(requested) - set(existing))
    if unknown:
        raise NotFound(f"There is no bucket {', '.join(unknown)}.", hint=f"There is {', '.join(existing)}.")
    return [name for name in existing if not requested or name in requested]


class _ImportedExport:
    """Exports imported backups: their original data files, and only the newest design documents."""

    SELECTION = "archive_files"

    def __init__(
        self, request: ArchiveExportRequest, reader: CatalogReader, chain: Chain, staged: StagedFolder
    ) -> None:
        self.chain, self.staged, self.reader = chain, staged, reader
        rows = reader.rows("archive_files", backup_id=chain.last["backup_id"])
        self.buckets = select_buckets(request.buckets, sorted({row["scope"] for row in rows if row["scope"]}))
        self.rows = [row for row in rows if row["scope"] in {"", *self.buckets}]

    def write(self, work: Workspace) -> dict[str, Any]:
        """Copy the files in tasks, which check their SHA-256."""
        data = [row for row in self.rows if row["role"] != "schema"]
        storage, reporter = self.staged.storage, work.reporter
        roots = open_files(self.reader.destinations(), self.rows)
        pairs: list[tuple[Mapping[str, Any], str]] = [(row, _path_of(row)) for row in data]
        newest = json.loads(self.chain.last["note"])["archive"]
        for row in newest_designs(self.rows):
            relative_path = _path_of(row).removeprefix(folder_of(self.chain, row["backup_id"]))
            pairs.append((row, f"{newest}/{relative_path.lstrip('/')}".lstrip("/")))
        size = sum(row["bytes"] for row, _ in pairs)
        reporter.start(len(pairs), size, "export", "files")
        with TaskProgress(storage, WORK).watched(reporter.update):
            for destination in sorted({row["destination"] for row, _ in pairs}):
                files = tuple(
                    (StoredObject.of(row), to) for row, to in pairs if row["destination"] == destination
                )
                uri = roots.uri(destination)
                job = archive_task.CopyJob(uri, storage.uri, files, WORK, roots.keys, private=False)
                run_all(job, range(len(files)), work.task_cluster, archive_task.MOST_TASKS)
        reporter.update(len(pairs), size)
        self.staged.finish(
            {folder_of(self.chain, b["backup_id"]): b["end_ts"] / 1000 for b in self.chain.backups}
        )
        return {"files": len(pairs), "entries": sum(row["entries"] for row in data)}


def _path_of(row: Mapping[str, Any]) -> str:
    """The path that an imported file had in its archive."""
    return layout.path_in_archive(row["source"], plain_path(row))


def plain_path(row: Mapping[str, Any]) -> str:
    """The path of a file in the repository, without the id of its data key."""
    path: str = row["path"]
    return path if row["key_id"] is None else layout.unencrypted_path(path)


def open_files(roots: Roots, rows: Sequence[Mapping[str, Any]]) -> Roots:
    """The roots with the data keys of rows of archive_files. Raises as `open_keys`."""
    columns = ("destination", "source", "backup_id", "key_id")
    keys = {tuple(row[name] for name in columns) for row in rows if row["key_id"] is not None}
    return roots.with_keys(open_keys(roots, [dict(zip(columns, key, strict=True)) for key in sorted(keys)]))


def folder_of(chain: Chain, backup_id: str) -> str:
    """Return the original folder of an imported backup in its archive."""
    note = next(backup["note"] for backup in chain.backups if backup["backup_id"] == backup_id)
    return str(json.loads(note)["archive"])


def newest_designs(rows: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Return the newest design documents and index definitions of each bucket."""
    newest: dict[tuple[str, str], Mapping[str, Any]] = {}
    for row in rows:  # oldest first
        if row["role"] == "schema":
            newest[row["scope"], plain_path(row).rpartition("/")[2]] = row
    return list(newest.values())


@dataclass(frozen=True, slots=True)
class _DataFile:
    """The columns of archive_records by which files are divided."""

    backup_id: str
    scope: str
    bytes: int
    entries: int


class _TopicsExport:
    """Exports topics: the records of their data files become mutations."""

    SELECTION = "archive_records"

    def __init__(
        self, request: ArchiveExportRequest, reader: CatalogReader, chain: Chain, staged: StagedFolder
    ) -> None:
        self.request, self.reader, self.chain, self.staged = request, reader, chain, staged
        self.backup_id = chain.last["backup_id"]
        scopes = {
            row["scope"]: row["regions"] for row in reader.rows("show_scopes", backup_id=self.backup_id)
        }
        self.buckets = select_buckets(request.buckets, sorted(scopes))
        self.all_buckets = len(self.buckets) == len(scopes)
        large = sorted(name for name in self.buckets if scopes[name] > MOST_PARTITIONS)
        if large:
            raise Refused(
                f"Topic {large[0]} has {scopes[large[0]]} partitions; a bucket has up to {MOST_PARTITIONS}.",
                hint="Export the other topics with --bucket.",
            )
        self.folders = _folders(chain)

    def write(self, work: Workspace) -> dict[str, Any]:
        """Write the SQLite files in tasks, then the JSON files beside them."""
        reporter, counts = work.reporter, Counter[tuple[str, ...]]()
        plan = self._plan(counts, reporter)
        job = WriteJob(plan, open_roots(self.reader, plan.file))
        with plan.task_progress().watched(reporter.update):
            rows = run_all(job, plan.numbers, work.task_cluster, archive_task.MOST_TASKS)
        entries, size = sum(row.entries for row in rows), sum(row.bytes for row in rows)
        reporter.update(entries, size)
        self._write_json(counts, rows)
        self.staged.finish({self.folders[b["backup_id"]]: b["end_ts"] / 1000 for b in self.chain.backups})
        keyless, headers = sum(row.keyless for row in rows), sum(row.headers for row in rows)
        if keyless:
            reporter.warning(f"{keyless} records have no key: their documents are named <partition>-<offset>")
        if headers:
            reporter.warning(f"{headers} records have headers, which the format cannot store")
        return {
            "files": len(rows),
            "bytes": size,
            "entries": entries,
            "without_key": keyless,
            "without_headers": headers,
        }

    def _plan(self, counts: Counter[tuple[str, ...]], reporter: Reporter) -> PlanShares:
        """Record the data files of each .cbb file, and count the .cbb files of each backup and bucket.

        Each backup has one at least for each bucket.
        """
        file = self.reader.plan_file("archive_records", backup_id=self.backup_id)
        rows = all_rows(file, _DataFile)
        limit = attrgetter("bytes"), self.request.target_bytes
        shares = divided(rows, attrgetter("backup_id", "scope"), limit)
        shares = [share for share in shares if share.partition[1] in self.buckets]
        pairs = {(b["backup_id"], bucket) for b in self.chain.backups for bucket in self.buckets}
        empty = pairs.difference(share.partition for share in shares)
        shares += [Share(0, 0, pair) for pair in sorted(empty)]
        for number, share in enumerate(shares):
            pair = share.partition
            shares[number] = share._replace(partition=(f"{self._node(pair)}data-{counts[pair]:04d}.cbb",))
            counts[pair] += 1
        reporter.start(sum(row.entries for row in rows if row.scope in self.buckets), None, "export")
        return store_plan(self.staged.storage, WORK, file, shares, most_tasks=len(shares))

    def _node(self, key: tuple[str, ...]) -> str:
        backup_id, bucket = key
        return f"{self.folders[backup_id]}/{tree.node_folder(bucket, self.chain.last['source'])}"

    def _write_json(self, counts: Mapping[tuple[str, ...], int], rows: Sequence[Any]) -> None:
        """Write meta.json and seqno.json of every bucket in every backup."""
        seqnos: dict[str, dict[str, int]] = {}
        for row in rows:
            bucket_seqnos = seqnos.setdefault(row.path.rpartition("/")[0] + "/", {})
            for vbucket, seqno in json.loads(row.seqnos).items():
                bucket_seqnos[vbucket] = max(seqno, bucket_seqnos.get(vbucket, 0))
        baselines: dict[str, list[str]] = {bucket: [] for bucket in self.buckets}
        for backup in self.chain.backups:
            merged = backup["place"] != backup["number"]
            for bucket in self.buckets:
                key = backup["backup_id"], bucket
                content = {
                    "tool": f"lakebackup {version('lakebackup')}",
                    "baselines": baselines[bucket],
                    "user": backup["created_by"],
                    "bucket": "all" if self.all_buckets else bucket,
                    "retention_policy": _policy(backup),
                    "retention_ran_at": _time(backup["pruned_at"]),
                    "merged": merged,
                    "merged_at": _time(backup["finished_at"]) if merged else None,
                    "level": backup["level"],
                    "backup_id": backup["backup_id"],
                }
                folder = self._node(key)
                self.staged.storage.put(f"{folder}{tree.META}", meta.encode(content))
                self.staged.storage.put(f"{folder}{tree.SEQNO}", json.dumps(seqnos[folder]).encode())
                baselines[bucket] += [f"{folder}data-{n:04d}.cbb" for n in range(counts[key])]


def _policy(backup: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return the retention policy of a backup's source; None: it has none."""
    if backup["policy_at"] is None:
        return None
    return {name: backup[name] for name in ("window_days", "redundancy", "min_redundancy")}


def _time(us: int | None) -> str | None:
    return None if us is None else format_ts(us // 1000)


def _folders(chain: Chain) -> dict[str, str]:
    """Return the folder of each backup of a chain, in order; each is named after a different second.

    Only the first backup after the full may become an accumulative one, since readers of the format skip the
    backups between the full and an accumulative one.
    """
    folders: dict[str, str] = {}
    root, previous = "", None
    for position, backup in enumerate(chain.backups):
        time = tree.later(
            datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=backup["end_ts"]), previous
        )
        previous, name = time, tree.name_of(time)
        kind = backup["kind"]
        ending = "full" if not position else "accu" if kind == "cumulative" and position == 1 else "diff"
        root = root or name
        folders[backup["backup_id"]] = f"{root}/{name}-{ending}"
    return folders
