"""Rows of change feeds."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from lakebackup.rows.base import Row


@dataclass(frozen=True, slots=True, kw_only=True)
class LogTask(Row):
    """What a log task is to do, append-only: the last row of a source by `at` counts."""

    source: str
    at: int
    actor: str
    state: Literal["running", "paused", "stopped", "complete"]
    settings: str
    detail: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class LogRegion(Row):
    """How far a region of a change feed was, once a backup had read it.

    Of one (source, region) the row with the greatest `number` counts; the others go in time. A `closed`
    region sends no more; its `successors`, region ids as a JSON list, hold its keys from then on.
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
    """A table of a change feed and the name it has from `from_ts` on.

    A table that was renamed into the filter is captured only from `covered_from` on. A database itself has
    the negative of its id as `table_id`, and an empty `name`: the view log_tables does not show it.
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
