"""A SELECT of records that a restore brings instead of the records that a topic held.

Which topic it stands for, which columns it must return, and whether it keeps the order of its records. Pure.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from lakebackup.errors import UsageProblem
from lakebackup.sql_engine.guard.records import is_call

if TYPE_CHECKING:
    from collections.abc import Mapping

    from sqlglot import exp

    from lakebackup.plan.records import RecordsPlan
    from lakebackup.plan.topics.request import RestoreRequest

_WHOLE = frozenset({"tinyint", "smallint", "int", "bigint"})
_BYTES = frozenset({"string", "binary", "void"})
#: Column -> Spark's types that it may have. kafka_offset only says in which order the records are.
COLUMNS: Mapping[str, frozenset[str]] = {
    "partition": _WHOLE,
    "key": _BYTES,
    "value": _BYTES,
    "headers": frozenset({"string", "void"}),
    "ts": _WHOLE | {"timestamp", "void"},
    "kafka_offset": _WHOLE,
}
_NEEDED = ("partition", "key", "value")
_HINT = (
    "It returns partition, key and value, and may return headers, ts and kafka_offset; give others no place, "
    "or a name of these with AS."
)
Order = Literal["source", "query", "kafka_offset", "unknown"]


def require_columns(found: Mapping[str, str], *, by_key: bool) -> None:
    """Refuse a SELECT whose columns (name -> Spark's type) cannot be records.

    `by_key`: each record goes where its key belongs, so that no partition is needed. Raises UsageProblem.
    """
    names = [name.lower() for name in found]
    twice = sorted({name for name in names if names.count(name) > 1})
    unknown = [name for name in names if name not in COLUMNS]
    needed = [name for name in _NEEDED if name not in names and not (by_key and name == "partition")]
    if twice:
        raise UsageProblem(f"--select-records returns {', '.join(twice)} more than once.", hint=_HINT)
    if unknown:
        raise UsageProblem(f"--select-records returns {', '.join(unknown)}, which no record has.", hint=_HINT)
    if needed:
        hint = "Write CAST(NULL AS STRING) AS key for records without a key." if "key" in needed else _HINT
        if needed == ["partition"]:
            hint = (
                "Add partition to the SELECT, or give --repartition: each record goes where its key belongs."
            )
        raise UsageProblem(f"--select-records does not return {', '.join(needed)}.", hint=hint)
    for name, kind in found.items():
        allowed = COLUMNS[name.lower()]
        if kind not in allowed:
            raise UsageProblem(
                f"--select-records returns {name} as {kind.upper()}.",
                hint=f"Use CAST: {name} is {' or '.join(sorted(t.upper() for t in allowed - {'void'}))}.",
            )


def order_of(sql: str) -> Order:
    """What orders the records of one partition in the result of a checked SELECT.

    `source`: each row is of one record, as the topic held them; `query`: its ORDER BY. `kafka_offset`: that
    column; `unknown`: nothing.
    """
    tree = _parse(sql)
    if tree.args.get("order"):
        return "query"
    if _by_row(tree):
        return "source"
    return "kafka_offset" if "kafka_offset" in [name.lower() for name in tree.named_selects] else "unknown"


def counting(sql: str, scope: str) -> str:
    """A SELECT of how many records each partition of the topic that `sql` stands for holds (`held`), and how
    many of them `sql` leaves out (`left_out`, NULL where it does not take one record after another)."""
    from sqlglot import exp

    tree = _parse(sql)
    table = next(t for t in tree.find_all(exp.Table) if is_call(t) and _topic(t) == scope)
    left_out: exp.Expr = exp.cast(exp.Null(), "BIGINT")
    if _by_row(tree):
        where = tree.args.get("where")
        kept = where.this if where else exp.true()
        case = exp.Case(
            ifs=[exp.If(this=kept.copy(), true=exp.Literal.number(0))], default=exp.Literal.number(1)
        )
        left_out = exp.Sum(this=case)
    counted = exp.select("partition", "count(*) AS held", exp.alias_(left_out, "left_out"))
    return counted.from_(table.copy()).group_by("partition").sql(dialect="spark")


def stands_for(request: RestoreRequest, plans: list[RecordsPlan]) -> RecordsPlan:
    """The records(…) whose topic is restored. Raises UsageProblem."""
    conflicting = {
        "--pattern": request.patterns, "--to-time": request.to_ts, "--from-time": request.from_ts,
        "--backup": request.backup, "--select": request.select, "--partial": request.partial,
        "--continue": request.continued, "--group-pattern": request.groups, "--save-plan": request.save_plan,
    }  # fmt: skip
    given = [
        flag
        for flag, value in conflicting.items()
        if value is not None and value is not False and value != ()
    ]
    if given:
        raise UsageProblem(
            f"--select-records and {', '.join(given)} exclude each other.",
            hint="The SELECT says which records: records('orders', '2026-11-21T14:05Z') WHERE …",
        )
    if not plans:
        raise UsageProblem("--select-records reads no records.", hint="Read FROM records('orders').")
    found = {(plan.source, plan.scope): plan for plan in reversed(plans)}
    wanted = [plan for plan in found.values() if not request.topics or (plan.scope,) == request.topics]
    if len(wanted) != 1:
        raise UsageProblem(
            f"--select-records reads {', '.join(sorted(scope for _, scope in found))}.",
            hint="Name as TOPIC the one of them whose settings and partitions the result gets.",
        )
    return wanted[0]


def _parse(sql: str) -> exp.Query:
    from sqlglot import exp, parse_one

    tree = parse_one(sql, dialect="spark")
    if not isinstance(tree, exp.Query):
        raise UsageProblem("--select-records is no SELECT.")
    return tree


def _topic(table: exp.Table) -> str:
    name: str = table.this.expressions[0].name
    return name.rpartition("/")[2]


def _by_row(tree: exp.Query) -> bool:
    """Whether it takes one record after another: a projection and a WHERE of one records(…)."""
    from sqlglot import exp

    parts = ("group", "having", "order", "limit", "offset", "distinct")
    return (
        isinstance(tree, exp.Select)
        and not any(tree.args.get(part) for part in parts)
        and len(list(tree.find_all(exp.Query))) == 1
        and len(list(tree.find_all(exp.Table))) == 1
        and not tree.find(exp.AggFunc, exp.Window)
    )
