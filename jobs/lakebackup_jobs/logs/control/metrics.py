"""Prometheus metrics of log tasks. Each scrape reads the catalog, so that every process reports the same."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from prometheus_client import CollectorRegistry, start_http_server
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from lakebackup.errors import EnvironmentProblem
from lakebackup.storage import open_storage
from lakebackup.store.reader import Catalog, CatalogReader
from lakebackup_jobs.logs.control.status import statuses
from lakebackup_jobs.logs.task import LastError
from lakebackup_jobs.query.source_metrics import CatalogCollector, of_catalog

_PREFIX = "lakebackup_log_"
# Name of a metric -> its description, and the field of a task's status. Counters count rows of the catalog.
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
#: The reasons for which a task is paused: a request, or an error that `log status` shows.
REASONS = ("asked", "error")


@dataclass(frozen=True, eq=False)
class LogCollector(Collector):
    """The metrics of a destination's tasks, or of the task `name`.

    `last_error`: the error of this process's own job, which the catalog may not have.
    """

    destination: str
    catalog: str | None
    name: str | None = None
    last_error: LastError = field(default_factory=LastError)

    def collect(self) -> Iterable[Metric]:
        """The metrics of one scrape. The scrape fails if this raises NotFound or EnvironmentProblem."""
        reader = CatalogReader.require(self.destination, self.catalog)
        tasks = statuses(reader, open_storage(self.destination), self.name)
        for name, (description, column) in _GAUGES.items():
            gauge = GaugeMetricFamily(_PREFIX + name, description, labels=["task"])
            for status in tasks:
                if status[column] is not None:
                    gauge.add_metric([status["task"]], float(status[column]))
            yield gauge
        for name, (description, column) in _COUNTERS.items():
            counter = CounterMetricFamily(_PREFIX + name, description, labels=["task"])
            for status in tasks:
                counter.add_metric([status["task"]], status[column])
            yield counter
        success = GaugeMetricFamily(
            f"{_PREFIX}last_success_timestamp_seconds", "When the last flush was done", labels=["task"]
        )
        paused = GaugeMetricFamily(
            f"{_PREFIX}paused", "1: the task is paused; reason: asked or error", labels=["task", "reason"]
        )
        for status in tasks:
            if status["last_flush_at"] is not None:
                success.add_metric([status["task"]], status["last_flush_at"] / 1e6)
            for reason in REASONS:
                paused.add_metric([status["task"], reason], float(self._pause_reason(status) == reason))
        yield from (success, paused)

    def _pause_reason(self, status: Mapping[str, Any]) -> str | None:
        if self.last_error.text or status["detail"]:
            return "error"
        return "asked" if status["state"] == "paused" else None

    def describe(self) -> Iterable[Metric]:
        """No descriptions, so that registration reads nothing."""
        return []


def registry(*collectors: Collector) -> CollectorRegistry:
    """A registry that holds only these collectors."""
    metrics = CollectorRegistry()
    for collector in collectors:
        metrics.register(collector)
    return metrics


def of_destination(destination: str, catalog: str | None) -> CollectorRegistry:
    """The metrics of every task and every source of a destination, and of its catalog."""
    catalog_uri = Catalog(destination, catalog).catalog_uri
    return registry(
        LogCollector(destination, catalog), of_catalog(destination, catalog), CatalogCollector(catalog_uri)
    )


def url_of(host: str, port: int) -> str:
    """The URL of a server that listens at a host and port."""
    return f"http://{f'[{host}]' if ':' in host else host}:{port}"


@contextmanager
def serve(metrics: CollectorRegistry, host: str, port: int) -> Iterator[int]:
    """Serve metrics at http://host:port/metrics while the block runs; yields the port.

    Raises EnvironmentProblem when the server cannot listen at the host and port.
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
