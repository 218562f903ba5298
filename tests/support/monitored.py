"""A destination of which every figure for Prometheus is known, and whose sources are not all well."""

from __future__ import annotations

import time
from pathlib import Path

from tests.support.made_backups import MadeBackups, Record
from tests.support.made_changes import MadeChanges, put
from tests.support.rows import filled

from lakebackup.rows.upkeep import Check, Drill, Failure, Policy
from lakebackup.store.writer import CatalogWriter
from lakebackup_jobs.logs.task import TaskSettings, record

DAY = 86_400_000


def put_monitored(folder: Path) -> None:
    """Topics `orders`, verified and drilled, whose last run failed; a log task `shop` that has no job."""
    now = time.time_ns() // 1_000_000
    made = MadeBackups(folder, "orders")
    end = now - 2 * DAY
    name = made.backup([[Record(p, 0, end - 1000, b"k", b"v")] for p in range(8)], full=True, end_ts=end)
    known = {"source": "orders", "actor": "me"}
    made.add(
        Policy(**known, at=1000 * (now - 9 * DAY), full_schedule="daily", full_every_ms=DAY),
        filled(Check, at=1000 * (now - DAY), backup_id=name, destination=made.destination, path="a"),
        filled(Drill, **known, at=1000 * (now - DAY), predicted_ms=2000, real_ms=2500),
        filled(
            Failure,
            **known,
            run="backup",
            at=1000 * now,
            error="EnvironmentProblem",
            message="no space",
            exit_code=6,
        ),
    )
    made.flush()
    shop = MadeChanges(folder, CatalogWriter(None, str(folder)), domain="ms", start_ts=now - 60_000, number=1)
    shop.flush([put(1, b"a", now - 50_000, b"1")], now - 40_000, finished_at=1000 * (now - 30_000))
    record(
        str(folder), None, "shop", "running", TaskSettings(feed="br", bootstrap="kafka:9092", topics=("t",))
    )
