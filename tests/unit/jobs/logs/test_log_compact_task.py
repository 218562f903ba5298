"""What the tasks of a compaction read and write, with Spark's sort done here; and what killed fulls leave."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from tests.support.catalogs import backup_id, made_backup
from tests.support.command_line import quiet
from tests.support.made_backups import MadeBackups
from tests.support.made_changes import MadeChanges, commit, prewrite, put_change, rollback
from tests.support.pruning import select_rows

from lakebackup.formats.logs.logfile import read_log_file
from lakebackup.plan.logs.restore import LogRestoreRequest
from lakebackup.rules import layout
from lakebackup.store import manifest as sidecar
from lakebackup.store.lease import Lease
from lakebackup.store.plan_file import PlanFile, write_plan_file
from lakebackup.store.roots import Roots
from lakebackup.store.writer import CatalogWriter
from lakebackup_jobs.lifecycle.tasks import errors as outcome
from lakebackup_jobs.lifecycle.tasks.plan_shares import Share, store_plan
from lakebackup_jobs.lifecycle.workspace import Workspace
from lakebackup_jobs.logs.upkeep.compact_task import ORDER, ListDepartures, ReadLog, WriteLog
from lakebackup_jobs.logs.upkeep.snapshot import sweep

ROWS = """
    SELECT destination, path, backup_id, added_in, source, scope, epoch, region, codec, key_id, bytes,
        raw_bytes, sha256, entries, cf, op
    FROM files WHERE format = 'log-arrow-1' ORDER BY path"""


def log(root: Path) -> MadeChanges:
    """Three flushes of two tables."""
    MadeBackups(root)
    changes = MadeChanges(root, CatalogWriter(None, str(root)))
    for ts in (100, 200, 300):
        long = [prewrite(table, b"%d" % n, ts + n, b"x" * 50) for table in (1, 2) for n in range(20)]
        short = [put_change(1, b"%d" % n, ts + n, b"%d" % ts) for n in range(20, 40)]
        ends = [commit(2, b"%d" % n, ts + n, ts + 50) for n in range(5)] + [rollback(1, b"7", ts + 7)]
        changes.flush([*long, *short, *ends], ts + 60)
    return changes


def task_arguments(backups: MadeBackups) -> dict[str, Any]:
    """The arguments that name the backup that the tasks write."""
    destination_columns = {"uri": backups.storage.uri, "destination": backups.destination}
    return {**destination_columns, "source": "shop", "backup_id": backup_id(9)}


def planned(rows: list[dict[str, Any]]) -> PlanFile:
    return write_plan_file([pa.Table.from_pylist(rows).to_reader()])


def test_every_record_is_in_a_file_of_its_kind_that_is_not_too_large(tmp_path: Path) -> None:
    changes, most_raw = log(tmp_path), 3_000
    folder, roots = layout.backup_folder("shop", backup_id(9)), Roots({changes.destination: str(tmp_path)})
    files = select_rows(tmp_path, ROWS)
    plan = store_plan(changes.storage, folder, planned(files), [Share(0, 3), Share(3, len(files))])
    read_log = ReadLog(plan, roots)
    read = pa.Table.from_batches(batch for number in plan.numbers for batch in read_log.rows(number))
    records = read.sort_by([(name, "ascending") for name in ORDER])
    assert len(records) == sum(row["entries"] for row in files) == 3 * 66
    write = WriteLog(**task_arguments(changes), ts_domain="tso", codec="zstd", most_raw=most_raw)
    (report,) = [row for batch in write(records.to_batches(max_chunksize=10)) for row in batch.to_pylist()]
    outcome.raise_first([report["error"]])
    rows = sidecar.read_part(changes.storage, layout.made_path("shop", backup_id(9), 0))
    assert (report["files"], report["entries"]) == (len(rows), len(records))
    stored_records = []
    for row in rows:
        file_records = [
            record for batch in read_log_file(changes.storage, row, None) for record in batch.to_pylist()
        ]
        stored_records += [{"place": f"{row.scope} {row.cf} {row.op}", **record} for record in file_records]
        ts = [record["commit_ts"] or record["start_ts"] for record in file_records]
        assert (row.min_ts, row.max_ts, row.entries, row.region) == (min(ts), max(ts), len(file_records), "-")
    assert stored_records == records.select(read.schema.names).to_pylist()
    kinds = {(row.scope, row.cf, row.op) for row in rows}
    assert kinds == {("1", "default", "put"), ("1", "default", "delete"), ("1", "write", "put"),
                     ("2", "default", "put"), ("2", "write", "put")}  # fmt: skip
    assert len(rows) > len(kinds)
    assert all(row.raw_bytes < most_raw + 500 for row in rows)  # an empty one has some hundred bytes


def test_files_that_leave_the_log_are_listed_with_the_number_of_the_compaction(tmp_path: Path) -> None:
    changes = log(tmp_path)
    files = select_rows(tmp_path, ROWS)
    job = ListDepartures(**task_arguments(changes), number=9, file=planned(files), first=3, most=4)
    departures = []
    for number in (3, 4):
        job.run(number)
        (row,) = sidecar.read_part(changes.storage, layout.parts_path("shop", backup_id(9), number))
        assert (row.role, row.added_in) == ("meta", 9)
        departures += pq.read_table(tmp_path / row.path).to_pylist()
    assert [(row["path"], row["gone_in"]) for row in departures] == [(file["path"], 9) for file in files[:8]]


def test_only_fulls_that_no_job_works_on_and_no_catalog_knows_are_swept(
    tmp_path: Path,
) -> None:
    """A full in the catalog gets its marker, without which a rebuilt catalog would not restore it."""
    backups = MadeBackups(tmp_path, "shop")
    storage = backups.storage
    killed, marked, at_work, cataloged, doubtful = (backup_id(number) for number in range(1, 6))
    backups.add(
        made_backup(4, source="shop", destination=backups.destination),
        made_backup(5, source="shop", destination=backups.destination, state="unconfirmed"),
    )
    backups.flush()
    for name in (killed, marked, at_work, cataloged, doubtful):
        storage.put(f"{layout.full_folder('shop', name)}_delta_log/0.json", b"{}")
        storage.put(f"{layout.full_folder('shop', name)}part.parquet", b"rows")
        storage.put(f"{layout.backup_folder('shop', name)}listing/000000.objects.arrow", b"objects")
    sidecar.mark(storage, layout.marker_path("shop", marked, "complete"))
    request = LogRestoreRequest(str(tmp_path), "shop")
    with Lease.acquire(storage, f"full-{at_work}", "me"):
        sweep(Workspace(request, "shop", quiet()))
    remaining = {entry.path for folder in ("fulls", "backups") for entry in storage.list(f"shop/{folder}/")}
    assert {path.split("/")[2] for path in remaining} == {marked, at_work, cataloged, doubtful}
    assert len(remaining) == 14
    assert {path.split("/")[2] for path in remaining if path.endswith("/complete")} == {marked, cataloged}
