"""`lakebackup log resume`: resume a log task that was paused."""

from __future__ import annotations

from lakebackup_jobs.cli.flags import options
from lakebackup_jobs.cli.flags.options import option
from lakebackup_jobs.cli.log import common
from lakebackup_jobs.cli.verb import Call, verb
from lakebackup_jobs.logs.control import verbs as control


@verb(options.REPO, options.KAFKA_CLIENT, options.LEASE, options.BANDWIDTH, options.CLUSTER)
def resume(
    call: Call,
    name: str = common.NAME,
    no_run: bool = common.NO_RUN,
    metrics_port: int | None = common.METRICS_PORT,
    skip: list[str] | None = option(
        "--skip TOPIC:PARTITION:OFFSET",
        "Skip this message permanently; repeatable. It is audited, and restores over it need --allow-gaps.",
    ),
) -> None:
    """Resume a task where it was paused, or where it paused itself after an error.

    If its job no longer runs, a new one starts on this machine with the flags of this command. Flags that
    were given to `log start` are not kept.

    Examples:
        lakebackup log resume prod --repo ./backups
        lakebackup log resume shop --skip shop.public.a:0:17 --repo ./backups
    """
    environment = common.place_of(call, run=not no_run, metrics_port=metrics_port)
    common.progress(
        f"Resuming task {name}...",
        call.json,
        lambda: control.resume(environment, name, skip or ()),
        lambda status: "Resumed!" + (f" Its log: {status['log']}" if status["log"] else ""),
    )
