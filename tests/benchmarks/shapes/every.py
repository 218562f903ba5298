"""The shapes by name."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path

from tests.benchmarks.shapes import records
from tests.benchmarks.shapes.following import RATE, SECONDS, following
from tests.benchmarks.shapes.groups import groups
from tests.benchmarks.shapes.growing import Setting, Shape, grow
from tests.benchmarks.shapes.many_topics import many_topics
from tests.benchmarks.shapes.snapshot import many_backups

from lakebackup_jobs.demo.broker import Broker


@dataclass(frozen=True)
class Measurement:
    """Where and how long to measure. `scale`: a fraction of the full size."""

    broker: Broker
    folder: Path
    runs: int
    scale: float
    follow_s: float = SECONDS


def _growing(
    title: str, make: Callable[[Setting, int], AbstractContextManager[Shape]], full: int, unit: str
) -> tuple[str, Callable[[Measurement], str]]:
    def measure(at: Measurement) -> str:
        size = max(2, round(full * at.scale))
        return grow(at.broker.bootstrap, at.folder, make, (size // 2, size), unit, at.runs)

    return title, measure


def _compacted(at: Measurement) -> str:
    _, measure = _growing("", records.compacted(at.broker.folder / "data").make(), 500_000, "keys")
    return measure(at)


SHAPES: Mapping[str, tuple[str, Callable[[Measurement], str]]] = {
    "topics": (
        "Clusters with many small topics",
        lambda at: many_topics(at.broker.bootstrap, at.folder, at.runs, at.scale),
    ),
    "groups": _growing("Consumer groups", groups, 2_000, "groups"),
    "partitions": _growing("Partitions of a topic", records.PARTITIONS.make(), 500, "partitions"),
    "small": _growing("Records of 50 bytes in one partition", records.SMALL.make(), 3_000_000, "records"),
    "compacted": ("A compacted topic, each key written four times", _compacted),
    "large": _growing("Records of 8 MB", records.LARGE.make(), 200, "records"),
    "headers": _growing("Records with three headers of 1 KB", records.HEADERS.make(), 200_000, "records"),
    "tombstones": _growing("Tombstones", records.TOMBSTONES.make(), 1_000_000, "tombstones"),
    "follow": (
        "Following a topic, killed once",
        lambda at: following(at.broker.bootstrap, at.folder, at.follow_s * at.scale, RATE),
    ),
    "snapshot": (
        "A snapshot of small files, backed up again and again",
        lambda at: many_backups(at.folder, at.scale),
    ),
}
