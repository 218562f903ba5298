"""Refuses events of Debezium that a log cannot hold: malformed ones, and changes without the whole row. Pure.

Each error names topic, partition and offset, so that a person can look at the message, or skip it.
"""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from lakebackup.errors import Damaged, Refused
from lakebackup_jobs.logs.feeds.unavailable import Placeholder

_OPERATIONS = pa.array(["c", "u", "d", "r", "t", "m"])
# Operations that need no transaction: a snapshot's rows, and truncates, which some connectors report without
# one.
_UNTIED = pa.array(["r", "t"])
# Operations whose events hold a row.
_WITH_ROW = pa.array(["c", "u", "r"])


def check_form(events: pa.Table, origin: str, hint: str) -> None:
    """Raise Damaged with `hint` for a message that is no event, Refused for an event without its transaction.

    `events`: the answer to debezium_json.EVENTS.
    """
    op, row = events["op"], events["after"]
    valid = pc.is_in(op, _OPERATIONS)
    problems = {
        "is no change event of Debezium": op.is_null(),
        "has an operation that Debezium does not have": pc.invert(valid),
        "is without its source": events["store"].is_null(),
        "names no table and no collection": pc.and_(events["name"].is_null(), pc.not_equal(op, "m")),
        "has a row that is no JSON object": pc.and_(
            # MongoDB's connector sends documents as text.
            row.is_valid(),
            pc.invert(pc.starts_with(row, "{")),
        ),
        "has no number within its transaction": pc.and_(
            events["transaction"].is_valid(), events["sub"].is_null()
        ),
    }
    for problem, rows in problems.items():
        if pc.any(rows).as_py():
            raise Damaged(f"{origin} offset {first(events, rows)} {problem}.", hint=hint)
    untied = pc.and_(events["transaction"].is_null(), pc.invert(pc.is_in(op, _UNTIED)))
    if pc.any(untied).as_py():
        raise Refused(
            f"{origin} offset {first(events, untied)} does not name its transaction.",
            hint="Set provide.transaction.metadata=true before the first change, and start a new task.",
        )


def check_rows(events: pa.Table, origin: str, placeholder: Placeholder) -> None:
    """Raise Refused for a change that does not say which row it changes, or what the row became."""
    keyless = pc.and_(events["key"].is_null(), pc.is_in(events["op"], pa.array(["u", "d"])))
    if pc.any(keyless).as_py():
        raise Refused(
            f"{origin} offset {first(events, keyless)} changes a row without a key.",
            hint="Give the table a primary key, name one in message.key.columns, or leave the table out of "
            "the connector (table.exclude.list), and start a new task.",
        )
    empty = pc.and_(events["after"].is_null(), pc.is_in(events["op"], _WITH_ROW))
    if pc.any(empty).as_py():
        raise Refused(
            f"{origin} offset {first(events, empty)} changes a row and does not hold what the row became.",
            hint="MongoDB: set capture.mode=change_streams_update_full. Other databases: remove the "
            "connector's transforms that take away `after`. Then start a new task on a "
            "connector with a new topic.prefix.",
        )
    partial = placeholder.is_in(events["after"])
    if partial:
        raise Refused(
            f"{origin} offset {events['offset'][partial[0]].as_py()} does not hold the whole row: a large "
            "value that did not change is left out.",
            hint="PostgreSQL: ALTER TABLE … REPLICA IDENTITY FULL, and start a new task.",
        )


def check_ends(ends: pa.Table, origin: str) -> None:
    """Raise Damaged for a message that is no begin or end of a transaction, Refused for an end with no time.

    `ends`: the answer to debezium_json.ENDS.
    """
    is_end = pc.equal(ends["status"], "END")
    unknown = pc.invert(pc.fill_null(pc.is_in(ends["status"], pa.array(["BEGIN", "END"])), fill_value=False))
    problems = {
        "is no begin or end of a transaction": pc.or_(unknown, ends["id"].is_null()),
        "ends a transaction without the number of its events": pc.and_(is_end, ends["count"].is_null()),
    }
    for problem, rows in problems.items():
        if pc.any(rows).as_py():
            raise Damaged(
                f"{origin} offset {first(ends, rows)} {problem}.",
                hint="Only the connector may write to its topic of transactions.",
            )
    timeless = pc.and_(is_end, ends["ts"].is_null())
    if pc.any(timeless).as_py():
        raise Refused(
            f"{origin} offset {first(ends, timeless)} ends a transaction and does not say when: the "
            "connector is of a version of Debezium that sends no ts_ms with it.",
            hint="Upgrade the connector, and start a new task on one with a new topic.prefix.",
        )


def first(rows: pa.Table, condition: Any) -> int:
    """The least offset of the rows for which `condition` is true."""
    return int(pc.min(rows["offset"].filter(condition)).as_py())
