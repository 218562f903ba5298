"""Flags that several verbs share, so that they read and mean the same everywhere.

A verb takes a `Flag` through its decorator (see `verb`); what comes after them here is for the signatures of
verbs.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from inspect import Parameter
from pathlib import Path
from textwrap import dedent
from typing import Any, Literal

import typer

from lakebackup.sql_engine import EngineChoice

SETTINGS, KAFKA, SPARK, OUTPUT = "Settings", "Kafka", "Spark", "Output"
COPYING, STORED = "Copying", "Data files"
TIMES = "2026-11-21T14:05Z, '14:05' (today), -2h, '90 min ago', ms since 1970; UTC without a zone."
"""Help on the forms that a time can have."""

CodecName = Literal["null", "deflate", "snappy", "zstandard"]


@dataclass(frozen=True, slots=True)
class Flag:
    """A flag that verbs share; `Call.flags` has it by `name`. `setting`: the setting that it overrides."""

    name: str
    kind: Any
    options: tuple[str, ...]
    shown: Mapping[str, Any]
    setting: str | None

    def but(self, *options: str, **shown: Any) -> Flag:
        """The same flag with other spellings or another help."""
        return replace(self, options=options or self.options, shown={**self.shown, **shown})

    @property
    def parameter(self) -> Parameter:
        """As a parameter that typer reads."""
        shown = typer.Option(False if self.kind is bool else None, *self.options, **self.shown)
        return Parameter(self.name, Parameter.KEYWORD_ONLY, default=shown, annotation=self.kind)

    def arguments(self, value: Any) -> list[str]:
        """The flag as it is typed; nothing when it was not given."""
        if value is True:
            return [self.options[0]]
        given = value if isinstance(value, list) else [value] if value else []
        texts = [str(one.absolute() if isinstance(one, Path) else one) for one in given]
        return [part for text in texts for part in (self.options[0], text)]


def option(
    spelled: str,
    help_: str,
    default: Any = None,
    *,
    panel: str | None = None,
    shown: str | bool | None = None,
    **more: Any,
) -> Any:
    """A flag of a verb by its spellings and, where it has a value, what help calls that: `--until TS|TIME`.

    `default`: its value when it is not given; `...`: it must be. `shown`: that value as help shows it.
    """
    return typer.Option(default, *_spellings(spelled), **{**_shown(spelled, help_, panel, shown), **more})


def switch(spelled: str, help_: str, *, panel: str | None = None) -> Any:
    """A flag of a verb that is set or not."""
    return option(spelled, help_, False, panel=panel)


def argument(metavar: str, help_: str, default: Any = None, *, shown: str | bool | None = None) -> Any:
    """An argument of a verb, by what help calls it; `default` and `shown` as of an option."""
    return typer.Argument(default, **_shown(metavar, help_, None, shown))


def _spellings(spelled: str) -> tuple[str, ...]:
    return tuple(word for word in spelled.split() if word.startswith("-"))


def _shown(spelled: str, help_: str, panel: str | None, default: str | bool | None) -> dict[str, Any]:
    last = spelled.split()[-1]
    shown = {
        "help": help_,
        "rich_help_panel": panel,
        "metavar": None if last.startswith("-") else last,
        "show_default": default,
    }
    return {word: value for word, value in shown.items() if value is not None}


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
    """A shared flag, spelled as in `option`; one without a value is set or not."""
    spellings, shown = _spellings(spelled), _shown(spelled, help_, panel, default)
    named = name or spellings[0].strip("-").replace("-", "_")
    return Flag(named, kind | None if "metavar" in shown else bool, spellings, shown, setting)


def _setting(panel: str, spelled: str, help_: str, kind: Any = str, **more: str) -> Flag:
    """A flag that overrides the setting of its name, or the one that `setting` names."""
    flag = _flag(panel, spelled, help_, kind, **more)
    return flag if flag.setting else replace(flag, setting=flag.name)


CODEC = _setting(
    STORED, "--codec CODEC", "null, deflate, snappy or zstandard.", CodecName, default="zstandard"
)
COMPRESSION_LEVEL = _setting(STORED, "--compression-level N", "Of the codec.", int, default="the codec's")
TARGET_SIZE = _setting(STORED, "--target-size SIZE", "Close a data file at this size.", default="128MiB")
NOTE = _flag(None, "--note TEXT", "Kept with the backup.")
DRY_RUN = _flag(None, "--dry-run", "Show the plan; write nothing.")
EXPLAIN = _flag(None, "--explain", "Print the SQL that decides, with its parameters; change nothing.")
AS_OF = _flag(None, "--as-of TIME", "As the catalog was then; relations as they are: now_…")
BACKUPS_AT = _setting(
    SETTINGS, "--from URI", "Where the backups are kept.", name="from_", setting="destination"
)
KEEP_AT = _setting(
    SETTINGS, "--to URI", "Where to keep it: a folder or s3://bucket/prefix.", setting="destination"
)
CATALOG = _setting(SETTINGS, "--catalog URI", "The catalog, when not in there.")
SOURCE = _setting(SETTINGS, "--source NAME", "The cluster's name in the catalog.", default="its id")
LEASE = _setting(SETTINGS, "--lease-ttl SPAN", "A run silent this long has lost its lease.", default="60s")
CONFIG = _flag(SETTINGS, "--config FILE", "Instead of ./lakebackup.toml.", Path, name="settings_file")
BOOTSTRAP = _flag(KAFKA, "--bootstrap-server --bootstrap-servers HOST:PORT,…", "Brokers.")
KAFKA_CONFIG = _flag(
    KAFKA, "--kafka-config FILE", "Client properties, key=value a line; the place for secrets.", Path
)
KAFKA_PROPERTY = _flag(
    KAFKA, "-X KEY=VALUE", "A librdkafka property; repeatable.", list[str], name="kafka_property"
)
ENGINE = _flag(None, "--engine NAME", "What plans: auto, duckdb or spark.", EngineChoice, default="auto")
REMOTE = _setting(SPARK, "--remote sc://HOST", "A Spark Connect server.")
MASTER = _setting(SPARK, "--master URL", "Spark master.", default="this machine")
SPARK_CONF = _flag(SPARK, "--spark-conf KEY=VALUE", "A Spark property; repeatable.", list[str])
JSON = _flag(OUTPUT, "--json", "JSON lines on standard output.")
CSV = _flag(OUTPUT, "--csv", "CSV with a header line.")
DEBUG = _flag(OUTPUT, "--debug", "Show the traceback of a failure.")

ALL = (
    CODEC, COMPRESSION_LEVEL, TARGET_SIZE, NOTE, DRY_RUN, EXPLAIN, ENGINE, AS_OF,
    BACKUPS_AT, KEEP_AT, CATALOG, SOURCE, LEASE, CONFIG,
    BOOTSTRAP, KAFKA_CONFIG, KAFKA_PROPERTY, REMOTE, MASTER, SPARK_CONF, JSON, CSV, DEBUG,
)  # fmt: skip
"""Every shared flag, in the order in which help shows them, after a verb's own."""

EVERY_VERB = (CONFIG, JSON, DEBUG)
FROM = (BACKUPS_AT, CATALOG)
TO = (KEEP_AT, CATALOG)
DATA_FILES = (CODEC, COMPRESSION_LEVEL, TARGET_SIZE)
KAFKA_CLIENT = (KAFKA_CONFIG, KAFKA_PROPERTY)
KAFKA_SERVERS = (BOOTSTRAP, *KAFKA_CLIENT)
CLUSTER = (MASTER, SPARK_CONF)
SPARK_JOB = (REMOTE, *CLUSTER)
PLAN = (DRY_RUN, EXPLAIN)
ROWS = (AS_OF, *FROM, CSV)

PATTERN = option(
    "--pattern REGEX", "Topics whose whole name matches; repeatable. Internal topics (__…) only come by name."
)
BACKUP_ID = argument("ID", "A backup's id, or as much of its beginning as is unambiguous.", ...)
TopicSettings = Literal["auto", "saved", "suspended"]
TOPIC_SETTINGS = option(
    "--settings",
    "Topic settings at the end: as saved, but no retention that eats what was restored (auto); "
    "as saved; or retention off until you set it (suspended).",
    "auto",
)
ZERO_TIMESTAMPS_AS_ONE = switch(
    "--zero-timestamps-as-one",
    "Write 1 ms for a timestamp of 0, which Kafka's C client would replace by now.",
)


def examples(lines: str) -> str | None:
    """An epilog that shows commands as they are typed, one a line; a line that is indented continues one."""
    commands = re.sub(r"\n +", " ", dedent(lines)).splitlines()
    return "Examples:\n\n" + "\n\n".join(f"  {command}" for command in commands) if commands else None
