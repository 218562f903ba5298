"""The report's page over a catalog made by hand, and pictures of it.

`python -m tests.support.report_pages` takes the pictures of the docs. With a folder, it writes the page there
and takes a picture at every width, light and dark, and in print.
"""

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from tests.support.browser import Tab, browser
from tests.support.made_up import DAY, write_catalog
from tests.support.rows import EPOCH, backup_row, file_row, filled

from lakebackup.rows.backups import Position, Removal, Scope
from lakebackup.rows.base import Row, State
from lakebackup.rows.topics import TopicSeen
from lakebackup.rows.upkeep import Check, Destination, Drill, Migration, Policy
from lakebackup.store.reader import CatalogReader
from lakebackup_jobs.query.report.page import page
from lakebackup_jobs.query.report.values import facts
from lakebackup_sql import names

DOCS = Path(__file__).parents[2] / "docs" / "report"
WIDTHS = (390, 820, 1280, 1920)
HOUR = 3_600_000
NOW_MS = 1_795_269_900_000  # 2026-11-21T14:05:00Z
# Each source: its topics, hours between runs, seconds and MB of a full, how many hours before NOW
# the last run was, days of history.
SOURCES: dict[str, tuple[tuple[str, ...], int, int, int, int, int]] = {
    "orders": (("orders", "order-items", "carts", "__consumer_offsets"), 6, 95, 420, 8, 120),
    "payments": (("payments", "refunds"), 24, 240, 900, 11, 120),
    "sessions": (("clicks", "sessions"), 24, 30, 160, 10, 60),
    "warehouse": (("stock", "shipments"), 24, 900, 1500, 9, 120),
}


def rows() -> list[Row]:
    """A catalog in which two sources are fine, one is late, and one has topics without a backup; with missed
    runs, failed runs, and prunes."""
    catalog_rows: list[Row] = [
        Migration(version=n, name=name, applied_at=0) for n, name in enumerate(names("migrations"), 1)
    ]
    catalog_rows.append(Destination(destination="d1", uri="", created_at=0))
    for source in SOURCES:
        catalog_rows += _source(source)
    for topic in ("logins", "sign-ups"):
        catalog_rows.append(TopicSeen(source="sessions", at=(NOW_MS - 10 * HOUR) * 1000, scope=topic))
    return catalog_rows


def _source(source: str) -> Iterator[Row]:
    _, every_hours, seconds, _, age, days = SOURCES[source]
    base, number, expired = "", 0, set[str]()
    for step in range(days * 24 // every_hours - 1, -1, -1):
        end_ts = NOW_MS - (age + step * every_hours) * HOUR
        age_days = (NOW_MS - end_ts) / DAY
        if (source == "sessions" and 20 < age_days < 22.5) or (source == "orders" and 33.1 < age_days < 33.9):
            continue  # missed
        number += 1
        if number % (7 * 24 // every_hours) == 1:
            base = f"{source}-{number:04d}"
            if age_days > 58:
                expired.add(base)
        failed = source == "warehouse" and 40 < age_days < 41.5
        state = "unconfirmed" if failed else "deleted" if base in expired else "complete"
        yield from _backup(source, number, base, end_ts, state)
    yield Policy(
        source=source, at=(NOW_MS - (days - 1) * DAY) * 1000, actor="ops", full_schedule="weekly sun 02:00",
        full_every_ms=7 * DAY,
        incremental_schedule="daily 03:00" if every_hours == 24 else f"every {every_hours}h",
        incremental_every_ms=every_hours * HOUR, window_days=50,
    )  # fmt: skip
    if source != "sessions":
        yield filled(
            Drill,
            source=source,
            at=(NOW_MS - 31 * HOUR) * 1000,
            predicted_ms=seconds * 2000,
            real_ms=seconds * 2100,
        )


def _backup(source: str, number: int, base: str, end_ts: int, state: State) -> Iterator[Row]:
    topics, every_hours, seconds, size, *_ = SOURCES[source]
    name, parent = f"{source}-{number:04d}", f"{source}-{number - 1:04d}"
    full = name == base
    growth = 1 + number * every_hours / 2880
    total = int(size * 1e6 * growth * (1 if full else 0.06 + 0.01 * (number % 5)))
    duration_us = int(seconds * 1e6 * growth * (1 if full else 0.2 + 0.05 * (number % 4)))
    lineage: dict[str, Any] = {"base": base}
    if not full:
        lineage |= {"kind": "differential", "level": 1, "parent": parent, "parent_place": number - 1}
        lineage |= {"chain_position": number - int(base[-4:]), "start_ts": end_ts - every_hours * HOUR}
    yield backup_row(
        number, backup_id=name, source=source, destination="d1", **lineage, files=len(topics), bytes=total,
        entries=total // 200, state=state, end_ts=end_ts, started_at=end_ts * 1000 - duration_us,
        finished_at=end_ts * 1000, isolation="read_committed", codec="zstandard",
    )  # fmt: skip
    backup_columns: dict[str, Any] = {"backup_id": name, "source": source, "epoch": EPOCH}
    positions = {"start_position": 0 if full else 10 * (number - 1), "end_position": 10 * number}
    topic_bytes = total // len(topics)
    for topic in topics:
        file: dict[str, Any] = {"destination": "d1", "path": f"{source}/{topic}/{number:08d}.avro"}
        partition_columns = {"scope": topic, "region": "0"}
        settings = '{"cleanup.policy": "compact"}' if topic.startswith("__") else "{}"
        yield Scope(**backup_columns, scope=topic, regions=1, settings=settings, replication=3)
        yield Position(
            **backup_columns,
            **partition_columns,
            **positions,
            low_position=0,
            high_position=10 * number,
            ts=end_ts,
        )
        yield file_row(
            number, **file, **partition_columns, **positions, backup_id=name, source=source,
            codec="zstandard", bytes=topic_bytes, raw_bytes=4 * topic_bytes, sha256="00" * 32,
            max_ts=end_ts - 1,
            entries=1 if topic.startswith("__") else topic_bytes // 200,
            min_ts=end_ts - (7 * DAY if full else every_hours * HOUR),
        )  # fmt: skip
        if state == "deleted":
            removed_at = min(end_ts + 58 * DAY, NOW_MS - 12 * HOUR) * 1000
            yield Removal(
                **backup_columns,
                **file,
                **partition_columns,
                prune_id="p1",
                at=removed_at,
                reason="time",
                bytes=topic_bytes,
            )
        elif state == "complete":
            checked_at = (NOW_MS - 10 * HOUR) * 1000
            yield Check(**file, check_id="c1", at=checked_at, backup_id=name, mode="hash", outcome="ok")


def write(folder: Path) -> Path:
    """Write the page of such a catalog, with /srv/backups as its folder; returns the page's path."""
    return write_page(folder, rows())


def write_page(folder: Path, catalog: Iterable[Row]) -> Path:
    """Write the page of a catalog with these rows; returns its path."""
    write_catalog(folder, catalog)
    facts_text = json.dumps(facts(CatalogReader.require(str(folder)), NOW_MS)).replace(
        str(folder), "/srv/backups"
    )
    file = folder / "report.html"
    file.write_text(page(json.loads(facts_text)), "utf-8")
    return file


def save_pictures(tab: Tab, file: Path) -> None:
    """Save every picture of the page beside it."""
    for width in WIDTHS:
        for dark in (False, True):
            tab.open(file, width, dark=dark)
            name = f"{width}-{'dark' if dark else 'light'}.png"
            file.with_name(name).write_bytes(tab.screenshot())
    file.with_suffix(".pdf").write_bytes(tab.pdf())


def take_for_docs(tab: Tab, file: Path) -> None:
    """Take the docs' pictures: the top on a laptop, a wall screen and a phone, and charts in dark mode."""
    DOCS.mkdir(exist_ok=True)
    tab.open(file, 1280)
    (DOCS / "status.png").write_bytes(tab.screenshot(0, 1160))
    tab.open(file, 1920, dark=True)
    (DOCS / "wall.png").write_bytes(tab.screenshot(0, 1080))
    tab.open(file, 390, dark=True)
    (DOCS / "phone.png").write_bytes(tab.screenshot(0, 1160))
    tab.open(file, 820, dark=True)
    top = "document.getElementById('calendar').getBoundingClientRect().top - 12"
    (DOCS / "charts.png").write_bytes(tab.screenshot(tab.value(top), 1230))


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as scratch, browser(Path(scratch)) as tab:
        if sys.argv[1:]:
            save_pictures(tab, write(Path(sys.argv[1])))
        else:
            take_for_docs(tab, write(Path(scratch)))
