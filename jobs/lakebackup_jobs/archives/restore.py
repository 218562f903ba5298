"""Restores buckets into a folder as JSON lines: the newest mutation of each document, unless that deletes it.

Tasks read the files of the chain. The statement archive_newest finds the newest mutations: on Spark, or on
DuckDB for a small archive, whose mutations fit in memory.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import chain, groupby
from operator import itemgetter
from typing import Any
from urllib.parse import quote_plus

import pyarrow as pa
from pyspark.sql import SparkSession

from lakebackup.errors import NotFound, Refused
from lakebackup.formats.archives import cbb
from lakebackup.formats.archives.chain import takeovers
from lakebackup.requests import RunRequest
from lakebackup.rows.base import ARCHIVE
from lakebackup.rules.times import format_ts
from lakebackup.sql_engine.failures import task_errors
from lakebackup.sql_engine.worker import PerNumber, task_number
from lakebackup.storage import open_storage
from lakebackup.storage.local import local_folder
from lakebackup.storage.nesting import require_outside
from lakebackup.store.reader import CatalogReader
from lakebackup.store.roots import Roots
from lakebackup_jobs.archives import read_task as archive_task
from lakebackup_jobs.archives.export import (
    Chain,
    chain_of,
    newest_designs,
    open_files,
    plain_path,
    select_buckets,
)
from lakebackup_jobs.archives.read_task import StoredObject
from lakebackup_jobs.lifecycle.atomic_dir import WORK, StagedFolder
from lakebackup_jobs.lifecycle.progress import Reporter
from lakebackup_jobs.lifecycle.restore import Subject, key_of, restoring, unfinished
from lakebackup_jobs.lifecycle.tasks.batched import batched
from lakebackup_jobs.lifecycle.tasks.errors import arrow_schema, guarded, raise_first
from lakebackup_jobs.lifecycle.tasks.progress import TaskProgress
from lakebackup_jobs.lifecycle.workspace import Workspace
from lakebackup_sql import load

ROWS = (
    "scope STRING, vbucket INT, key BINARY, seqno BIGINT, place BIGINT, deleted BOOLEAN, cas STRING, "
    "flags BIGINT, expiry BIGINT, datatype BIGINT, value BINARY"
)
DOCUMENTS = "scope STRING, entries BIGINT, path STRING, error STRING"
# The order in which documents are written.
_ORDER = ("scope", "vbucket", "seqno", "key")
_BATCH = 2_000
_BATCH_BYTES = 8 << 20
_JSON = 0x01
# `place` orders all mutations by file, then by row; no file has more rows than this.
_ROWS_OF_A_FILE = 1 << 40


@dataclass(frozen=True, slots=True)
class ArchiveRestoreRequest(RunRequest):
    """The request to restore an archive: mutations of backups that ended in `(from_ts, to_ts]`, in ms."""

    folder: str
    what: str | None = None
    buckets: tuple[str, ...] = ()
    from_ts: int | None = None
    to_ts: int | None = None


@dataclass(frozen=True, slots=True)
class _Plan:
    chain: Chain
    files: Sequence[Mapping[str, Any]]
    designs: Sequence[Mapping[str, Any]]
    buckets: Sequence[str]
    limits: Mapping[str, Mapping[tuple[str, int], int]] = field(default_factory=dict)


def run(
    request: ArchiveRestoreRequest, *, spark: SparkSession | None = None, reporter: Reporter
) -> dict[str, Any]:
    """Restore buckets and return a summary; the folder appears when all is written.

    Raises NotFound, Refused (the folder is not empty, times for a backup that can only be restored as a
    whole, a backup of topics), Busy (a prune ran meanwhile), Damaged (a file is not what the catalog says).
    """
    work = Workspace(request, "", reporter, spark)
    reader = work.current()
    plan = _make_plan(request, reader)
    require_outside(request, request.folder)
    backup_id = plan.chain.last["backup_id"]
    times = (request.from_ts, request.to_ts)
    key = key_of("archive", str(local_folder(request.folder)), backup_id, list(plan.buckets), times)
    staged = StagedFolder(request.folder, key)
    summary = {
        "source": plan.chain.last["source"],
        "backup_id": backup_id,
        "reaches": format_ts(plan.chain.last["end_ts"]),
        "folder": str(staged.folder),
        "buckets": ", ".join(plan.buckets),
        "backups": plan.chain.summary,
        "files": len(plan.files),
        "bytes": sum(row["bytes"] for row in plan.files),
        "mutations": sum(row["entries"] for row in plan.files),
    }
    if request.dry_run:
        return {"dry_run": True, **summary}
    if staged.totals is not None and not unfinished(reader, key):
        # A run recorded the restore as complete, and was killed before it released the folder.
        staged.finish(totals=staged.totals)
        staged.release()
        staged = StagedFolder(request.folder, key)
    work.choose_runner(request, summary["bytes"])
    if staged.totals is None:
        staged.begin()
    subject = Subject(
        source=plan.chain.last["source"],
        target=f"dir:{request.folder}",
        selection=load("queries", "archive_files"),
        from_ts=request.from_ts,
        to_ts=request.to_ts,
    )
    with restoring(work, reader, key) as run:
        run.begin(subject)
        totals = staged.totals
        if totals is None:
            roots = open_files(reader.destinations(), [*plan.files, *plan.designs])
            totals = {"documents": _write(work, plan, reader, roots, staged)}
            for row in plan.designs:
                _design(row, roots, staged)
        staged.finish(totals=totals)
        run.complete(entries=totals["documents"], size=summary["bytes"])
    staged.release()
    return work.timed({"runner": work.runner, **summary, **totals})


def _make_plan(request: ArchiveRestoreRequest, reader: CatalogReader) -> _Plan:
    chain = chain_of(reader, request.what, request.to_ts)
    if chain.last["source_kind"] != ARCHIVE:
        raise Refused(
            f"{chain.last['source']} holds topics, not buckets.",
            hint="Use `lakebackup restore topics`, or `lakebackup archive export`.",
        )
    rows = reader.rows("archive_files", backup_id=chain.last["backup_id"])
    buckets = select_buckets(request.buckets, sorted({row["scope"] for row in rows if row["scope"]}))
    positions = reader.rows("archive_positions", backup_id=chain.last["backup_id"])
    data = [row for row in rows if row["role"] == "data" and row["scope"] in buckets]
    if (request.from_ts is not None or request.to_ts is not None) and not positions:
        raise Refused(
            f"The backup {chain.last['backup_id']} has no sequence numbers: it can only be restored whole.",
            hint="Leave out the times.",
        )
    ends = {backup["backup_id"]: backup["end_ts"] for backup in chain.backups}
    if request.from_ts is not None:
        data = [row for row in data if ends[row["backup_id"]] > request.from_ts]
        if not data:
            raise NotFound(
                f"No backup of the chain ended after {format_ts(request.from_ts)}.",
                hint=f"The chain ends at {format_ts(chain.last['end_ts'])}; give an earlier --from-time.",
            )
    order = [backup["backup_id"] for backup in chain.backups]
    designs = [row for row in newest_designs(rows) if row["scope"] in {"", *buckets}]
    return _Plan(chain, data, designs, buckets, takeovers(positions, order))


def _write(work: Workspace, plan: _Plan, reader: CatalogReader, roots: Roots, staged: StagedFolder) -> int:
    """Find the newest mutation of each document and write the documents; return their number."""
    # Each mutation counts twice: when it is read, and when its document is written.
    mutations = 2 * sum(row["entries"] for row in plan.files)
    work.reporter.start(mutations, None, "restore", "mutations")
    read_job = ReadJob(roots, tuple(plan.files), plan.limits, staged.storage.uri)
    write_job = DocumentsJob(staged.storage.uri)
    with TaskProgress(staged.storage, WORK).watched(work.reporter.update):
        if work.runner == "local":
            batches = chain.from_iterable(map(read_job.rows, range(len(plan.files))))
            table = pa.Table.from_batches(batches, arrow_schema(ROWS))
            newest = reader.with_rows("archive_mutations", table).query("archive_newest").read_all()
            ordered = newest.sort_by([(column, "ascending") for column in _ORDER])
            reports = [row for batch in write_job(ordered.to_batches()) for row in batch.to_pylist()]
        else:
            reports = _write_on_spark(work.spark, read_job, write_job)
    raise_first(report["error"] for report in reports)
    work.reporter.update(mutations, 0)
    return sum(report["entries"] for report in reports)


def _write_on_spark(spark: SparkSession, read_job: ReadJob, write_job: DocumentsJob) -> list[dict[str, Any]]:
    """Run the jobs in Spark's tasks; returns the rows of DOCUMENTS, one for each file that was written."""
    rows = read_job.over(spark, range(len(read_job.files)), ROWS, archive_task.MOST_TASKS)
    rows.createOrReplaceTempView("archive_mutations")
    try:
        with task_errors():
            newest = spark.sql(load("queries", "archive_newest"))
            document_rows = newest.sortWithinPartitions(*_ORDER).mapInArrow(write_job, DOCUMENTS).collect()
    finally:
        spark.catalog.dropTempView("archive_mutations")
    return [row.asDict() for row in document_rows]


def _design(row: Mapping[str, Any], roots: Roots, staged: StagedFolder) -> None:
    name = plain_path(row).rpartition("/")[2]
    folder = f"bucket-{quote_plus(row['scope'])}/" if row["scope"] else ""
    source = roots.open(row["destination"])
    file = StoredObject.of(row)
    archive_task.copy(source, file, staged.storage, f"{folder}{name}", keys=roots.keys)


@dataclass(frozen=True, slots=True)
class ReadJob(PerNumber):
    """Reads the mutations of a file, without those that a later backup replaces.

    `limits`: for each backup and (bucket, vbucket), the sequence number at which a later backup takes over.
    `progress_uri`: the folder where tasks report how many mutations they have read.
    """

    roots: Roots
    files: tuple[Mapping[str, Any], ...]
    limits: Mapping[str, Mapping[tuple[str, int], int]]
    progress_uri: str

    def rows(self, number: int) -> Iterator[pa.RecordBatch]:
        batch_limits = (lambda _: 1, _BATCH), (lambda row: len(row["value"]), _BATCH_BYTES)
        count = TaskProgress(open_storage(self.progress_uri, private=False), WORK).counter(str(number))
        remaining = self.files[number]["entries"]
        for batch in batched(self.read(number), *batch_limits):
            count(len(batch), 0)
            remaining -= len(batch)
            yield pa.RecordBatch.from_pylist(batch, arrow_schema(ROWS))
        count(remaining, 0)  # the mutations that were left out

    def read(self, number: int) -> Iterator[dict[str, Any]]:
        """Yield the rows of one file. Raises Damaged if its SHA-256 is not that of the catalog."""
        file = self.files[number]
        storage = self.roots.open(file["destination"])
        archive_task.require_same(storage, file["path"], file["sha256"])
        limits = self.limits.get(file["backup_id"], {})
        with archive_task.as_file(storage, StoredObject.of(file), self.roots.keys) as path:
            for row_number, row in enumerate(cbb.mutations(path, file["path"])):
                limit = limits.get((file["scope"], row.vbucket))
                if limit is not None and row.seqno >= limit:
                    continue
                yield {
                    "scope": file["scope"],
                    "vbucket": row.vbucket,
                    "key": row.key,
                    "seqno": row.seqno,
                    "place": number * _ROWS_OF_A_FILE + row_number,
                    "deleted": row.deleted,
                    "cas": row.cas,
                    "flags": row.flags,
                    "expiry": row.expiry,
                    "datatype": row.datatype,
                    "value": row.value,
                }


@dataclass(frozen=True, slots=True)
class DocumentsJob:
    """For `mapInArrow` over rows in order of scope: writes them as JSON lines, and yields a row of DOCUMENTS
    for each file."""

    uri: str

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        count = TaskProgress(open_storage(self.uri, private=False), WORK).counter(f"written-{task_number()}")
        rows = chain.from_iterable(_counted(batch.to_pylist(), count) for batch in batches)
        for scope, documents in groupby(rows, key=itemgetter("scope")):
            yield guarded(DOCUMENTS, partial(self._write_documents, scope, documents))

    def _write_documents(self, scope: str, rows: Iterable[Mapping[str, Any]]) -> Mapping[str, Any]:
        path, entries = f"bucket-{quote_plus(scope)}/docs-{task_number():04d}.jsonl", 0
        with open_storage(self.uri, private=False).writer() as writer:
            for row in rows:
                writer.write(line(row))
                entries += 1
            writer.commit(path, if_absent=False)
        return {"scope": scope, "entries": entries, "path": path}


def _counted(rows: list[Mapping[str, Any]], count: Callable[[int, int], None]) -> list[Mapping[str, Any]]:
    count(len(rows), 0)
    return rows


def line(row: Mapping[str, Any]) -> bytes:
    """Return a document as a line of JSON. Its content is in `value` if it is JSON, in `text` if it is other
    text, else in `base64`."""
    document = (
        {"key": _text(row["key"])} if _text(row["key"]) is not None else {"key_base64": _base64(row["key"])}
    )
    document |= {name: row[name] for name in ("vbucket", "seqno", "cas", "flags", "expiry", "datatype")}
    head = json.dumps(document, ensure_ascii=False).removesuffix("}").encode()
    value = row["value"]
    # A value of another data type is compressed, or begins with attributes.
    text = _text(value) if row["datatype"] in (0, _JSON) else None
    if text is None:
        return head + b', "base64": "%s"}\n' % _base64(value).encode()
    if _is_json(text):
        # In JSON a raw line break is white space; within strings it cannot occur.
        return head + b', "value": %s}\n' % value.replace(b"\r", b" ").replace(b"\n", b" ")
    return head + b', "text": %s}\n' % json.dumps(text, ensure_ascii=False).encode()


def _base64(data: bytes) -> str:
    return base64.b64encode(data).decode()


def _text(data: bytes) -> str | None:
    try:
        return data.decode()
    except UnicodeDecodeError:
        return None


def _is_json(text: str) -> bool:
    def refuse(name: str) -> None:
        raise ValueError(f"{name} is no JSON")

    try:
        json.loads(text, parse_constant=refuse)
    except (ValueError, RecursionError):
        return False
    return not text.startswith("\ufeff")
