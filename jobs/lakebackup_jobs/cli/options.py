"""Flags that several verbs share, so that they read and mean the same everywhere."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

_PLACE = "Settings"
_KAFKA = "Kafka"
_SPARK = "Spark"
_OUTPUT = "Output"

Config = Annotated[
    Path | None,
    typer.Option("--config", metavar="FILE", help="Instead of ./lakebackup.toml.", rich_help_panel=_PLACE),
]
BackupsAt = Annotated[
    str | None,
    typer.Option("--from", metavar="URI", help="Where the backups are kept.", rich_help_panel=_PLACE),
]
KeepAt = Annotated[
    str | None,
    typer.Option(
        "--to",
        metavar="URI",
        help="Where to keep it: a folder or s3://bucket/prefix.",
        rich_help_panel=_PLACE,
    ),
]
Catalog = Annotated[
    str | None,
    typer.Option("--catalog", metavar="URI", help="The catalog, when not in there.", rich_help_panel=_PLACE),
]
Source = Annotated[
    str | None,
    typer.Option(
        "--source",
        metavar="NAME",
        help="The cluster's name in the catalog.",
        show_default="its id",
        rich_help_panel=_PLACE,
    ),
]
Pattern = Annotated[
    list[str] | None,
    typer.Option(
        "--pattern",
        metavar="REGEX",
        help="Topics whose whole name matches; repeatable. Internal topics (__…) only come by name.",
    ),
]
BootstrapServers = Annotated[
    str | None,
    typer.Option(
        "--bootstrap-server",
        "--bootstrap-servers",
        metavar="HOST:PORT,…",
        help="Brokers.",
        rich_help_panel=_KAFKA,
    ),
]
KafkaConfig = Annotated[
    Path | None,
    typer.Option(
        "--kafka-config",
        metavar="FILE",
        help="Client properties, key=value a line; the place for secrets.",
        rich_help_panel=_KAFKA,
    ),
]
KafkaProperty = Annotated[
    list[str] | None,
    typer.Option(
        "-X", metavar="KEY=VALUE", help="A librdkafka property; repeatable.", rich_help_panel=_KAFKA
    ),
]
Remote = Annotated[
    str | None,
    typer.Option("--remote", metavar="sc://HOST", help="A Spark Connect server.", rich_help_panel=_SPARK),
]
Master = Annotated[
    str | None,
    typer.Option(
        "--master", metavar="URL", help="Spark master.", show_default="this machine", rich_help_panel=_SPARK
    ),
]
SparkConf = Annotated[
    list[str] | None,
    typer.Option(
        "--spark-conf", metavar="KEY=VALUE", help="A Spark property; repeatable.", rich_help_panel=_SPARK
    ),
]
LeaseTtl = Annotated[
    str | None,
    typer.Option(
        "--lease-ttl",
        metavar="SPAN",
        help="A run silent this long has lost its lease.",
        show_default="60s",
        rich_help_panel=_PLACE,
    ),
]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Show the plan; write nothing.")]
Explain = Annotated[
    bool, typer.Option("--explain", help="Print the SQL that decides, with its parameters; change nothing.")
]
AsOf = Annotated[
    str | None,
    typer.Option("--as-of", metavar="TIME", help="As the catalog was then; relations as they are: now_…"),
]
Json = Annotated[bool, typer.Option("--json", help="JSON lines on standard output.", rich_help_panel=_OUTPUT)]
Csv = Annotated[bool, typer.Option("--csv", help="CSV with a header line.", rich_help_panel=_OUTPUT)]
Debug = Annotated[
    bool, typer.Option("--debug", help="Show the traceback of a failure.", rich_help_panel=_OUTPUT)
]
BackupId = Annotated[
    str, typer.Argument(metavar="ID", help="A backup's id, or as much of its beginning as is unambiguous.")
]


def examples(*lines: str) -> str:
    """An epilog that shows commands as they are typed."""
    return "Examples:\n\n" + "\n\n".join(f"  {line}" for line in lines)
