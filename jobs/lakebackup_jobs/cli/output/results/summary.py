"""Prints a command's result as sentences and a table."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import Any, TextIO, cast

from lakebackup_jobs.lifecycle.progress import display, print_result
from lakebackup_jobs.runtime.terminal_table import Screen, table
from lakebackup_jobs.runtime.terminal_text import visible

_BACKUPS, _RESTORES, _LOGS, _UPKEEP, _POLICIES, _CATALOG = (
    f"{__package__}.{name}" for name in ("backups", "restores", "logs", "upkeep", "policies", "catalog")
)
#: Command -> the function that summarizes its result, as (module, name).
_FUNCTIONS = {
    "backup topics": (_BACKUPS, "topics"),
    "backup snapshot": (_BACKUPS, "snapshot"),
    "backup queue": (_BACKUPS, "queue"),
    "archive import": (_BACKUPS, "archive"),
    "archive export": (_RESTORES, "archive_export"),
    "archive restore": (_RESTORES, "archive"),
    "restore topics": (_RESTORES, "topics"),
    "restore groups": (_RESTORES, "groups"),
    "restore snapshot": (_RESTORES, "snapshot"),
    "restore queue": (_RESTORES, "queue"),
    "restore point": (_LOGS, "restore"),
    "log restore": (_LOGS, "restore"),
    "log merge": (_LOGS, "restore"),
    "log run": (_LOGS, "capture"),
    "log snapshot": (_LOGS, "snapshot"),
    "log compact": (_LOGS, "compact"),
    "log truncate": (_LOGS, "truncate"),
    "verify": (_UPKEEP, "verify"),
    "drill": (_UPKEEP, "drill"),
    "prune": (_UPKEEP, "prune"),
    "merge": (_UPKEEP, "merge"),
    "compact": (_UPKEEP, "compact"),
    "key test": (_UPKEEP, "tested_keys"),
    "key rotate": (_UPKEEP, "rotated_keys"),
    "due": (_POLICIES, "due"),
    "policy set": (_POLICIES, "policy"),
    "policy remove": (_POLICIES, "removed_policy"),
    "hold": (_POLICIES, "hold"),
    "approve": (_POLICIES, "approve"),
    "notify": (_POLICIES, "notify"),
    "catalog init": (_CATALOG, "init"),
    "catalog break-lease": (_CATALOG, "broken_lease"),
    "catalog optimize": (_CATALOG, "optimize"),
    "catalog rebuild": (_CATALOG, "rebuild"),
    "catalog export": (_CATALOG, "export"),
    "catalog import": (_CATALOG, "imported"),
    "catalog import-manifest": (_CATALOG, "imported_manifest"),
}


@dataclass(frozen=True, slots=True)
class Table:
    """Rows under headers. `columns`: key of the rows -> header.

    A column without any value is left out, unless `every_column` is set.
    """

    rows: Sequence[Mapping[str, Any]]
    columns: Mapping[str, str]
    every_column: bool = False

    def lines(self, screen: Screen | None) -> list[str]:
        """The lines of the table, or none when it has no rows."""
        now_ms = time.time_ns() // 1_000_000 if screen and screen.width is not None else None
        keys = [
            key
            for key in self.columns
            if self.every_column or any(_has_value(row.get(key)) for row in self.rows)
        ]
        if not keys:
            return []
        texts = [[cell_text(key, row.get(key), now_ms) for key in keys] for row in self.rows]
        numbers = [
            not key.endswith(("_ts", "_at"))
            and all(isinstance(row.get(key), int | float | None) for row in self.rows)
            for key in keys
        ]
        return list(table([self.columns[key] for key in keys], texts, numbers=numbers, screen=screen))


@dataclass(frozen=True, slots=True)
class Summary:
    """The text of a result: sentences, one a line, then a table, then lines below it."""

    sentences: Sequence[str]
    table: Table | None = None
    closing: Sequence[str] = ()


def cell_text(key: str, value: Any, now_ms: int | None = None) -> str:
    """The text of a value in a table. Numbers have separators; `display` formats sizes and times."""
    if isinstance(value, int) and not isinstance(value, bool) and display(key, value, now_ms) == str(value):
        return f"{value:,}"
    return display(key, value, now_ms)


def print_summary(
    values: Mapping[str, Any],
    output: TextIO,
    screen: Screen | None = None,
    *,
    command: str,
    wide: bool = False,
) -> None:
    """Print the result of a command, such as `backup topics`. `wide`: all fields instead of the table."""
    function = _FUNCTIONS.get(command)
    if function is None:
        print_result(values, output, screen)
        return
    module, name = function
    summarize = cast("Callable[[Mapping[str, Any]], Summary]", getattr(import_module(module), name))
    summary = summarize(values)
    output.writelines(f"{visible(line)}\n" for line in summary.sentences)
    if wide:
        print_result(values, output, screen)
        return
    if summary.table:
        output.writelines(summary.table.lines(screen))
    output.writelines(f"{visible(line)}\n" for line in summary.closing)


def _has_value(value: Any) -> bool:
    return value not in (None, "", 0, False) and value != [] and value != ()
