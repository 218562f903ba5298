"""What one command was given beside its own flags, and what every verb does with it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from os import environ
from typing import TYPE_CHECKING, Any

import typer

from lakebackup.errors import UsageProblem

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

    from lakebackup.config import Properties, Settings


@dataclass(frozen=True, slots=True)
class Invocation:
    """Rides along as the context's object; `spark` is the session a caller of `main` already has."""

    spark: SparkSession | None = None


def session_of(context: typer.Context, found: Settings) -> SparkSession | None:
    """The caller's session, or one with the Spark settings given; else None: the job makes its own."""
    if isinstance(context.obj, Invocation) and context.obj.spark is not None:
        return context.obj.spark
    extra = dict(found.spark) | ({"spark.master": found.master} if found.master else {})
    if not extra:
        return None
    from lakebackup_jobs.session import spark_session

    return spark_session(remote=found.remote, extra=extra)


def settings(
    config: Path | None,
    *,
    bootstrap_servers: str | None = None,
    kafka_config: Path | None = None,
    kafka_properties: Sequence[str] = (),
    spark_conf: Sequence[str] = (),
    **flags: Any,
) -> Settings:
    """Settings in force for these flags; a flag that is None was not given."""
    from lakebackup.config import load, parse_properties, read_properties

    kafka = read_properties(kafka_config) if kafka_config else {}
    kafka |= parse_properties(kafka_properties)
    if bootstrap_servers:
        kafka["bootstrap.servers"] = bootstrap_servers
    spark = parse_properties(spark_conf, "--spark-conf")
    found = load({**flags, "kafka": kafka or None, "spark": spark or None}, config)
    # Whoever opens a place finds them there, Python processes that Spark starts included. No secrets.
    environ.update({**found.s3.variables(), **found.storage.variables()})
    return found


def destination(found: Settings, flag: str) -> str:
    """The place backups are kept at, which `flag` names on this verb. Raises UsageProblem without one."""
    if not found.destination:
        raise UsageProblem(
            "Nobody said where the backups are kept.",
            hint=f"Give {flag} URI, set LAKEBACKUP_DESTINATION, or destination in lakebackup.toml.",
        )
    return found.destination


def kafka_client(found: Settings) -> Properties:
    """Kafka properties with the servers among them. Raises UsageProblem without."""
    if not found.kafka.get("bootstrap.servers"):
        raise UsageProblem(
            "Nobody said which Kafka cluster.",
            hint="Give --bootstrap-server HOST:PORT, set LAKEBACKUP_KAFKA__BOOTSTRAP_SERVERS, "
            "or write it into [kafka] of lakebackup.toml.",
        )
    return found.kafka


def instant(text: str | None) -> int | None:
    """A time flag in ms since 1970 UTC; None stays None."""
    if text is None:
        return None
    import time

    from lakebackup.times import parse_time

    return parse_time(text, now=time.time_ns() // 1_000_000)


def span(text: str | None) -> int | None:
    """A flag such as `7d` in ms; None stays None."""
    from lakebackup.times import parse_duration

    return None if text is None else parse_duration(text)


def size(flag: str, text: str | None) -> int | None:
    """A flag such as `10GiB` in bytes; None stays None. Raises UsageProblem."""
    from pydantic import ByteSize, TypeAdapter, ValidationError

    try:
        return None if text is None else int(TypeAdapter(ByteSize).validate_python(text))
    except ValidationError:
        raise UsageProblem(f"{flag} {text!r} is not a size.", hint="Write 500MB, 128MiB, 10GiB.") from None


def one_of(flags: Mapping[str, bool], otherwise: str) -> str:
    """The name of the flag that is set, or `otherwise`. Raises UsageProblem for two."""
    given = [name for name, is_set in flags.items() if is_set]
    if len(given) > 1:
        raise UsageProblem(f"{' and '.join(f'--{name}' for name in given)} exclude each other.")
    return given[0] if given else otherwise
