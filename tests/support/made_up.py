"""A catalog of three months, made up: rows put into Delta tables without Spark and without a backup's data.

Weekly fulls and daily backups of some topics of two clusters, with a gap, a fork, a damaged file, a prune,
and a name that no browser should take for a command.
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


def put(folder: Path, rows: Iterable[Row]) -> None:
    """A catalog in a folder's `catalog/` that has these rows."""
    storage = open_storage(str(folder / "catalog"))
    tables: dict[str, list[Row]] = {table: [] for table in ARROW_SCHEMAS}
    for row in rows:
        tables[table_of(type(row))].append(row)
    for table, some in tables.items():
        text = declaration(table)
        settings = dict(re.findall(r"'(delta\.dataSkippingStatsColumns)' = '([^']*)'", text))
        DeltaTable.create(f"{folder}/catalog/{table}", ARROW_SCHEMAS[table], configuration=settings)
        append(storage, table, some, "made-up")


def three_months(days: int = 90) -> list[Row]:
    """The rows of the catalog of the module's first lines; the last backup ends 89 days after `FIRST`."""
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
        number, at = day + 1, FIRST + day * DAY
        fresh = day % 7 == 0 or (cluster == "prod" and day == 45)  # after the gap
        name = backup_id(cluster, number)
        base, parent = (name, "") if fresh else (base, parent)
        mine = [
            _file(cluster, topic, region, number, name, fresh)
            for topic in topics
            for region in range(REGIONS)
        ]
        rows += mine
        forked = cluster == "prod" and day in (75, 76)
        totals = {"bytes": sum(file.bytes for file in mine), "entries": sum(file.entries for file in mine)}
        lineage: dict[str, Any] = {"base": base}
        if not fresh:
            lineage |= {"kind": "differential", "level": 1, "parent": parent, "parent_place": number - 1}
            lineage |= {"chain_position": number - int(base[-8:], 16), "start_ts": at - DAY}
        rows.append(
            backup_row(
                number, backup_id=name, source=cluster, destination="d1", **lineage, **totals,
                files=len(mine), state="out_of_sync" if forked else "complete", end_ts=at,
                started_at=at * 1000, finished_at=(at + 60_000) * 1000, isolation="read_committed",
                codec="zstandard",
            )
        )  # fmt: skip
        own: dict[str, Any] = {"backup_id": name, "source": cluster, "epoch": EPOCH}
        for topic in topics:
            rows.append(Scope(**own, scope=topic, regions=REGIONS, settings="{}", replication=3))
        for file in mine:
            rows.append(
                Position(
                    **own, scope=file.scope, region=file.region, start_position=file.start_position,
                    end_position=file.end_position, low_position=0, high_position=file.end_position, ts=at,
                )
            )  # fmt: skip
        parent = name
        if cluster == "prod" and day == 45:
            rows += [
                Gap(
                    **own, scope=topic, region=str(region), from_position=450, to_position=520,
                    reason="purged", from_ts=at - 3 * DAY, to_ts=at, bridged=False,
                )
                for topic in topics[:2] for region in range(REGIONS)
            ]  # fmt: skip
        if cluster == "prod" and day == 60:
            rows += _pruned(rows, at)
    if cluster == "prod":
        rows += _checks(rows)
    return rows


def backup_id(cluster: str, number: int) -> str:
    """The id of a cluster's backup with this number."""
    return f"2026{'A' if cluster == 'prod' else 'B'}{number:03d}T030000Z-{number:08x}"


def _file(cluster: str, topic: str, region: int, number: int, name: str, fresh: bool) -> DataFile:
    at = FIRST + (number - 1) * DAY
    first = 0 if fresh else 10 * (number - 1)
    size = (40_000_000 + 900_000 * number if fresh else 6_000_000) * (1 + len(topic) % 3)
    path = f"{cluster}/{EPOCH}/topics/{quote(topic, safe='')}/partition={region}/{number:08d}.avro"
    return file_row(
        number, destination="d1", path=path, backup_id=name, source=cluster, scope=topic, region=str(region),
        codec="zstandard", bytes=size, raw_bytes=5 * size, sha256="00" * 32, entries=10 * number - first,
        min_ts=FIRST - DAY if fresh else at - DAY, max_ts=at - 1, start_position=first,
        end_position=10 * number,
    )  # fmt: skip


def _pruned(rows: list[Row], at: int) -> list[Row]:
    gone = [row for row in rows if isinstance(row, DataFile) and row.scope == "clicks" and row.added_in <= 28]
    own: dict[str, Any] = {
        "prune_id": "p1",
        "at": at * 1000,
        "source": "prod",
        "epoch": EPOCH,
        "reason": "time",
    }
    return [
        *(
            Removal(
                **own, destination=row.destination, path=row.path, backup_id=row.backup_id, scope=row.scope,
                region=row.region, bytes=row.bytes,
            )
            for row in gone
        ),
        *(Floor(**own, scope="clicks", region=str(region), low_position=280) for region in range(REGIONS)),
    ]  # fmt: skip


def _checks(rows: list[Row]) -> list[Row]:
    at = (FIRST + 88 * DAY) * 1000
    removed = {row.path for row in rows if isinstance(row, Removal)}
    held = [row for row in rows if isinstance(row, DataFile) and row.path not in removed]
    broken = next(row for row in held if row.added_in == 82 and row.scope == "invoices")
    return [
        Check(
            check_id="c1", at=at, backup_id=row.backup_id, destination="d1", path=row.path, mode="hash",
            outcome="damaged" if row is broken else "ok",
            detail="sha256 differs" if row is broken else None,
        )
        for row in held
    ]  # fmt: skip
