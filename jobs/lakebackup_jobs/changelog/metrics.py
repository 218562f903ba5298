"""Log tasks for Prometheus. The catalog is asked at each scrape, so that every process tells the same."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from prometheus_client import CollectorRegistry, start_http_server
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.registry import Collector

from lakebackup.errors import EnvironmentProblem
from lakebackup.storage import open_storage
from lakebackup.store import CatalogReader
from lakebackup_jobs.changelog.status import statuses

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from prometheus_client.core import Metric

_PREFIX = "lakebackup_log_"
# Name -> what it is, and the field of a task's status. Counters count what is in the catalog.
_GAUGES = {
    "checkpoint_ts": ("Up to which ts the log is whole, in the feed's own unit", "checkpoint_ts"),
    "checkpoint_lag_seconds": ("How long ago the checkpoint was", "checkpoint_lag_s"),
    "at_work": ("1: a job of the task is there", "at_work"),
}
_COUNTERS = {
    "flushed_bytes": ("Bytes of log files, as stored", "bytes"),
    "files": ("Log files", "files"),
    "events": ("Events in log files", "entries"),
    "flushes": ("Flushes", "flushes"),
    "errors": ("How often the task paused itself", "errors"),
}
#: Why a task is paused: somebody asked for it, or an error that `log status` tells.
REASONS = ("asked", "error")


@dataclass(frozen=True)
class LogCollector(Collector):
    """The tasks of a destination, or the one called `name`."""

    destination: str
    catalog: str | None
    name: str | None = None

    def collect(self) -> Iterable[Metric]:
        """Asked at each scrape. Raises NotFound, EnvironmentProblem: the scrape fails."""
        reader = CatalogReader.require(self.destination, self.catalog)
        tasks = statuses(reader, open_storage(self.destination), self.name)
        for name, (what, field) in _GAUGES.items():
            gauge = GaugeMetricFamily(_PREFIX + name, what, labels=["task"])
            for found in tasks:
                if found[field] is not None:
                    gauge.add_metric([found["task"]], float(found[field]))
            yield gauge
        for name, (what, field) in _COUNTERS.items():
            counter = CounterMetricFamily(_PREFIX + name, what, labels=["task"])
            for found in tasks:
                counter.add_metric([found["task"]], found[field])
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
                paused.add_metric([found["task"], reason], float(_paused(found) == reason))
        yield from (success, paused)

    def describe(self) -> Iterable[Metric]:
        """Nothing is asked before the first scrape."""
        return []


def registry(destination: str, catalog: str | None, name: str | None = None) -> CollectorRegistry:
    """A registry of these metrics alone."""
    found = CollectorRegistry()
    found.register(LogCollector(destination, catalog, name))
    return found


@contextmanager
def serve(destination: str, catalog: str | None, name: str, host: str, port: int) -> Iterator[int]:
    """The metrics of a task at http://host:port/metrics while the block runs; gives the port.

    Raises EnvironmentProblem when nobody can listen there.
    """
    try:
        server, thread = start_http_server(port, host, registry(destination, catalog, name))
    except OSError as error:
        raise EnvironmentProblem(
            f"Metrics cannot be served at {host}:{port}: {error.strerror or error}.",
            hint="Give another --metrics-port.",
        ) from None
    try:
        yield server.server_port
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def _paused(found: Mapping[str, Any]) -> str | None:
    if found["state"] != "paused":
        return None
    return "error" if found["detail"] else "asked"
