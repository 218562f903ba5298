"""Rows of change feeds."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from lakebackup.rows.base import Row


@dataclass(frozen=True, slots=True, kw_only=True)
class LogTask(Row):
    """The state and settings of a log task, append-only. Of a source's rows, the last one by `at` counts."""

    source: str
    at: int
    actor: str
    state: Literal["running", "paused", "stopped", "complete"]
    settings: str
    detail: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class LogRegion(Row):
    """The progress of one region of a change feed at the end of a backup.

    Of the rows of one (source, region), the one with the greatest `number` counts. The others are deleted in
    time. A `closed` region sends no more events; its `successors`, region ids in a JSON list, hold its keys
    from then on.
    """

    backup_id: str
    number: int
    source: str
    region: str
    store: str
    resolved_ts: int
    closed: bool = False
    successors: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class LogTable(Row):
    """A table of a change feed, and its name from `from_ts` on.

    A table whose new name matches the filter is captured only from `covered_from` on. A database has a row
    with minus its id as `table_id` and an empty `name`; the view log_tables does not show it. `replaces` is
    the id of the table in whose place a truncation put this one.
    """

    backup_id: str
    source: str
    table_id: int
    db: str
    name: str
    from_ts: int
    action: Literal["create", "rename", "truncate", "drop"]
    replaces: int | None = None
    covered_from: int
