"""Filter pushdown for `records('topic')`: the conditions of a SELECT that narrow which files are opened.

The conditions come from the SELECT's syntax tree: the AND-ed comparisons in the WHERE of the query that reads
the relation. The engine applies the whole WHERE again. So a condition that is not understood here costs time,
but loses no rows.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any

from sqlglot import exp, parse_one

from lakebackup.errors import NotFound, Refused, UsageProblem
from lakebackup.rows.base import QUEUES
from lakebackup.rules.suggestions import did_you_mean
from lakebackup.rules.times import format_ts, parse_time
from lakebackup.sql_engine.guard.records import RecordsCall
from lakebackup.store.reader import CatalogReader

_LEAST, _GREATEST = -(2**63), 2**63 - 1
_HEX = re.compile(r"(?:[0-9a-f]{2})*")
_INSTANT = re.compile(r"\d{4}-\d\d-\d\d(?:[ T]\d\d:\d\d(?::\d\d(?:\.\d{1,6})?)?)?(?:Z|[+-]\d\d:\d\d)?")
_DATE = re.compile(r"\d{4}-\d\d-\d\d")
_BACKUP = re.compile(r"\d{8}(?:T\d{0,6}(?:(?<=T\d{6})Z(?:-[0-9a-f]{0,8})?)?)?")
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
#: Columns whose comparisons bound a span of `RecordFilter`, and the name of that span.
_SPANS = {"ts": "ts", "time": "ts", "kafka_offset": "offset", "partition": "partition"}
_MIRROR = {"GT": "LT", "GTE": "LTE", "LT": "GT", "LTE": "GTE", "EQ": "EQ"}


@dataclass(frozen=True, slots=True)
class Span:
    """The integers from `least` to `greatest`, both included; None: no bound."""

    least: int | None = None
    greatest: int | None = None

    def intersection(self, least: int | None, greatest: int | None) -> Span:
        """The intersection with another span."""
        leasts = [bound for bound in (self.least, least) if bound is not None]
        greatests = [bound for bound in (self.greatest, greatest) if bound is not None]
        return Span(max(leasts, default=None), min(greatests, default=None))


@dataclass(frozen=True, slots=True)
class RecordFilter:
    """The conditions that every record of the result meets. `ts` is in ms.

    `keys`: its key is one of these; None: any. `prefix`: its key starts with this. `no_key`: it has no key.
    """

    ts: Span = Span()
    offset: Span = Span()
    partition: Span = Span()
    keys: frozenset[bytes] | None = None
    prefix: bytes = b""
    no_key: bool = False

    def parameters(self) -> dict[str, object]:
        """The parameters of the query record_files that limit it to these conditions."""
        least, greatest = self._keys()
        return {
            "least_ts": self.ts.least,
            "greatest_ts": self.ts.greatest,
            "least_position": self.offset.least,
            "greatest_position": self.offset.greatest,
            "least_region": self.partition.least,
            "greatest_region": self.partition.greatest,
            "least_key": least,
            "greatest_key": greatest,
            "only_null_keys": self.no_key,
        }

    def _keys(self) -> tuple[str | None, str | None]:
        """The least and the greatest key as hex. 'g' sorts after every hex digit."""
        if self.keys is not None:
            keys = sorted(key.hex() for key in self.keys)
            return (keys[0], keys[-1]) if keys else ("g", "")
        return (self.prefix.hex(), f"{self.prefix.hex()}g") if self.prefix else (None, None)


def pushed_filter(select: str, relation: str) -> RecordFilter:
    """The conditions that a SELECT sets for the records of `relation`, which it reads once.

    `select`: checked, in Spark's dialect.
    """
    tree = parse_one(select, dialect="spark")
    (table,) = (table for table in tree.find_all(exp.Table) if table.name == relation)
    query = table.find_ancestor(exp.Select)
    if query is None or not isinstance(table.parent, (exp.From, exp.Join)) or not _plain(query, table):
        return RecordFilter()
    where_clause = query.args.get("where")
    names = {table.alias_or_name.lower()} | (set() if query.args.get("joins") else {""})
    record_filter = RecordFilter()
    for condition in _conjuncts(where_clause.this) if where_clause else ():
        record_filter = _narrowed(record_filter, condition, names)
    return record_filter


def _plain(query: exp.Select, table: exp.Table) -> bool:
    """Whether no join adds rows in which the table's columns are NULL for lack of a match."""
    joins: list[exp.Join] = query.args.get("joins") or []
    sides = {str(join.args.get("side") or "").upper() for join in joins}
    return sides <= ({"", "LEFT"} if isinstance(table.parent, exp.From) else {""})


def _conjuncts(condition: exp.Expr) -> Iterator[exp.Expr]:
    conditions = [condition]
    while conditions:
        part = conditions.pop().unnest()
        if isinstance(part, exp.And):
            conditions += [part.left, part.right]
        else:
            yield part


def _narrowed(record_filter: RecordFilter, condition: exp.Expr, names: set[str]) -> RecordFilter:
    """`record_filter`, narrowed by one condition if that is understood."""
    if condition.args.get("negate") or condition.args.get("symmetric"):  # NOT LIKE, BETWEEN SYMMETRIC
        return record_filter
    operand, kind = condition.this, type(condition).__name__
    if isinstance(condition, (exp.EQ, exp.GT, exp.GTE, exp.LT, exp.LTE)):
        value = condition.expression
        if not isinstance(operand, exp.Column):
            operand, value, kind = value, operand, _MIRROR[kind]
        values = [value]
    elif isinstance(condition, exp.Between):
        values = [condition.args["low"], condition.args["high"]]
    elif isinstance(condition, exp.In) and not condition.args.get("query"):
        values = list(condition.expressions)
    elif isinstance(condition, (exp.Like, exp.StartsWith, exp.Is)):
        values = [condition.expression]
    else:
        return record_filter
    if not isinstance(operand, exp.Column) or operand.table.lower() not in names or not values:
        return record_filter
    column = operand.name.lower()
    if column in _SPANS:
        return _bounded(record_filter, column, kind, values)
    if column in ("key", "key_hex"):
        return _keys(record_filter, column, kind, values)
    return record_filter


def _bounded(record_filter: RecordFilter, column: str, kind: str, values: list[exp.Expr]) -> RecordFilter:
    read = _instant if column == "time" else _number
    numbers = [number for value in values if (number := read(value)) is not None]
    bounds = _bounds(kind, numbers) if len(numbers) == len(values) else None
    if bounds is None:
        return record_filter
    least, greatest = bounds
    if column == "time":
        # The bounds are in microseconds, and a record's time is in whole milliseconds. A record without a
        # time meets no comparison, so the least is at least 0.
        least = max(0, -(-least // 1000)) if least is not None else 0
        greatest = greatest // 1000 if greatest is not None else None
    name = _SPANS[column]
    span: dict[str, Any] = {name: getattr(record_filter, name).intersection(least, greatest)}
    return replace(record_filter, **span)


def _bounds(kind: str, numbers: list[int]) -> tuple[int | None, int | None] | None:
    """The least and the greatest integer that meet a comparison."""
    first, last = numbers[0], numbers[-1]
    return {
        "EQ": (first, first),
        "GT": (first + 1, None) if first < _GREATEST else None,
        "GTE": (first, None),
        "LT": (None, first - 1) if first > _LEAST else None,
        "LTE": (None, first),
        "Between": (first, last),
        "In": (min(numbers), max(numbers)),
    }.get(kind)


def _number(value: exp.Expr) -> int | None:
    if isinstance(value, exp.Neg):
        number = _number(value.this)
        return None if number is None else -number
    if not isinstance(value, exp.Literal) or not value.is_int:
        return None
    number = int(value.this)
    return number if number <= _GREATEST else None


def _instant(value: exp.Expr) -> int | None:
    """Microseconds since 1970 UTC of a literal time, as both engines read it. Without a zone it is UTC."""
    pattern = _INSTANT
    if isinstance(value, exp.Cast):
        kind = value.to.this.name
        if kind not in ("DATE", "TIMESTAMP", "TIMESTAMPTZ"):
            return None
        pattern = _DATE if kind == "DATE" else _INSTANT
        value = value.this
    if not isinstance(value, exp.Literal) or not value.is_string or not pattern.fullmatch(value.this):
        return None
    try:
        moment = datetime.fromisoformat(value.this)
        return (moment.replace(tzinfo=moment.tzinfo or UTC) - _EPOCH) // timedelta(microseconds=1)
    except (ValueError, OverflowError):
        return None


def _keys(record_filter: RecordFilter, column: str, kind: str, values: list[exp.Expr]) -> RecordFilter:
    if kind == "Is":
        # The column key is NULL for a key that is not text, so only key_hex IS NULL means that there is none.
        no_key = column == "key_hex" and isinstance(values[0], exp.Null)
        return replace(record_filter, no_key=record_filter.no_key or no_key)
    texts = [str(value.this) for value in values if isinstance(value, exp.Literal) and value.is_string]
    if len(texts) < len(values):
        return record_filter
    if kind in ("Like", "StartsWith") and column == "key":
        prefix = (re.split("[%_]", texts[0], maxsplit=1)[0] if kind == "Like" else texts[0]).encode()
        return replace(record_filter, prefix=max(record_filter.prefix, prefix, key=len))
    if kind not in ("EQ", "In"):
        return record_filter
    if column == "key_hex":
        keys = {bytes.fromhex(text) for text in texts if _HEX.fullmatch(text)}
    else:
        keys = {text.encode() for text in texts}
    return replace(
        record_filter, keys=frozenset(keys if record_filter.keys is None else keys & record_filter.keys)
    )


@dataclass(frozen=True, slots=True)
class RecordsPlan:
    """What one `records(…)` call reads: a topic, up to a point, and the conditions for its records.

    `to_ts` (ms): later records are left out. `backup_id`: only that backup and its chain are read;
    `after_number`: of these, only files of backups with a greater number. `paths`: only files from the first
    path on and before the second are read; None: no bound.
    """

    call: RecordsCall
    source: str
    scope: str
    to_ts: int | None
    backup_id: str | None
    record_filter: RecordFilter
    after_number: int | None = None
    paths: tuple[str | None, str | None] = (None, None)

    def parameters(self) -> dict[str, object]:
        """The parameters of the query record_files."""
        return {
            "source": self.source,
            "scope": self.scope,
            "to_ts": self.to_ts,
            "backup_id": self.backup_id,
            "after_number": self.after_number,
            "first_path": self.paths[0],
            "end_path": self.paths[1],
            **self.record_filter.parameters(),
        }


def plan_records(reader: CatalogReader, select: str, call: RecordsCall, *, now_ms: int) -> RecordsPlan:
    """Resolve the topic, the source and the point of a `records(…)` call. `select`: checked, for Spark.

    Raises NotFound (no such topic or backup), UsageProblem (several sources, an invalid time), Refused (a
    time after the last backup, a queue).
    """
    source, end_ts, scope = _topic(reader, call.topic)
    to_ts = backup_id = None
    if call.point is not None and _BACKUP.fullmatch(call.point):
        backup_id = reader.resolve_backup(call.point)
    elif call.point is not None:
        to_ts = parse_time(call.point, now_ms)
        if to_ts > end_ts:
            raise Refused(
                f"{format_ts(to_ts)} is after the last backup: {scope} is covered until {format_ts(end_ts)}.",
                hint="Take a backup first, or choose an earlier time.",
            )
    return RecordsPlan(call, source, scope, to_ts, backup_id, pushed_filter(select, call.relation))


def _topic(reader: CatalogReader, name: str) -> tuple[str, int, str]:
    source, _, scope = name.rpartition("/")
    rows = reader.rows("record_topics")
    topics = [row for row in rows if row["source_kind"] != QUEUES]
    matches = [row for row in topics if row["scope"] == scope and source in ("", row["source"])]
    if len(matches) > 1:
        raise UsageProblem(
            f"Topic {scope} is in several sources: {', '.join(row['source'] for row in matches)}.",
            hint=f"Write records('{matches[0]['source']}/{scope}').",
        )
    if not matches:
        # A message can be in several backups of a queue: one after a full repeats earlier messages, and an
        # abandoned history holds its own.
        queue = next((r for r in rows if r["scope"] == scope and source in ("", r["source"])), None)
        if queue:
            raise Refused(
                f"{scope} is a queue of the engine {queue['source']}, whose messages no SELECT can read.",
                hint="`lakebackup restore queue` restores them into Kafka; the views queue_points and "
                "queue_transactions show what is held.",
            )
        raise NotFound(
            f"No restorable backup holds topic {name!r}.",
            hint=did_you_mean(
                scope,
                (row["scope"] for row in topics),
                "`lakebackup sql 'SELECT DISTINCT source, scope FROM restore_points'` lists the topics.",
            ),
        )
    return matches[0]["source"], matches[0]["end_ts"], scope
