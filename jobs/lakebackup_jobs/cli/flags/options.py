"""Flags that several verbs share, so that they have the same name, help and meaning everywhere.

A verb takes a `Flag` through its decorator (see `verb`). The options and arguments at the end of this module
are defaults of verbs' parameters.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from inspect import Parameter
from pathlib import Path
from textwrap import dedent
from typing import Any, Literal

import typer

from lakebackup.sql_engine import EngineChoice
from lakebackup_jobs.cli.flags import completion
from lakebackup_jobs.cli.flags.values import naming

SETTINGS, KAFKA, SPARK, OUTPUT = "Settings", "Kafka", "Spark", "Output"
COPYING, DATA_FILES_PANEL = "Copying", "Data files"
TIMES = (
    "2026-11-21T14:05Z, 'yesterday 14:05', '14:05' (today), -2h, '90 min ago', ms since 1970. A date without "
    "a zone is UTC; a day or a time alone is in the time zone of the source's policy, or UTC."
)
"""Help text: the forms of a time."""

RunnerName = Literal["auto", "spark", "local"]
CodecName = Literal["null", "deflate", "snappy", "zstandard"]


@dataclass(frozen=True, slots=True)
class Flag:
    """A shared flag. `name` is its key in `Call.flags`. `setting` is the setting that it overrides."""

    name: str
    kind: Any
    options: tuple[str, ...]
    typer_arguments: Mapping[str, Any]
    setting: str | None

    def variant(self, *options: str, **changed_arguments: Any) -> Flag:
        """The same flag with other spellings, or with other arguments for typer."""
        typer_arguments = {**self.typer_arguments, **changed_arguments}
        return replace(self, options=options or self.options, typer_arguments=typer_arguments)

    @property
    def parameter(self) -> Parameter:
        """The flag as a parameter of a function, for typer."""
        default = typer.Option(False if self.kind is bool else None, *self.options, **self.typer_arguments)
        return Parameter(self.name, Parameter.KEYWORD_ONLY, default=default, annotation=self.kind)

    def arguments(self, value: Any) -> list[str]:
        """The flag with its value as command line arguments; empty when the flag is not set."""
        if value is True:
            return [self.options[0]]
        values = value if isinstance(value, list) else [value] if value else []
        texts = [
            str(single_value.absolute() if isinstance(single_value, Path) else single_value)
            for single_value in values
        ]
        return [part for text in texts for part in (self.options[0], text)]


def option(
    spelled: str,
    help_: str,
    default: Any = None,
    *,
    panel: str | None = None,
    show_default: str | bool | None = None,
    parser: Callable[[str], Any] | None = None,
    **typer_options: Any,
) -> Any:
    """An option of one verb. `spelled`: its spellings and the name of its value in help: `--to-time TIME`.

    `default`: `...` makes the option required. `show_default`: the default's text in help. `parser` parses
    the value's text, and its errors name the option. `typer_options` are passed to typer.
    """
    arguments, spellings = _typer_arguments(spelled, help_, panel, show_default), _spellings(spelled)
    if parser:
        arguments["parser"] = naming(spellings[0])(parser)
    return typer.Option(default, *spellings, **{**arguments, **typer_options})


def switch(spelled: str, help_: str, *, panel: str | None = None) -> Any:
    """An option of one verb that has no value."""
    return option(spelled, help_, False, panel=panel)


def argument(
    metavar: str,
    help_: str,
    default: Any = None,
    *,
    show_default: str | bool | None = None,
    **typer_options: Any,
) -> Any:
    """A positional argument of one verb. `default` and `show_default`: see `option`."""
    return typer.Argument(default, **_typer_arguments(metavar, help_, None, show_default), **typer_options)


def _spellings(spelled: str) -> tuple[str, ...]:
    return tuple(word for word in spelled.split() if word.startswith("-"))


def _typer_arguments(
    spelled: str, help_: str, panel: str | None, default: str | bool | None
) -> dict[str, Any]:
    arguments = {
        "help": help_,
        "rich_help_panel": panel,
        "metavar": " ".join(word for word in spelled.split() if not word.startswith("-")) or None,
        "show_default": default,
    }
    return {word: value for word, value in arguments.items() if value is not None}


def _flag(
    panel: str | None,
    spelled: str,
    help_: str,
    kind: Any = str,
    *,
    name: str = "",
    setting: str | None = None,
    default: str | None = None,
) -> Flag:
    """A shared flag, spelled as in `option`. Without the name of a value it is a switch."""
    spellings, arguments = _spellings(spelled), _typer_arguments(spelled, help_, panel, default)
    name = name or spellings[0].strip("-").replace("-", "_")
    return Flag(name, kind | None if "metavar" in arguments else bool, spellings, arguments, setting)


def _setting(panel: str, spelled: str, help_: str, kind: Any = str, **arguments: str) -> Flag:
    """A shared flag that overrides a setting: `setting`, or else the setting with the flag's name."""
    flag = _flag(panel, spelled, help_, kind, **arguments)
    return flag if flag.setting else replace(flag, setting=flag.name)


CODEC = _setting(
    DATA_FILES_PANEL,
    "--codec CODEC",
    "Codec of data files. null, deflate, snappy or zstandard.",
    CodecName,
    default="zstandard",
)
COMPRESSION_LEVEL = _setting(
    DATA_FILES_PANEL, "--compression-level N", "Compression level of the codec.", int, default="the codec's"
)
TARGET_SIZE = _setting(
    DATA_FILES_PANEL, "--target-size SIZE", "Close a data file at this size.", default="128MiB"
)
NOTE = _flag(None, "--note TEXT", "A note to store with it.")
DRY_RUN = _flag(None, "--dry-run", "Show the plan; write nothing.")
EXPLAIN = _flag(None, "--explain", "Print the SQL behind the plan, with its parameters; change nothing.")
AS_OF = _flag(
    None, "--as-of TIME", "Read the catalog as it was at this time. The current relations are named now_…"
)
REPO_URI = _setting(
    SETTINGS,
    "--repo URI",
    "The repository, where backups are stored: a folder or s3://bucket/prefix.",
    name="repo",
)
CATALOG = _setting(SETTINGS, "--catalog URI", "The catalog, if it is not in the repository.")
SOURCE = _setting(
    SETTINGS, "--source NAME", "The source's name in the catalog.", default="the cluster's id"
).variant(autocompletion=completion.sources)
ONE_SOURCE = SOURCE.variant(show_default="all, whatever the setting is")
LEASE = _setting(
    SETTINGS, "--lease-ttl SPAN", "A run that does not renew its lease for this long loses it.", default="60s"
)
CONFIG = _flag(
    SETTINGS, "--config FILE", "Settings file, instead of ./lakebackup.toml.", Path, name="settings_file"
)
BOOTSTRAP = _flag(KAFKA, "--bootstrap-server HOST:PORT,…", "Brokers.")
KAFKA_CONFIG = _flag(
    KAFKA, "--kafka-config FILE", "Client properties, one key=value per line; put secrets here.", Path
)
KAFKA_PROPERTY = _flag(
    KAFKA, "-X KEY=VALUE", "A librdkafka property; repeatable.", list[str], name="kafka_property"
)
ENGINE = _flag(None, "--engine NAME", "SQL engine: auto, duckdb or spark.", EngineChoice, default="auto")
RUNNER = _setting(
    SPARK,
    "--runner NAME",
    "What runs the tasks: spark, local (threads of this process), or auto: local for little data.",
    RunnerName,
    default="auto",
)
LOCAL_BELOW = _setting(
    SPARK, "--local-below SIZE", "With --runner auto, up to this size runs locally.", default="64MiB"
)
BANDWIDTH = _setting(
    COPYING,
    "--bandwidth SIZE/s",
    "Limit what all tasks together read or write, such as 50MB/s.",
    default="no limit",
)
REMOTE = _setting(SPARK, "--remote sc://HOST", "A Spark Connect server.")
MASTER = _setting(SPARK, "--master URL", "Spark master.", default="this machine")
SPARK_CONF = _flag(SPARK, "--spark-conf KEY=VALUE", "A Spark property; repeatable.", list[str])
JSON = _flag(OUTPUT, "--json", "JSON lines on standard output.")
CSV = _flag(OUTPUT, "--csv", "CSV with a header line.")
AGENT = _flag(OUTPUT, "--agent", "A table of Markdown with the columns' types, for a language model.")
WIDE = _flag(OUTPUT, "--wide", "Tables in full: all columns, whole ids, times and texts.")
DEBUG = _flag(OUTPUT, "--debug", "Show the traceback of a failure.")

ALL = (
    CODEC, COMPRESSION_LEVEL, TARGET_SIZE, NOTE, DRY_RUN, EXPLAIN, ENGINE, AS_OF,
    REPO_URI, CATALOG, SOURCE, LEASE, CONFIG,
    BOOTSTRAP, KAFKA_CONFIG, KAFKA_PROPERTY, BANDWIDTH, RUNNER, LOCAL_BELOW, REMOTE, MASTER, SPARK_CONF,
    JSON, CSV, AGENT, WIDE, DEBUG,
)  # fmt: skip
"""Every shared flag in the order of help. A verb's own options come before them."""

EVERY_VERB = (CONFIG, JSON, WIDE, DEBUG)
REPO = (REPO_URI, CATALOG)
DATA_FILES = (CODEC, COMPRESSION_LEVEL, TARGET_SIZE)
KAFKA_CLIENT = (KAFKA_CONFIG, KAFKA_PROPERTY)
KAFKA_SERVERS = (BOOTSTRAP, *KAFKA_CLIENT)
CLUSTER = (MASTER, SPARK_CONF)
SPARK_JOB = (REMOTE, *CLUSTER)
ANY_RUNNER = (RUNNER, LOCAL_BELOW, *SPARK_JOB)
PLAN = (DRY_RUN, EXPLAIN)
ROWS = (AS_OF, *REPO, CSV)

TOPICS_THAT_MATCH = "Topics whose whole name matches; repeatable. "
PATTERN = option("--pattern REGEX", TOPICS_THAT_MATCH + "Name internal topics (__…) in full.")
PORTS: Mapping[str, Any] = {"min": 1, "max": 65_535}
"""The range of an option whose value is a port."""
OUTPUT_FILE = option("--out FILE", "Write to this new file instead of standard output.", show_default=False)
PASSPHRASE_FILE = option(
    "--passphrase-file FILE",
    "The passphrase is the first line of this file.",
    show_default="[signing] of the settings",
)
EVIDENCE = option(
    "--evidence FILE",
    "Write signed evidence of this run to this new file, and a page for people to FILE.html.",
    show_default=False,
)
SELECT = option("--select SQL", "Restore exactly the files this SELECT returns.")


def backup_id(metavar: str = "ID") -> Any:
    """A required argument whose value is the id of a backup."""
    return argument(
        metavar, "A backup's id, the beginning of one, or latest.", ..., autocompletion=completion.backups
    )


BACKUP_ID = backup_id()
TopicSettings = Literal["auto", "saved", "suspended"]
TOPIC_SETTINGS = option(
    "--topic-settings NAME",
    "Topic settings after the restore. auto: as saved, without retention that would delete restored "
    "records. saved: as saved. suspended: retention is off until you set it.",
    "auto",
)
ZERO_TIMESTAMPS_AS_ONE = switch(
    "--zero-timestamps-as-one",
    "Write timestamps of 0 as 1 ms: Kafka's C client would replace 0 by the current time.",
)


def examples(lines: str) -> str | None:
    """Help's epilog with example commands, one a line. An indented line continues the line above."""
    commands = re.sub(r"\n +", " ", dedent(lines)).splitlines()
    return "Examples:\n\n" + "\n\n".join(f"  {command}" for command in commands) if commands else None
