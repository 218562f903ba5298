"""Rows of change feeds."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from lakebackup.rows.base import Row


@dataclass(frozen=True, slots=True, kw_only=True)
class LogTask(Row):
    """What a log task is to do, append-only: the last row of a source by `at` counts.

    `settings` is JSON text without secrets: feed, filters, limits of a flush, `endts`. `detail` says why a
    task paused itself.
    """

    source: str
    at: int
    actor: str
    state: Literal["running", "paused", "stopped", "complete"]
    settings: str
    detail: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class LogRegion(Row):
    """How far a region of a change feed was, once a backup had read it: every change up to `resolved_ts`.

    Append-only: of one (source, region) the row with the greatest `number` counts. `closed`: it sends no
    more; what it held is in `successors` from then on, region ids as a JSON list.
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
    """A table of a change feed and the name it has from `from_ts` (a commit ts) on; `drop`: none any more.

    `replaces`: the table's id before it was truncated. `covered_from`: every change of it after this ts is
    in the log; a table that was renamed into the filter is captured only from then on. A database itself
    has the negative of its id as `table_id`, and an empty `name`: the view log_tables does not show it.
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
