# ruff: noqa: E501 - values are in one piece
"""What Spark answers to the calls of tests/sql/functions/templates.yml, and the same asked of DuckDB.

`TZ=UTC python -m tests.support.function_answers [AREA…]` asks Spark for all of them, or for those of some areas,
and writes the files beside the templates: for each template the answers to its calls, in their order,
[type, value], or null for an error.
"""

from __future__ import annotations

import json
import math
import re
import sys
from datetime import date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml
from tests.support.edge_arguments import calls

from lakebackup.errors import UsageProblem
from lakebackup.sql_engine.guard.check import check_select
from lakebackup.sql_engine.guard.place import runs_on_spark
from lakebackup.sql_engine.spark import streamed

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import duckdb
    from pyspark.sql import SparkSession

FOLDER = Path(__file__).parents[1] / "sql" / "functions"
# The SELECTs of which DuckDB's answer is known to differ, by template.
DIFFERENCES = "differences.json"
_NAMES = {
    "VARCHAR": "string",
    "INTEGER": "int",
    "TIMESTAMP WITH TIME ZONE": "timestamp",
    "BLOB": "binary",
    '"NULL"': "void",
}
# DuckDB's answer where it is a time before the year 1 or after 9999, which Python has not: DuckDB gives its text.
BEYOND_PYTHON = "beyond Python"
_AGGREGATE = re.compile(r"\(SELECT (.*?)( FROM VALUES .*)\)", re.DOTALL)
Answer = list[Any] | None


def templates() -> dict[str, list[str]]:
    """The templates of each area."""
    areas: dict[str, str] = yaml.safe_load((FOLDER / "templates.yml").read_text("utf-8"))
    return {area: [line.strip() for line in text.strip().splitlines()] for area, text in areas.items()}


def recorded() -> dict[str, list[Answer]]:
    """Each template that Spark was asked, with the answers to its calls."""
    found: dict[str, list[Answer]] = {}
    for file in sorted(set(FOLDER.glob("*.json")) - {FOLDER / DIFFERENCES}):
        found |= json.loads(file.read_text("utf-8"))
    return found


def spark_answers(spark: SparkSession, calls: Sequence[str]) -> list[Answer]:
    """The type and the value of each call on Spark; None for an error. One SELECT asks for all that give no error."""
    groups: dict[str, list[int]] = {}
    for number, call in enumerate(calls):
        groups.setdefault(_split(call)[1], []).append(number)
    answers: list[Answer] = [None] * len(calls)
    for source, numbers in groups.items():
        answered = _answers(spark, [_split(calls[number])[0] for number in numbers], source)
        for number, answer in zip(numbers, answered, strict=True):
            answers[number] = answer
    return answers


def _split(call: str) -> tuple[str, str]:
    """An expression, and what it is asked of: a call, or what a subquery such as (SELECT avg(x) FROM …) has."""
    found = _AGGREGATE.fullmatch(call)
    return (found[1], found[2]) if found else (call, "")


def _answers(spark: SparkSession, expressions: Sequence[str], source: str) -> list[Answer]:
    columns = ", ".join(f"{expression} AS v{number}" for number, expression in enumerate(expressions))
    try:
        frame = spark.sql(check_select(f"SELECT {columns}{source}", {}).text("spark"))
        if "timestamp" in frame.schema.simpleString():
            values = streamed(frame, columns).read_all().to_pylist()[0]
        else:  # Spark folds constants, and runs no job
            values = frame.collect()[0].asDict(recursive=True)
    except Exception:  # noqa: BLE001 - any failure is the answer
        if len(expressions) == 1:
            return [None]
        half = len(expressions) // 2
        return [
            *_answers(spark, expressions[:half], source),
            *_answers(spark, expressions[half:], source),
        ]
    kinds = [field.dataType.simpleString() for field in frame.schema]
    return [[kind, plain(value)] for kind, value in zip(kinds, values.values(), strict=True)]


def duckdb_rows(
    connection: duckdb.DuckDBPyConnection, select: str
) -> tuple[list[tuple[str, Any]], list[Any]] | str | None:
    """The columns (name and type of DuckDB) and the rows of a SELECT; None for an error, "spark" where DuckDB
    says that Spark can."""
    import duckdb

    try:
        text = check_select(select, {}).text("duckdb")
    except UsageProblem:
        return "spark"
    try:
        rows = connection.execute(text).fetchall()  # bound once, where a relation is bound twice
    except (duckdb.BinderException, duckdb.CatalogException, duckdb.ParserException):
        return "spark"
    except (duckdb.Error, UnicodeDecodeError) as error:
        return "spark" if runs_on_spark(str(error)) else None
    return [(name, kind) for name, kind, *_ in connection.description], rows


def duckdb_answer(connection: duckdb.DuckDBPyConnection, select: str) -> Answer | str:
    """The type and the value of a SELECT of one column on DuckDB; else as `duckdb_rows`."""
    answer = duckdb_rows(connection, select)
    if answer is None or isinstance(answer, str):
        return answer
    ((_, kind),), rows = answer
    value = rows[0][0]
    if spark_name(kind) in ("date", "timestamp") and isinstance(value, str):
        return BEYOND_PYTHON
    return [spark_name(kind), plain(value)]


def same(one: Answer | str, other: Answer | str) -> bool:
    """Whether two answers are of one type and value. The last digit of a DOUBLE may differ.

    A time that Python cannot hold is the same as none: then no answer of Spark could be recorded.
    """
    if BEYOND_PYTHON in (one, other):
        return one is None or other is None
    if one is None or other is None or isinstance(one, str) or isinstance(other, str):
        return one is other
    return _kind(one[0]) == _kind(other[0]) and _equal(one[1], other[1])


def plain(value: Any) -> Any:
    """A value as JSON has it."""
    if value is None or isinstance(value, (bool, int, str)):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)
    if isinstance(value, datetime):
        return value.replace(tzinfo=None).isoformat(" ")
    if isinstance(value, date):
        return value.isoformat()
    if isinstance(value, (bytes, bytearray)):
        return f"0x{value.hex()}"
    if isinstance(value, (Decimal, timedelta)):
        return str(value)
    if isinstance(value, dict):  # a struct's names and a map's keys are no difference
        return [[plain(key), plain(one)] for key, one in value.items()]
    return [plain(one) for one in value]


def spark_name(kind: Any) -> str:
    """Spark's name of a type of DuckDB."""
    if kind.id == "list":
        return f"array<{spark_name(kind.child)}>"
    if kind.id in ("struct", "map"):
        parts = [
            spark_name(one) if kind.id == "map" else f"{name}:{spark_name(one)}"
            for name, one in kind.children
        ]
        return f"{kind.id}<{','.join(parts)}>"
    return _NAMES.get(str(kind), str(kind).lower())


def _kind(name: str) -> str:
    """A type without what is not shown: a DECIMAL's precision says no more of a value than the value does, while
    its scale is the number of digits that stand behind the point."""
    name = re.sub(r"decimal\(\d+", "decimal(", name.lower())
    return re.sub(
        "interval.*", "interval", name.replace("timestamp_ntz", "timestamp").replace("hugeint", "bigint")
    )


def _equal(one: Any, other: Any) -> bool:
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(_equal, one, other))
    if isinstance(one, float) and isinstance(other, float):
        return math.isclose(one, other, rel_tol=4e-15, abs_tol=1e-300)
    return type(one) is type(other) and bool(one == other)


def write(file: Path, answers: Mapping[str, Any]) -> None:
    """A JSON object with a line for each answer."""
    lines = [
        f"{json.dumps(name, ensure_ascii=False)}: {json.dumps(answer, ensure_ascii=False)}"
        for name, answer in answers.items()
    ]
    file.write_text("{\n" + ",\n".join(lines) + "\n}\n", "utf-8")


def spark_answers_of(spark: SparkSession, lines: Sequence[str]) -> dict[str, list[Answer]]:
    """The answers to the calls of each template."""
    called = {line: [call for call, _ in calls(line)] for line in lines}
    single = [line for line in lines if len(called[line]) == 1]
    alone = spark_answers(spark, [called[line][0] for line in single])
    answers = {line: [answer] for line, answer in zip(single, alone, strict=True)}
    return {line: answers.get(line) or spark_answers(spark, called[line]) for line in lines}


def main() -> None:
    """Ask Spark the calls of the areas that the command line names, or of all."""
    from lakebackup_jobs.runtime.session import spark_session

    spark = spark_session(app="function-answers")
    areas = templates()
    for area in sys.argv[1:] or areas:
        write(FOLDER / f"{area}.json", spark_answers_of(spark, areas[area]))


if __name__ == "__main__":
    main()
