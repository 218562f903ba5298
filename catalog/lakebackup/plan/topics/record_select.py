"""Checks a SELECT whose result a restore writes in place of the records that a topic held.

Finds which topic it replaces, which columns it must return, and whether it keeps the order of records. Pure.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from sqlglot import exp, parse_one

from lakebackup.errors import UsageProblem
from lakebackup.sql_engine.guard.records import is_call

_INTEGERS = frozenset({"tinyint", "smallint", "int", "bigint"})
_BYTES = frozenset({"string", "binary", "void"})
#: Column -> the Spark types that it may have. kafka_offset only gives the order of the records.
COLUMNS: Mapping[str, frozenset[str]] = {
    "partition": _INTEGERS,
    "key": _BYTES,
    "value": _BYTES,
    "headers": frozenset({"string", "void"}),
    "ts": _INTEGERS | {"timestamp", "void"},
    "kafka_offset": _INTEGERS,
}
_NEEDED = ("partition", "key", "value")
_HINT = (
    "It returns partition, key and value, and may return headers, ts and kafka_offset; give others no place, "
    "or a name of these with AS."
)
Order = Literal["source", "query", "kafka_offset", "unknown"]


def require_columns(column_types: Mapping[str, str], *, by_key: bool) -> None:
    """Raise UsageProblem for a SELECT whose columns `column_types` (name -> Spark's type) are not those of
    records.

    `by_key`: each record goes to the partition of its key, so the column partition is not needed.
    """
    names = [name.lower() for name in column_types]
    duplicates = sorted({name for name in names if names.count(name) > 1})
    unknown = [name for name in names if name not in COLUMNS]
    missing = [name for name in _NEEDED if name not in names and not (by_key and name == "partition")]
    if duplicates:
        raise UsageProblem(f"--select-records returns {', '.join(duplicates)} more than once.", hint=_HINT)
    if unknown:
        raise UsageProblem(f"--select-records returns {', '.join(unknown)}, which no record has.", hint=_HINT)
    if missing:
        hint = "Write CAST(NULL AS STRING) AS key for records without a key." if "key" in missing else _HINT
        if missing == ["partition"]:
            hint = (
                "Add partition to the SELECT, or give --repartition: each record goes where its key belongs."
            )
        raise UsageProblem(f"--select-records does not return {', '.join(missing)}.", hint=hint)
    for name, kind in column_types.items():
        allowed = COLUMNS[name.lower()]
        if kind not in allowed:
            raise UsageProblem(
                f"--select-records returns {name} as {kind.upper()}.",
                hint=f"Use CAST: {name} is {' or '.join(sorted(t.upper() for t in allowed - {'void'}))}.",
            )


def order_of(sql: str) -> Order:
    """What orders the records of one partition in the result of a checked SELECT.

    `source`: each row is one record of the topic, in the topic's order. `query`: the SELECT has an ORDER BY.
    `kafka_offset`: the SELECT returns that column. `unknown`: nothing.
    """
    tree = _parse(sql)
    if tree.args.get("order"):
        return "query"
    if _by_row(tree):
        return "source"
    return "kafka_offset" if "kafka_offset" in [name.lower() for name in tree.named_selects] else "unknown"


def counting(sql: str, scope: str) -> str:
    """A SELECT that counts the records of each partition of a topic, for comparison with the result of `sql`.

    `scope`: the topic that `sql` replaces. Columns: `held` is the number of records in the partition,
    `left_out` the number of these that `sql` leaves out; NULL unless `sql` only filters and projects records.
    """
    tree = _parse(sql)
    table = next(t for t in tree.find_all(exp.Table) if is_call(t) and _topic(t) == scope)
    skipped_records: exp.Expr = exp.cast(exp.Null(), "BIGINT")
    if _by_row(tree):
        where_clause = tree.args.get("where")
        condition = where_clause.this if where_clause else exp.true()
        case = exp.Case(
            ifs=[exp.If(this=condition.copy(), true=exp.Literal.number(0))], default=exp.Literal.number(1)
        )
        skipped_records = exp.Sum(this=case)
    query = exp.select("partition", "count(*) AS held", exp.alias_(skipped_records, "left_out"))
    return query.from_(table.copy()).group_by("partition").sql(dialect="spark")


def _parse(sql: str) -> exp.Query:
    tree = parse_one(sql, dialect="spark")
    if not isinstance(tree, exp.Query):
        raise UsageProblem("--select-records is no SELECT.")
    return tree


def _topic(table: exp.Table) -> str:
    name: str = table.this.expressions[0].name
    return name.rpartition("/")[2]


def _by_row(tree: exp.Query) -> bool:
    """Whether it only filters (WHERE) and projects the records of one records(…) call."""
    parts = ("group", "having", "order", "limit", "offset", "distinct")
    return (
        isinstance(tree, exp.Select)
        and not any(tree.args.get(part) for part in parts)
        and len(list(tree.find_all(exp.Query))) == 1
        and len(list(tree.find_all(exp.Table))) == 1
        and not tree.find(exp.AggFunc, exp.Window)
    )
