"""The sources of a catalog for Prometheus: the figures of the view `status`, as gauges."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from prometheus_client.core import GaugeMetricFamily
from prometheus_client.openmetrics.exposition import generate_latest
from prometheus_client.registry import Collector, CollectorRegistry

from lakebackup.errors import EnvironmentProblem
from lakebackup.store.reader import CatalogReader

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from pathlib import Path

    from prometheus_client.core import Metric

STATES = ("OK", "LATE", "DAMAGED", "UNVERIFIED", "UNPROTECTED")
# Name -> what it is, the column it comes from, and what that is divided by.
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
    "held_bytes": ("Size of the files in the storage", "held_bytes", 1),
}


@dataclass(frozen=True, eq=False)
class SourceCollector(Collector):
    """The sources of a destination. Each scrape reads the catalog, so that every process reports the same."""

    destination: str
    catalog: str | None

    def collect(self) -> Iterable[Metric]:
        """One scrape. Raises NotFound, EnvironmentProblem: the scrape fails."""
        return metrics_of(
            CatalogReader.require(self.destination, self.catalog).rows("list_status", source=None)
        )

    def describe(self) -> Iterable[Metric]:
        """Nothing is read before the first scrape."""
        return []


def metrics_of(rows: Iterable[Mapping[str, Any]]) -> Iterable[Metric]:
    """The metrics of rows of the view `status`; what is null has none."""
    rows = list(rows)
    state = GaugeMetricFamily(
        "lakebackup_status", "1: the source has this status", labels=["source", "status"]
    )
    for row in rows:
        for one in STATES:
            state.add_metric([row["source"], one], float(row["status"] == one))
    yield state
    for name, (what, column, unit) in _GAUGES.items():
        gauge = GaugeMetricFamily(f"lakebackup_{name}", what, labels=["source"])
        for row in rows:
            if row[column] is not None:
                gauge.add_metric([row["source"]], float(row[column]) / unit)
        yield gauge


def write_file(path: Path, rows: Sequence[Mapping[str, Any]]) -> None:
    """Write rows of the view `status` as OpenMetrics text; a reader sees the old file or the new one.

    Raises EnvironmentProblem when it cannot be written.
    """
    registry = CollectorRegistry()
    registry.register(_Rows(rows))
    beside = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        beside.write_bytes(generate_latest(registry))  # type: ignore[no-untyped-call]
        beside.replace(path)
    except OSError as error:
        beside.unlink(missing_ok=True)
        raise EnvironmentProblem(
            f"--metrics: {path} cannot be written: {error.strerror or error}.", hint="Name another file."
        ) from None


@dataclass(frozen=True, eq=False)
class _Rows(Collector):
    rows: Sequence[Mapping[str, Any]]

    def collect(self) -> Iterable[Metric]:
        return metrics_of(self.rows)
