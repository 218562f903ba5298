"""A destination with known figures for Prometheus, some of whose sources have problems."""

from __future__ import annotations

import time
from pathlib import Path

from tests.support.made_backups import MadeBackups, Record
from tests.support.made_changes import MadeChanges, put_change
from tests.support.rows import filled

from lakebackup.rows.upkeep import Check, Drill, Failure, Policy
from lakebackup.store.writer import CatalogWriter
from lakebackup_jobs.logs.task import TaskSettings, record

DAY = 86_400_000


def put_monitored(folder: Path) -> None:
    """Write topics `orders`, verified and drilled, whose last run failed, and a log task without a job."""
    now_ms = time.time_ns() // 1_000_000
    backups = MadeBackups(folder, "orders")
    end = now_ms - 2 * DAY
    name = backups.backup([[Record(p, 0, end - 1000, b"k", b"v")] for p in range(8)], full=True, end_ts=end)
    source_columns = {"source": "orders", "actor": "me"}
    backups.add(
        Policy(**source_columns, at=1000 * (now_ms - 9 * DAY), full_schedule="daily", full_every_ms=DAY),
        filled(Check, at=1000 * (now_ms - DAY), backup_id=name, destination=backups.destination, path="a"),
        filled(Drill, **source_columns, at=1000 * (now_ms - DAY), predicted_ms=2000, real_ms=2500),
        filled(
            Failure,
            **source_columns,
            run="backup",
            at=1000 * now_ms,
            error="EnvironmentProblem",
            message="no space",
            exit_code=6,
        ),
    )
    backups.flush()
    shop = MadeChanges(
        folder, CatalogWriter(None, str(folder)), domain="ms", start_ts=now_ms - 60_000, number=1
    )
    shop.flush(
        [put_change(1, b"a", now_ms - 50_000, b"1")], now_ms - 40_000, finished_at=1000 * (now_ms - 30_000)
    )
    record(
        str(folder), None, "shop", "running", TaskSettings(feed="br", bootstrap="kafka:9092", topics=("t",))
    )
