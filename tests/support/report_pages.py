"""The report's page over catalogs made by hand; `python -m tests.support.report_pages` takes the pictures of
the docs, and with a folder of yours the page and its pictures at every width, light and dark, in there.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path
from typing import Any

from tests.support.browser import Tab, browser
from tests.support.made_up import DAY, put
from tests.support.rows import EPOCH, backup_row, file_row

from lakebackup.rows.backups import Position, Removal, Scope
from lakebackup.rows.base import Row
from lakebackup.rows.upkeep import Check, Destination, Migration, Policy
from lakebackup.store.reader import CatalogReader
from lakebackup_jobs.query.report.page import page
from lakebackup_jobs.query.report.values import facts
from lakebackup_sql import names

DOCS = Path(__file__).parents[2] / "docs" / "screens"
WIDTHS = (390, 820, 1440)
HOUR = 3_600_000
NOW = 1_795_269_900_000  # 2026-11-21T14:05:00Z
# Each source: its topics, hours from one run to the next, seconds a run takes, MB of a full, hours of the last
# run before NOW, days of history.
SOURCES: dict[str, tuple[tuple[str, ...], int, int, int, int, int]] = {
    "orders": (("orders", "order-items", "carts"), 6, 95, 420, 8, 120),
    "payments": (("payments", "refunds"), 24, 240, 900, 11, 120),
    "sessions": (("clicks", "sessions"), 24, 30, 160, 13, 60),
    "warehouse": (("stock", "shipments"), 24, 900, 1500, 9, 120),
}


def rows() -> list[Row]:
    """A catalog in which three sources are fine and one is late: with runs that were missed, a week of them that
    failed, and prunes."""
    made: list[Row] = [
        Migration(version=n, name=name, applied_at=0) for n, name in enumerate(names("migrations"), 1)
    ]
    made.append(Destination(destination="d1", uri="", created_at=0))
    for source in SOURCES:
        made += _source(source)
    return made


def _source(source: str) -> list[Row]:
    topics, every, seconds, size, age, days = SOURCES[source]
    made: list[Row] = []
    last = NOW - age * HOUR
    count = days * 24 // every
    per_week = 7 * 24 // every
    base = ""
    place = 0
    expired = set[str]()
    for step in range(count):
        at = last - (count - 1 - step) * every * HOUR
        back = (NOW - at) / DAY
        if (source == "sessions" and 20 < back < 22.5) or (source == "orders" and 33.1 < back < 33.9):
            continue  # missed
        place += 1
        full = place == 1 or place % per_week == 1
        name = f"{source}-{place:04d}"
        base = name if full else base
        if full and back > 58:
            expired.add(name)
        failed = source == "warehouse" and 40 < back < 41.5
        wide = 1 + place / count
        bytes_ = int(size * 1e6 * wide * (1 if full else 0.06 + 0.01 * (place % 5)))
        took = int(seconds * 1e6 * wide * (1 if full else 0.2 + 0.05 * (place % 4)))
        lineage: dict[str, Any] = {"base": base}
        if not full:
            lineage |= {
                "kind": "differential",
                "level": 1,
                "parent": f"{source}-{place - 1:04d}",
                "parent_place": place - 1,
            }
            lineage |= {"chain_position": place - int(base[-4:]), "start_ts": at - every * HOUR}
        gone = base in expired
        made.append(
            backup_row(
                place, backup_id=name, source=source, destination="d1", **lineage, files=len(topics), bytes=bytes_,
                entries=bytes_ // 200, state="unconfirmed" if failed else "deleted" if gone else "complete", end_ts=at,
                started_at=at * 1000 - took, finished_at=at * 1000, isolation="read_committed", codec="zstandard",
            )
        )  # fmt: skip
        own: dict[str, Any] = {"backup_id": name, "source": source, "epoch": EPOCH}
        for topic in topics:
            path = f"{source}/{topic}/{place:08d}.avro"
            made += [
                Scope(**own, scope=topic, regions=1, settings="{}", replication=3),
                Position(**own, scope=topic, region="0", start_position=0 if full else 10 * (place - 1), end_position=10 * place, low_position=0, high_position=10 * place, ts=at),
                file_row(place, destination="d1", path=path, backup_id=name, source=source, scope=topic, region="0", codec="zstandard", bytes=bytes_ // len(topics), raw_bytes=4 * bytes_ // len(topics), sha256="00" * 32, entries=bytes_ // 200 // len(topics), min_ts=at - (7 * DAY if full else every * HOUR), max_ts=at - 1, start_position=0 if full else 10 * (place - 1), end_position=10 * place),
            ]  # fmt: skip
            if gone:
                made.append(Removal(prune_id="p1", at=(at + 58 * DAY) * 1000, source=source, epoch=EPOCH, reason="time", destination="d1", path=path, backup_id=name, scope=topic, region="0", bytes=bytes_ // len(topics)))  # fmt: skip
            elif not failed:
                made.append(
                    Check(
                        check_id="c1",
                        at=(NOW - 10 * HOUR) * 1000,
                        backup_id=name,
                        destination="d1",
                        path=path,
                        mode="hash",
                        outcome="ok",
                    )
                )
    incremental = "daily 03:00" if every == 24 else f"every {every}h"
    made.append(
        Policy(
            source=source,
            at=(NOW - (days - 1) * DAY) * 1000,
            actor="ops",
            full_schedule="weekly sun 02:00",
            full_every_ms=7 * DAY,
            incremental_schedule=incremental,
            incremental_every_ms=every * HOUR,
            window_days=50,
        )
    )
    return made


def write(folder: Path, made: list[Row], now: int = NOW) -> Path:
    """The page of a catalog of these rows, in a folder."""
    put(folder, made)
    file = folder / "report.html"
    file.write_text(page(facts(CatalogReader.require(str(folder)), now)), "utf-8")
    return file


def take(tab: Tab, file: Path, folder: Path, name: str) -> None:
    """A picture of a page at every width, light and dark."""
    for width in WIDTHS:
        for dark in (False, True):
            tab.open(file, width, dark=dark)
            (folder / f"{name}-{width}-{'dark' if dark else 'light'}.png").write_bytes(tab.screenshot())


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as scratch, browser(Path(scratch)) as tab:
        given = Path(sys.argv[1]) if sys.argv[1:] else None
        file = write(given or Path(scratch), rows())
        if given:
            take(tab, file, given, "report")
            (given / "report.pdf").write_bytes(tab.pdf())
