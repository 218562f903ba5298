"""Log tasks for Prometheus. Each scrape reads the catalog, so that every process reports the same."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from prometheus_client import CollectorRegistry, start_http_server
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.registry import Collector

from lakebackup.errors import EnvironmentProblem
from lakebackup.storage import open_storage
from lakebackup.store.reader import CatalogReader
from lakebackup_jobs.logs.control.status import statuses
from lakebackup_jobs.logs.task import LastError
from lakebackup_jobs.query.source_metrics import of_catalog

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from prometheus_client.core import Metric

_PREFIX = "lakebackup_log_"
# Name -> what it is, and the field of a task's status. Counters count what is in the catalog.
_GAUGES = {
    "checkpoint_ts": ("Up to which ts the log is whole, in the feed's own unit", "checkpoint_ts"),
    "checkpoint_lag_seconds": ("How long ago the checkpoint was", "checkpoint_lag_s"),
    "running": ("1: the task is to capture", "running"),
    "at_work": ("1: a job of the task is there", "at_work"),
}
_COUNTERS = {
    "flushed_bytes": ("Bytes of log files, as stored", "bytes"),
    "files": ("Log files", "files"),
    "events": ("Events in log files", "entries"),
    "flushes": ("Flushes", "flushes"),
    "errors": ("How often the task paused itself", "errors"),
}
#: Why a task is paused: on request, or by an error that `log status` shows.
REASONS = ("asked", "error")


@dataclass(frozen=True, eq=False)
class LogCollector(Collector):
    """The tasks of a destination, or the one called `name`; `last_error`: what the catalog may not know."""

    destination: str
    catalog: str | None
    name: str | None = None
    last_error: LastError = field(default_factory=LastError)

    def collect(self) -> Iterable[Metric]:
        """One scrape. Raises NotFound, EnvironmentProblem: the scrape fails."""
        reader = CatalogReader.require(self.destination, self.catalog)
        tasks = statuses(reader, open_storage(self.destination), self.name)
        for name, (what, column) in _GAUGES.items():
            gauge = GaugeMetricFamily(_PREFIX + name, what, labels=["task"])
            for found in tasks:
                if found[column] is not None:
                    gauge.add_metric([found["task"]], float(found[column]))
            yield gauge
        for name, (what, column) in _COUNTERS.items():
            counter = CounterMetricFamily(_PREFIX + name, what, labels=["task"])
            for found in tasks:
                counter.add_metric([found["task"]], found[column])
            yield counter
        success = GaugeMetricFamily(
            f"{_PREFIX}last_success_timestamp_seconds", "When the last flush was done", labels=["task"]
        )
        paused = GaugeMetricFamily(
            f"{_PREFIX}paused", "1: the task is paused; reason: asked or error", labels=["task", "reason"]
        )
        for found in tasks:
            if found["last_flush_at"] is not None:
                success.add_metric([found["task"]], found["last_flush_at"] / 1e6)
            for reason in REASONS:
                paused.add_metric([found["task"], reason], float(self._paused(found) == reason))
        yield from (success, paused)

    def _paused(self, found: Mapping[str, Any]) -> str | None:
        if self.last_error.text or found["detail"]:
            return "error"
        return "asked" if found["state"] == "paused" else None

    def describe(self) -> Iterable[Metric]:
        """Nothing is read before the first scrape."""
        return []


def registry(*collectors: Collector) -> CollectorRegistry:
    """A registry of these metrics alone."""
    found = CollectorRegistry()
    for collector in collectors:
        found.register(collector)
    return found


def of_destination(destination: str, catalog: str | None) -> CollectorRegistry:
    """The metrics of every task and every source."""
    return registry(LogCollector(destination, catalog), of_catalog(destination, catalog))


def url_of(host: str, port: int) -> str:
    """Where a server answers that listens there."""
    return f"http://{f'[{host}]' if ':' in host else host}:{port}"


@contextmanager
def serve(metrics: CollectorRegistry, host: str, port: int) -> Iterator[int]:
    """Metrics at http://host:port/metrics while the block runs; gives the port.

    Raises EnvironmentProblem when it cannot listen there.
    """
    try:
        server, thread = start_http_server(port, host, metrics)
    except OSError as error:
        raise EnvironmentProblem(
            f"Metrics cannot be served at {host}:{port}: {error.strerror or error}.",
            hint="Give another port.",
        ) from None
    try:
        yield server.server_port
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
