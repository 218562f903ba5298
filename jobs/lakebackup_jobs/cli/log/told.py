"""What the verbs of log tasks print, and their common flags."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Annotated, Any

import typer

from lakebackup_jobs.visible import visible_lines

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from lakebackup.config import Settings
    from lakebackup_jobs.changelog.control import Place

Name = Annotated[str, typer.Argument(metavar="NAME", help="The task.")]
NoRun = Annotated[
    bool,
    typer.Option("--no-run", help="Start no job here: it runs by `lakebackup log run` elsewhere."),
]


def place_of(
    found: Settings, where: str, *, config: Path | None, kafka_config: Path | None, run: bool, more: list[str]
) -> Place:
    """Where tasks are kept. `run`: a job may be started here, with the flags `more` beside this command's."""
    from lakebackup_jobs.changelog.control import Place

    options = more
    options += ["--config", str(config.absolute())] if config else []
    options += ["--kafka-config", str(kafka_config.absolute())] if kafka_config else []
    return Place(where, found.catalog, dict(found.kafka), options if run else None, found.log.keys_file)


def job_flags(
    kafka_property: Sequence[str] | None, spark_conf: Sequence[str] | None, **flags: object
) -> list[str]:
    """Flags of a job that `start` and `resume` were given; those that are None were not."""
    more = [part for text in kafka_property or () for part in ("-X", text)]
    more += [part for text in spark_conf or () for part in ("--spark-conf", text)]
    given = {flag.replace("_", "-"): value for flag, value in flags.items() if value is not None}
    return more + [part for flag, value in given.items() for part in (f"--{flag}", str(value))]


def say(text: str) -> None:
    """A line on standard output."""
    sys.stdout.write(f"{visible_lines(text)}\n")
    sys.stdout.flush()


def told(
    doing: str, as_json: bool, work: Callable[[], dict[str, Any]], ended: Callable[[Mapping[str, Any]], str]
) -> None:
    """Say what is done, a line a store, and how it ended; or all of it as one JSON object.

    Failed goes up once its stores are told.
    """
    from lakebackup_jobs.changelog.control import Failed
    from lakebackup_jobs.changelog.status import lines

    if not as_json:
        say(f"{doing}\n")
    try:
        found = work()
    except Failed as error:
        if not as_json:
            stores("\n".join(lines(error.found)))
        raise
    if as_json:
        say(json.dumps({"event": "result", **found}, default=str))
        return
    stores("\n".join(lines(found)))
    say(ended(found))


def stores(text: str) -> None:
    """The lines of the stores, and an empty one."""
    if text:
        say(f"{text}\n")
