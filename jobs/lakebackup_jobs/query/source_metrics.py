"""The sources of a catalog for Prometheus: the columns of the view `status`, as gauges."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from prometheus_client import CollectorRegistry
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.openmetrics.exposition import generate_latest
from prometheus_client.registry import Collector

from lakebackup.errors import LakebackupError
from lakebackup.sql_engine.delta.upkeep import upkeep_of
from lakebackup.store.reader import CatalogReader
from lakebackup_jobs.query.whole_file import write_whole

STATES = ("OK", "LATE", "FAILED", "DAMAGED", "FUTURE", "UNVERIFIED", "UNPROTECTED")
# Name of a gauge -> its description, its column, and the divisor of that column.
_GAUGES = {
    "last_success_timestamp_seconds": ("When the newest restorable backup ended", "finished_at", 1e6),
    "last_duration_seconds": ("How long that backup took", "duration_ms", 1e3),
    "last_bytes": ("What that backup wrote", "bytes", 1),
    "restorable_lag_seconds": ("How long ago the newest restorable instant was", "lag_ms", 1e3),
    "due_timestamp_seconds": ("When the next run of the policy is due", "due_ts", 1e3),
    "missed_runs": ("Runs of the policy that were missed", "missed", 1),
    "verified_timestamp_seconds": ("Until when all that it needs was verified", "verified_at", 1e6),
    "damaged_backups": ("Backups with faults", "damaged", 1),
    "unprotected_topics": ("Topics that no policy takes and no backup has", "unprotected", 1),
    "future_backups": ("Backups from the future: a clock was wrong", "future", 1),
    "held_bytes": ("Size of the files in the storage", "held_bytes", 1),
    "last_drill_timestamp_seconds": ("When the last good drill began", "last_drill", 1),
    "drill_predicted_seconds": ("How long its restore was expected to take", "drill_predicted_ms", 1e3),
    "drill_real_seconds": ("How long its restore took", "drill_real_ms", 1e3),
    "drill_failures": ("Drills that were not good since then", "drill_failures", 1),
    "failed_runs": ("Runs that ended in an error and are not over", "failed_runs", 1),
    "last_failure_timestamp_seconds": ("When the last of them ended", "last_failure", 1),
}


@dataclass(frozen=True, eq=False)
class SourceCollector(Collector):
    """Gauges of rows of the view `status`, which each scrape reads; a null has no gauge."""

    rows: Callable[[], Iterable[Mapping[str, Any]]]

    def collect(self) -> Iterable[Metric]:
        """Yield the gauges of one scrape. An error of reading the rows fails the scrape."""
        rows = list(self.rows())
        state = GaugeMetricFamily(
            "lakebackup_status", "1: the source has this status", labels=["source", "status"]
        )
        for row in rows:
            for status in STATES:
                state.add_metric([row["source"], status], float(row["status"] == status))
        yield state
        # A scraper of a file could not notice otherwise that the file is no longer written.
        yield GaugeMetricFamily(
            "lakebackup_read_timestamp_seconds", "When the catalog was read for these figures", time.time()
        )
        for name, (description, column, unit) in _GAUGES.items():
            gauge = GaugeMetricFamily(f"lakebackup_{name}", description, labels=["source"])
            for row in rows:
                if row[column] is not None:
                    gauge.add_metric([row["source"]], _number(row[column]) / unit)
            yield gauge

    def describe(self) -> Iterable[Metric]:
        """Return nothing, so that the catalog is not read before the first scrape."""
        return []


@dataclass(frozen=True, eq=False)
class CatalogCollector(Collector):
    """Gauges of the upkeep of the catalog at a URI, which each scrape reads from the logs of its tables.

    A catalog of which that is not readable has none of them.
    """

    catalog_uri: str

    def collect(self) -> Iterable[Metric]:
        """Yield the gauges of one scrape."""
        try:
            upkeep = upkeep_of(self.catalog_uri)
        except LakebackupError:  # the gauges of the sources need not all tables
            return
        yield GaugeMetricFamily(
            "lakebackup_catalog_small_files", "Files of the catalog's tables to be merged", upkeep.small_files
        )
        yield GaugeMetricFamily(
            "lakebackup_catalog_log_entries", "Commits since the tables' last checkpoints", upkeep.log_entries
        )
        if upkeep.merged_ms is not None:
            yield GaugeMetricFamily(
                "lakebackup_catalog_merged_timestamp_seconds",
                "When small files were last merged",
                upkeep.merged_ms / 1e3,
            )

    def describe(self) -> Iterable[Metric]:
        """Return nothing, so that the catalog is not read before the first scrape."""
        return []


def _number(value: int | datetime) -> float:
    """Return a value as a number, an instant as seconds since 1970; DuckDB's have no zone and are UTC."""
    return value.replace(tzinfo=UTC).timestamp() if isinstance(value, datetime) else float(value)


def of_catalog(destination: str, catalog: str | None) -> SourceCollector:
    """Return the collector for the sources of a destination.

    It reads the catalog at each scrape, so that every process reports the same. A scrape raises NotFound,
    EnvironmentProblem.
    """
    return SourceCollector(
        lambda: CatalogReader.require(destination, catalog).rows("list_status", source=None)
    )


def write_file(path: Path, rows: Sequence[Mapping[str, Any]], catalog_uri: str) -> None:
    """Write rows of the view `status`, and the upkeep of their catalog, as OpenMetrics text. Raises
    EnvironmentProblem if that fails."""
    metrics = CollectorRegistry()
    metrics.register(SourceCollector(lambda: rows))
    metrics.register(CatalogCollector(catalog_uri))
    text = generate_latest(metrics).decode()  # type: ignore[no-untyped-call]
    write_whole(text, path, "--metrics: the figures")
