"""What a SELECT over `records('topic')` can find, read from its syntax tree before any file is opened.

Only conditions that every wanted record meets are taken: AND-ed comparisons in the WHERE of the SELECT that
reads the relation. The engine applies the whole WHERE again, so that what is not taken costs time, not rows.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from lakebackup.errors import NotFound, Refused, UsageProblem
from lakebackup.rows.base import QUEUES
from lakebackup.rules.suggestions import did_you_mean
from lakebackup.rules.times import format_ts, parse_time

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sqlglot import exp

    from lakebackup.sql_engine.guard.records import RecordsCall
    from lakebackup.store.reader import CatalogReader

_LEAST, _GREATEST = -(2**63), 2**63 - 1
_HEX = re.compile(r"(?:[0-9a-f]{2})*")
_INSTANT = re.compile(r"\d{4}-\d\d-\d\d(?:[ T]\d\d:\d\d(?::\d\d(?:\.\d{1,6})?)?)?(?:Z|[+-]\d\d:\d\d)?")
_DATE = re.compile(r"\d{4}-\d\d-\d\d")
_BACKUP = re.compile(r"\d{8}(?:T\d{0,6}(?:(?<=T\d{6})Z(?:-[0-9a-f]{0,8})?)?)?")
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
#: Columns that bound a span of `Wanted`.
_SPANS = {"ts": "ts", "time": "ts", "kafka_offset": "offset", "partition": "partition"}
_MIRROR = {"GT": "LT", "GTE": "LTE", "LT": "GT", "LTE": "GTE", "EQ": "EQ"}


@dataclass(frozen=True, slots=True)
class Span:
    """Whole numbers from `least` to `greatest`, both in; None: no bound."""

    least: int | None = None
    greatest: int | None = None

    def within(self, least: int | None, greatest: int | None) -> Span:
        """What lies in both."""
        leasts = [bound for bound in (self.least, least) if bound is not None]
        greatests = [bound for bound in (self.greatest, greatest) if bound is not None]
        return Span(max(leasts, default=None), min(greatests, default=None))


@dataclass(frozen=True, slots=True)
class Wanted:
    """What every wanted record meets. `ts` in ms; `keys`: one of these, None: any; `prefix` of the key."""

    ts: Span = Span()
    offset: Span = Span()
    partition: Span = Span()
    keys: frozenset[bytes] | None = None
    prefix: bytes = b""
    no_key: bool = False

    def parameters(self) -> dict[str, object]:
        """The values of the query record_files that narrow it."""
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
        """Hex of the least and the greatest key; 'g' comes after every hex digit."""
        if self.keys is not None:
            keys = sorted(key.hex() for key in self.keys)
            return (keys[0], keys[-1]) if keys else ("g", "")
        return (self.prefix.hex(), f"{self.prefix.hex()}g") if self.prefix else (None, None)


def wanted(select: str, relation: str) -> Wanted:
    """What the SELECT (Spark's dialect, checked) wants of the records in `relation`, which it reads once."""
    from sqlglot import exp, parse_one

    tree = parse_one(select, dialect="spark")
    (table,) = (table for table in tree.find_all(exp.Table) if table.name == relation)
    query = table.find_ancestor(exp.Select)
    if query is None or not isinstance(table.parent, (exp.From, exp.Join)) or not _plain(query, table):
        return Wanted()
    where = query.args.get("where")
    names = {table.alias_or_name.lower()} | (set() if query.args.get("joins") else {""})
    found = Wanted()
    for condition in _conjuncts(where.this) if where else ():
        found = _narrowed(found, condition, names)
    return found


def _plain(query: exp.Select, table: exp.Table) -> bool:
    """Whether a join puts NULLs in the place of the table's rows, or keeps rows that it does not match."""
    from sqlglot import exp

    joins: list[exp.Join] = query.args.get("joins") or []
    sides = {str(join.args.get("side") or "").upper() for join in joins}
    return sides <= ({"", "LEFT"} if isinstance(table.parent, exp.From) else {""})


def _conjuncts(condition: exp.Expr) -> Iterator[exp.Expr]:
    from sqlglot import exp

    standing = [condition]
    while standing:
        part = standing.pop().unnest()
        if isinstance(part, exp.And):
            standing += [part.left, part.right]
        else:
            yield part


def _narrowed(found: Wanted, condition: exp.Expr, names: set[str]) -> Wanted:
    """`found`, narrowed by one condition when it is understood."""
    from sqlglot import exp

    if condition.args.get("negate") or condition.args.get("symmetric"):  # NOT LIKE, BETWEEN SYMMETRIC
        return found
    this, kind = condition.this, type(condition).__name__
    if isinstance(condition, (exp.EQ, exp.GT, exp.GTE, exp.LT, exp.LTE)):
        value = condition.expression
        if not isinstance(this, exp.Column):
            this, value, kind = value, this, _MIRROR[kind]
        values = [value]
    elif isinstance(condition, exp.Between):
        values = [condition.args["low"], condition.args["high"]]
    elif isinstance(condition, exp.In) and not condition.args.get("query"):
        values = list(condition.expressions)
    elif isinstance(condition, (exp.Like, exp.StartsWith, exp.Is)):
        values = [condition.expression]
    else:
        return found
    if not isinstance(this, exp.Column) or this.table.lower() not in names or not values:
        return found
    column = this.name.lower()
    if column in _SPANS:
        return _bounded(found, column, kind, values)
    if column in ("key", "key_hex"):
        return _keys(found, column, kind, values)
    return found


def _bounded(found: Wanted, column: str, kind: str, values: list[exp.Expr]) -> Wanted:
    read = _instant if column == "time" else _number
    numbers = [number for value in values if (number := read(value)) is not None]
    bounds = _bounds(kind, numbers) if len(numbers) == len(values) else None
    if bounds is None:
        return found
    least, greatest = bounds
    if column == "time":
        # In microseconds, of which a record's time has whole thousands; only those with a time are wanted.
        least = max(0, -(-least // 1000)) if least is not None else 0
        greatest = greatest // 1000 if greatest is not None else None
    name = _SPANS[column]
    span: dict[str, Any] = {name: getattr(found, name).within(least, greatest)}
    return replace(found, **span)


def _bounds(kind: str, numbers: list[int]) -> tuple[int | None, int | None] | None:
    """The least and the greatest whole number that a comparison lets through."""
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
    from sqlglot import exp

    if isinstance(value, exp.Neg):
        number = _number(value.this)
        return None if number is None else -number
    if not isinstance(value, exp.Literal) or not value.is_int:
        return None
    number = int(value.this)
    return number if number <= _GREATEST else None


def _instant(value: exp.Expr) -> int | None:
    """Microseconds since 1970 of a time written out, as both engines read it; without a zone it is UTC."""
    from sqlglot import exp

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


def _keys(found: Wanted, column: str, kind: str, values: list[exp.Expr]) -> Wanted:
    from sqlglot import exp

    if kind == "Is":
        # A key that is no text has a NULL in the column key, but it is a key.
        no_key = column == "key_hex" and isinstance(values[0], exp.Null)
        return replace(found, no_key=found.no_key or no_key)
    texts = [str(value.this) for value in values if isinstance(value, exp.Literal) and value.is_string]
    if len(texts) < len(values):
        return found
    if kind in ("Like", "StartsWith") and column == "key":
        prefix = (re.split("[%_]", texts[0], maxsplit=1)[0] if kind == "Like" else texts[0]).encode()
        return replace(found, prefix=max(found.prefix, prefix, key=len))
    if kind not in ("EQ", "In"):
        return found
    if column == "key_hex":
        keys = {bytes.fromhex(text) for text in texts if _HEX.fullmatch(text)}
    else:
        keys = {text.encode() for text in texts}
    return replace(found, keys=frozenset(keys if found.keys is None else keys & found.keys))


@dataclass(frozen=True, slots=True)
class RecordsPlan:
    """One `records(…)` as a value: the topic, up to where, and what is wanted of it.

    `to_ts` (ms): records after it are left out. `backup_id`: only what that backup and its chain hold;
    `after_number`: of that only what later backups than this one added. `paths`: of all that only the files
    from the first path on and before the second; None: no bound.
    """

    call: RecordsCall
    source: str
    scope: str
    to_ts: int | None
    backup_id: str | None
    wanted: Wanted
    after_number: int | None = None
    paths: tuple[str | None, str | None] = (None, None)

    def parameters(self) -> dict[str, object]:
        """The values of the query record_files."""
        return {
            "source": self.source,
            "scope": self.scope,
            "to_ts": self.to_ts,
            "backup_id": self.backup_id,
            "after_number": self.after_number,
            "first_path": self.paths[0],
            "end_path": self.paths[1],
            **self.wanted.parameters(),
        }


def plan_records(reader: CatalogReader, select: str, call: RecordsCall, *, now_ms: int) -> RecordsPlan:
    """Which topic of which source a call means, and which point. `select`: the checked text for Spark.

    Raises NotFound (no such topic or backup), UsageProblem (several sources, a time that is none), Refused (a
    time after the last backup).
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
    return RecordsPlan(call, source, scope, to_ts, backup_id, wanted(select, call.relation))


def _topic(reader: CatalogReader, name: str) -> tuple[str, int, str]:
    source, _, scope = name.rpartition("/")
    every = reader.rows("record_topics")
    known = [row for row in every if row["source_kind"] != QUEUES]
    found = [row for row in known if row["scope"] == scope and source in ("", row["source"])]
    if len(found) > 1:
        raise UsageProblem(
            f"Topic {scope} is in several sources: {', '.join(row['source'] for row in found)}.",
            hint=f"Write records('{found[0]['source']}/{scope}').",
        )
    if not found:
        # A backup after a full has messages of before it again, and an abandoned history has its own.
        queue = next((r for r in every if r["scope"] == scope and source in ("", r["source"])), None)
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
                (row["scope"] for row in known),
                "`lakebackup sql 'SELECT DISTINCT source, scope FROM restore_points'` lists the topics.",
            ),
        )
    return found[0]["source"], found[0]["end_ts"], scope
