"""`lakebackup log run`: the job of a log task."""

from __future__ import annotations

import threading
import time
from contextlib import ExitStack

from lakebackup.errors import LakebackupError
from lakebackup.store.reader import CatalogReader
from lakebackup_jobs.cli.flags import options
from lakebackup_jobs.cli.flags.options import option
from lakebackup_jobs.cli.interrupt import stopped_by_signals
from lakebackup_jobs.cli.log import common
from lakebackup_jobs.cli.verb import Call, verb
from lakebackup_jobs.logs.capture.flush import LogRequest
from lakebackup_jobs.logs.capture.job import run as run_task
from lakebackup_jobs.logs.control.metrics import LogCollector, registry, serve
from lakebackup_jobs.logs.task import LastError, client_of, require


@verb(options.REPO, options.KAFKA_CLIENT, options.LEASE, options.BANDWIDTH, options.CLUSTER)
def run(
    call: Call,
    name: str = common.NAME,
    metrics_port: int | None = common.METRICS_PORT,
    metrics_host: str = option(
        "--metrics-host ADDRESS", "With --metrics-port, where to listen.", "127.0.0.1"
    ),
) -> None:
    """Run a task's job in the foreground until it is stopped. `log start` runs this in the background.

    Use it under systemd, or with spark-submit on a cluster, and start the task with --no-run. Ctrl-C and
    SIGTERM finish the current flush first. The task continues when this runs again.

    Examples:
        lakebackup log run prod --repo ./backups
        lakebackup log run prod --repo s3://bucket/log --master spark://host:7077 --metrics-port 9464
    """
    repo, settings = call.repository, call.settings
    reader = CatalogReader.require(repo, settings.catalog)
    task = require(reader, name)
    request = call.request(
        LogRequest,
        kafka=client_of(reader.catalog_uri, name, task.settings, settings.kafka),
        settings=task.settings,
        scratch=settings.log.scratch,
        tries=settings.log.tries,
    )

    def notify_paused(error: LakebackupError) -> None:
        """Send the notification in a thread. Meanwhile the job keeps its lease."""
        threading.Thread(target=call.notify, args=("log run", time.time(), error), daemon=True).start()

    stop, last_error = threading.Event(), LastError(paused=notify_paused)
    note = "Stops after this flush; Ctrl-C again interrupts it."
    with stopped_by_signals(stop, note), ExitStack() as stack:
        if metrics_port is not None:
            collector = LogCollector(repo, settings.catalog, name, last_error)
            stack.enter_context(serve(registry(collector), metrics_host, metrics_port))
        call.run(run_task, request, stop=stop, last_error=last_error)
