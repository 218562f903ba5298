"""The report's page over a catalog made by hand, and pictures of it.

`python -m tests.support.report_pages` takes those of the docs; with a folder, it writes the page there with a
picture at every width, light and dark, and as it is printed.
"""

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from tests.support.browser import Tab, browser
from tests.support.made_up import DAY, put
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
NOW = 1_795_269_900_000  # 2026-11-21T14:05:00Z
# Each source: its topics, hours from one run to the next, seconds and MB of a full, how many hours before NOW
# the last run was, days of history.
SOURCES: dict[str, tuple[tuple[str, ...], int, int, int, int, int]] = {
    "orders": (("orders", "order-items", "carts", "__consumer_offsets"), 6, 95, 420, 8, 120),
    "payments": (("payments", "refunds"), 24, 240, 900, 11, 120),
    "sessions": (("clicks", "sessions"), 24, 30, 160, 10, 60),
    "warehouse": (("stock", "shipments"), 24, 900, 1500, 9, 120),
}


def rows() -> list[Row]:
    """A catalog in which two sources are fine, one is late, and one has topics without a backup: with runs
    that were missed, some that failed, and prunes."""
    made: list[Row] = [
        Migration(version=n, name=name, applied_at=0) for n, name in enumerate(names("migrations"), 1)
    ]
    made.append(Destination(destination="d1", uri="", created_at=0))
    for source in SOURCES:
        made += _source(source)
    for topic in ("logins", "sign-ups"):
        made.append(TopicSeen(source="sessions", at=(NOW - 10 * HOUR) * 1000, scope=topic))
    return made


def _source(source: str) -> Iterator[Row]:
    _, every, seconds, _, age, days = SOURCES[source]
    base, place, expired = "", 0, set[str]()
    for step in range(days * 24 // every - 1, -1, -1):
        at = NOW - (age + step * every) * HOUR
        back = (NOW - at) / DAY
        if (source == "sessions" and 20 < back < 22.5) or (source == "orders" and 33.1 < back < 33.9):
            continue  # missed
        place += 1
        if place % (7 * 24 // every) == 1:
            base = f"{source}-{place:04d}"
            if back > 58:
                expired.add(base)
        failed = source == "warehouse" and 40 < back < 41.5
        state = "unconfirmed" if failed else "deleted" if base in expired else "complete"
        yield from _backup(source, place, base, at, state)
    yield Policy(
        source=source, at=(NOW - (days - 1) * DAY) * 1000, actor="ops", full_schedule="weekly sun 02:00",
        full_every_ms=7 * DAY, incremental_schedule="daily 03:00" if every == 24 else f"every {every}h",
        incremental_every_ms=every * HOUR, window_days=50,
    )  # fmt: skip
    if source != "sessions":
        yield filled(
            Drill,
            source=source,
            at=(NOW - 31 * HOUR) * 1000,
            predicted_ms=seconds * 2000,
            real_ms=seconds * 2100,
        )


def _backup(source: str, place: int, base: str, at: int, state: State) -> Iterator[Row]:
    topics, every, seconds, size, *_ = SOURCES[source]
    name, before = f"{source}-{place:04d}", f"{source}-{place - 1:04d}"
    full = name == base
    larger = 1 + place * every / 2880
    total = int(size * 1e6 * larger * (1 if full else 0.06 + 0.01 * (place % 5)))
    took = int(seconds * 1e6 * larger * (1 if full else 0.2 + 0.05 * (place % 4)))
    lineage: dict[str, Any] = {"base": base}
    if not full:
        lineage |= {"kind": "differential", "level": 1, "parent": before, "parent_place": place - 1}
        lineage |= {"chain_position": place - int(base[-4:]), "start_ts": at - every * HOUR}
    yield backup_row(
        place, backup_id=name, source=source, destination="d1", **lineage, files=len(topics), bytes=total,
        entries=total // 200, state=state, end_ts=at, started_at=at * 1000 - took, finished_at=at * 1000,
        isolation="read_committed", codec="zstandard",
    )  # fmt: skip
    own: dict[str, Any] = {"backup_id": name, "source": source, "epoch": EPOCH}
    positions = {"start_position": 0 if full else 10 * (place - 1), "end_position": 10 * place}
    part = total // len(topics)
    for topic in topics:
        file: dict[str, Any] = {"destination": "d1", "path": f"{source}/{topic}/{place:08d}.avro"}
        where = {"scope": topic, "region": "0"}
        settings = '{"cleanup.policy": "compact"}' if topic.startswith("__") else "{}"
        yield Scope(**own, scope=topic, regions=1, settings=settings, replication=3)
        yield Position(**own, **where, **positions, low_position=0, high_position=10 * place, ts=at)
        yield file_row(
            place, **file, **where, **positions, backup_id=name, source=source, codec="zstandard", bytes=part,
            raw_bytes=4 * part, sha256="00" * 32, max_ts=at - 1,
            entries=1 if topic.startswith("__") else part // 200,
            min_ts=at - (7 * DAY if full else every * HOUR),
        )  # fmt: skip
        if state == "deleted":
            gone = min(at + 58 * DAY, NOW - 12 * HOUR) * 1000
            yield Removal(**own, **file, **where, prune_id="p1", at=gone, reason="time", bytes=part)
        elif state == "complete":
            seen = (NOW - 10 * HOUR) * 1000
            yield Check(**file, check_id="c1", at=seen, backup_id=name, mode="hash", outcome="ok")


def write(folder: Path) -> Path:
    """The page of such a catalog, which it says is in /srv/backups."""
    return write_page(folder, rows())


def write_page(folder: Path, catalog: Iterable[Row]) -> Path:
    """The page of a catalog with these rows."""
    put(folder, catalog)
    found = json.dumps(facts(CatalogReader.require(str(folder)), NOW)).replace(str(folder), "/srv/backups")
    file = folder / "report.html"
    file.write_text(page(json.loads(found)), "utf-8")
    return file


def take(tab: Tab, file: Path) -> None:
    """Every picture of the page, beside it."""
    for width in WIDTHS:
        for dark in (False, True):
            tab.open(file, width, dark=dark)
            name = f"{width}-{'dark' if dark else 'light'}.png"
            file.with_name(name).write_bytes(tab.screenshot())
    file.with_suffix(".pdf").write_bytes(tab.pdf())


def take_for_docs(tab: Tab, file: Path) -> None:
    """The beginning on a laptop, on a wall and on a phone, and charts in the dark."""
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
            take(tab, write(Path(sys.argv[1])))
        else:
            take_for_docs(tab, write(Path(scratch)))
