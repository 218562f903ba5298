"""`lakebackup log pause`: a log task flushes and sleeps."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from lakebackup_jobs.cli import options
from lakebackup_jobs.cli.invocation import destination, settings
from lakebackup_jobs.cli.log import told

if TYPE_CHECKING:
    from collections.abc import Mapping

EXAMPLES = options.examples("lakebackup log pause prod --from ./backups")


def pause(
    name: told.Name,
    from_: options.BackupsAt = None,
    catalog: options.Catalog = None,
    config: options.Config = None,
    json: options.Json = False,
    _debug: options.Debug = False,
) -> None:
    """Flush what there is at once, put down how far each region is, then read nothing until it is resumed.

    The feed must keep its events that long.
    """
    found = settings(config, destination=from_, catalog=catalog)
    where = destination(found, "--from")
    from lakebackup_jobs.changelog import control

    place = control.Place(where, found.catalog, dict(found.kafka))
    told.told(
        f"Pausing task {name}...",
        json,
        lambda: control.pause(place, name),
        _ended,
    )


def _ended(now: Mapping[str, Any]) -> str:
    ts = now["checkpoint_ts"]
    at = "; no checkpoint is known yet" if ts is None else f" at {ts}"
    nothing = "" if now["at_work"] else " No job of it was at work: nothing was flushed."
    return f"Paused{at}.{nothing}"
