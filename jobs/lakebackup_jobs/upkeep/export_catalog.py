"""Export the catalog's rows into files that other programs can read."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from lakebackup.recovery.exchange import EXCHANGED, Form, RowsFile, export
from lakebackup.requests import Request
from lakebackup.storage import open_storage
from lakebackup.storage.nesting import require_outside
from lakebackup.store.reader import CatalogReader
from lakebackup_jobs.lifecycle.progress import Reporter
from lakebackup_jobs.lifecycle.workspace import Workspace


@dataclass(frozen=True, slots=True)
class ExportRequest(Request):
    """What to export; `folder` must be empty or not exist."""

    folder: str
    form: Form = "jsonl"


def run(request: ExportRequest, *, reporter: Reporter) -> dict[str, Any]:
    """Export the catalog; returns the numbers of rows and bytes of each table. Starts no JVM.

    Raises NotFound (no catalog), Refused (the folder is not empty), Damaged (a table of the catalog), and an
    error of the signing key if it cannot be used.
    """
    work = Workspace(request, "", reporter)
    reader = CatalogReader.require(request.destination, request.catalog)
    require_outside(request, request.folder)
    folder = open_storage(request.folder, private=False)
    reporter.start(None, None, "export", "rows")
    key = work.signing_key
    index = export(reader, folder, request.form, reporter.update, key)
    by_table = [(table, [file for file in index.files if file.table == table]) for table in EXCHANGED]
    tables = [{"table": table, "files": len(files), **_sizes(files)} for table, files in by_table if files]
    signed_by = None if key is None else key.key_id
    return work.timed({"folder": folder.uri, **_sizes(index.files), "tables": tables, "signed_by": signed_by})


def _sizes(files: Sequence[RowsFile]) -> dict[str, int]:
    return {"rows": sum(file.rows for file in files), "bytes": sum(file.bytes for file in files)}
