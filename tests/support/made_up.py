"""An invented catalog of three months: rows in Delta tables, written without Spark and without data files.

It has weekly fulls and daily backups of some topics of two clusters, with a gap, a fork, a damaged file, a
prune, and a topic name that a browser must not run as a script.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any
from urllib.parse import quote

from deltalake import DeltaTable
from tests.support.rows import EPOCH, backup_row, file_row

from lakebackup.rows.backups import DataFile, Floor, Gap, Position, Removal, Scope
from lakebackup.rows.base import Row
from lakebackup.rows.tables import ARROW_SCHEMAS, table_of
from lakebackup.rows.upkeep import Check, Destination, Migration
from lakebackup.sql_engine.delta.table import append
from lakebackup.storage import open_storage
from lakebackup_sql import load, names

DAY = 86_400_000
FIRST = 1_787_626_800_000  # 2026-08-25T03:00:00Z
NASTY = (
    "<script>document.title='run'</script><img src='http://canary.invalid/' onerror=\"document.title='run'\">"
)
CLUSTERS = {"prod": ("orders", "payments", "clicks", "invoices", NASTY), "edge": ("sensors",)}
REGIONS = 2


def declaration(table: str) -> str:
    """The CREATE TABLE statement of a table."""
    folders = [f"migrations/{migration}" for migration in names("migrations")]
    return load(next(folder for folder in folders if table in names(folder)), table)


def write_catalog(folder: Path, rows: Iterable[Row]) -> None:
    """Write a catalog with these rows to `catalog/` in a folder."""
    storage = open_storage(str(folder / "catalog"))
    tables: dict[str, list[Row]] = {table: [] for table in ARROW_SCHEMAS}
    for row in rows:
        tables[table_of(type(row))].append(row)
    for table, table_rows in tables.items():
        text = declaration(table)
        settings = dict(re.findall(r"'(delta\.dataSkippingStatsColumns)' = '([^']*)'", text))
        DeltaTable.create(f"{folder}/catalog/{table}", ARROW_SCHEMAS[table], configuration=settings)
        append(storage, table, table_rows, "made-up")


def three_months(days: int = 90) -> list[Row]:
    """The rows of the catalog that the module's docstring describes; the last backup ends 89 days after
    `FIRST`."""
    rows: list[Row] = [
        Migration(version=n, name=name, applied_at=0) for n, name in enumerate(names("migrations"), 1)
    ]
    rows.append(Destination(destination="d1", uri="", created_at=0))
    for cluster, topics in CLUSTERS.items():
        rows += _cluster(cluster, topics, days if cluster == "prod" else days // 2)
    return rows


def _cluster(cluster: str, topics: tuple[str, ...], days: int) -> list[Row]:
    rows: list[Row] = []
    base = parent = ""
    for day in range(days):
        number, end_ts = day + 1, FIRST + day * DAY
        is_full = day % 7 == 0 or (cluster == "prod" and day == 45)  # after the gap
        name = backup_id(cluster, number)
        base, parent = (name, "") if is_full else (base, parent)
        files = [
            _file(cluster, topic, region, number, name, is_full)
            for topic in topics
            for region in range(REGIONS)
        ]
        rows += files
        forked = cluster == "prod" and day in (75, 76)
        totals = {"bytes": sum(file.bytes for file in files), "entries": sum(file.entries for file in files)}
        lineage: dict[str, Any] = {"base": base}
        if not is_full:
            lineage |= {"kind": "differential", "level": 1, "parent": parent, "parent_place": number - 1}
            lineage |= {"chain_position": number - int(base[-8:], 16), "start_ts": end_ts - DAY}
        rows.append(
            backup_row(
                number, backup_id=name, source=cluster, destination="d1", **lineage, **totals,
                files=len(files), state="out_of_sync" if forked else "complete", end_ts=end_ts,
                started_at=end_ts * 1000, finished_at=(end_ts + 60_000) * 1000, isolation="read_committed",
                codec="zstandard",
            )
        )  # fmt: skip
        backup_columns: dict[str, Any] = {"backup_id": name, "source": cluster, "epoch": EPOCH}
        for topic in topics:
            rows.append(Scope(**backup_columns, scope=topic, regions=REGIONS, settings="{}", replication=3))
        for file in files:
            rows.append(
                Position(
                    **backup_columns, scope=file.scope, region=file.region,
                    start_position=file.start_position, end_position=file.end_position, low_position=0,
                    high_position=file.end_position, ts=end_ts,
                )
            )  # fmt: skip
        parent = name
        if cluster == "prod" and day == 45:
            rows += [
                Gap(
                    **backup_columns, scope=topic, region=str(region), from_position=450, to_position=520,
                    reason="purged", from_ts=end_ts - 3 * DAY, to_ts=end_ts, bridged=False,
                )
                for topic in topics[:2] for region in range(REGIONS)
            ]  # fmt: skip
        if cluster == "prod" and day == 60:
            rows += _pruned(rows, end_ts)
    if cluster == "prod":
        rows += _checks(rows)
    return rows


def backup_id(cluster: str, number: int) -> str:
    """The id of a cluster's backup with this number."""
    return f"2026{'A' if cluster == 'prod' else 'B'}{number:03d}T030000Z-{number:08x}"


def _file(cluster: str, topic: str, region: int, number: int, name: str, is_full: bool) -> DataFile:
    end_ts = FIRST + (number - 1) * DAY
    start = 0 if is_full else 10 * (number - 1)
    size = (40_000_000 + 900_000 * number if is_full else 6_000_000) * (1 + len(topic) % 3)
    path = f"{cluster}/{EPOCH}/topics/{quote(topic, safe='')}/partition={region}/{number:08d}.avro"
    return file_row(
        number, destination="d1", path=path, backup_id=name, source=cluster, scope=topic, region=str(region),
        codec="zstandard", bytes=size, raw_bytes=5 * size, sha256="00" * 32, entries=10 * number - start,
        min_ts=FIRST - DAY if is_full else end_ts - DAY, max_ts=end_ts - 1, start_position=start,
        end_position=10 * number,
    )  # fmt: skip


def _pruned(rows: list[Row], end_ts: int) -> list[Row]:
    pruned_files = [
        row for row in rows if isinstance(row, DataFile) and row.scope == "clicks" and row.added_in <= 28
    ]
    removal_columns: dict[str, Any] = {
        "prune_id": "p1",
        "at": end_ts * 1000,
        "source": "prod",
        "epoch": EPOCH,
        "reason": "time",
    }
    return [
        *(
            Removal(
                **removal_columns, destination=row.destination, path=row.path, backup_id=row.backup_id,
                scope=row.scope, region=row.region, bytes=row.bytes,
            )
            for row in pruned_files
        ),
        *(
            Floor(**removal_columns, scope="clicks", region=str(region), low_position=280)
            for region in range(REGIONS)
        ),
    ]  # fmt: skip


def _checks(rows: list[Row]) -> list[Row]:
    checked_at = (FIRST + 88 * DAY) * 1000
    removed = {row.path for row in rows if isinstance(row, Removal)}
    live_files = [row for row in rows if isinstance(row, DataFile) and row.path not in removed]
    damaged_file = next(row for row in live_files if row.added_in == 82 and row.scope == "invoices")
    return [
        Check(
            check_id="c1", at=checked_at, backup_id=row.backup_id, destination="d1", path=row.path,
            mode="hash",
            outcome="damaged" if row is damaged_file else "ok",
            detail="sha256 differs" if row is damaged_file else None,
        )
        for row in live_files
    ]  # fmt: skip
