"""Spark's answers to the calls in tests/sql/functions/templates.yml, and DuckDB's answers to the same calls.

`TZ=UTC python -m tests.support.function_answers [AREA…]` runs all calls on Spark, or those of some areas, and
writes the files beside the templates: for each template the answers to its calls, in their order, as
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
# The file of the SELECTs whose answers by DuckDB are known to differ, by template.
DIFFERENCES = "differences.json"
_NAMES = {
    "VARCHAR": "string",
    "INTEGER": "int",
    "TIMESTAMP WITH TIME ZONE": "timestamp",
    "BLOB": "binary",
    '"NULL"': "void",
}
# DuckDB's answer if it is a time before the year 1 or after 9999: Python has no such time, so DuckDB returns
# text.
BEYOND_PYTHON = "beyond Python"
_AGGREGATE = re.compile(r"\(SELECT (.*?)( FROM VALUES .*)\)", re.DOTALL)
Answer = list[Any] | None


def templates() -> dict[str, list[str]]:
    """The templates of each area."""
    areas: dict[str, str] = yaml.safe_load((FOLDER / "templates.yml").read_text("utf-8"))
    return {area: [line.strip() for line in text.strip().splitlines()] for area, text in areas.items()}


def recorded() -> dict[str, list[Answer]]:
    """The recorded answers of Spark to the calls of each template."""
    answers: dict[str, list[Answer]] = {}
    for file in sorted(set(FOLDER.glob("*.json")) - {FOLDER / DIFFERENCES}):
        answers |= json.loads(file.read_text("utf-8"))
    return answers


def spark_answers(spark: SparkSession, calls: Sequence[str]) -> list[Answer]:
    """The type and the value of each call on Spark; None for an error. One SELECT runs all calls that
    succeed."""
    groups: dict[str, list[int]] = {}
    for number, call in enumerate(calls):
        groups.setdefault(_split(call)[1], []).append(number)
    answers: list[Answer] = [None] * len(calls)
    for source, numbers in groups.items():
        group_answers = _answers(spark, [_split(calls[number])[0] for number in numbers], source)
        for number, answer in zip(numbers, group_answers, strict=True):
            answers[number] = answer
    return answers


def _split(call: str) -> tuple[str, str]:
    """A call's expression and its FROM clause: a subquery such as (SELECT avg(x) FROM …) has one, else
    empty."""
    match = _AGGREGATE.fullmatch(call)
    return (match[1], match[2]) if match else (call, "")


def _answers(spark: SparkSession, expressions: Sequence[str], source: str) -> list[Answer]:
    columns = ", ".join(f"{expression} AS v{number}" for number, expression in enumerate(expressions))
    try:
        frame = spark.sql(check_select(f"SELECT {columns}{source}", {}).text("spark"))
        if "timestamp" in frame.schema.simpleString():
            values = streamed(frame, columns).read_all().to_pylist()[0]
        else:  # Spark folds constants and runs no job
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
    """The columns (name and type of DuckDB) and the rows of a SELECT; None for an error, "spark" if DuckDB
    says that Spark can run it."""
    import duckdb

    try:
        text = check_select(select, {}).text("duckdb")
    except UsageProblem:
        return "spark"
    try:
        rows = connection.execute(
            text
        ).fetchall()  # execute binds the statement once; a relation would bind it twice
    except (duckdb.BinderException, duckdb.CatalogException, duckdb.ParserException):
        return "spark"
    except (duckdb.Error, UnicodeDecodeError) as error:
        return "spark" if runs_on_spark(str(error)) else None
    return [(name, kind) for name, kind, *_ in connection.description], rows


def duckdb_answer(connection: duckdb.DuckDBPyConnection, select: str) -> Answer | str:
    """The type and the value of a SELECT of one column on DuckDB; otherwise the result of `duckdb_rows`."""
    answer = duckdb_rows(connection, select)
    if answer is None or isinstance(answer, str):
        return answer
    ((_, kind),), rows = answer
    value = rows[0][0]
    if spark_name(kind) in ("date", "timestamp") and isinstance(value, str):
        return BEYOND_PYTHON
    return [spark_name(kind), plain(value)]


def equal_answers(first: Answer | str, second: Answer | str) -> bool:
    """Whether two answers have the same type and value. The last digit of a DOUBLE may differ.

    A time that Python cannot hold equals None: Spark's answer could not be recorded in this case.
    """
    if BEYOND_PYTHON in (first, second):
        return first is None or second is None
    if first is None or second is None or isinstance(first, str) or isinstance(second, str):
        return first is second
    return _kind(first[0]) == _kind(second[0]) and _equal(first[1], second[1])


def plain(value: Any) -> Any:
    """A value in the form in which JSON stores it."""
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
    if isinstance(value, dict):  # Spark and DuckDB return the names of structs and the keys of maps alike
        return [[plain(key), plain(field_value)] for key, field_value in value.items()]
    return [plain(element) for element in value]


def spark_name(kind: Any) -> str:
    """Spark's name of a type of DuckDB."""
    if kind.id == "list":
        return f"array<{spark_name(kind.child)}>"
    if kind.id in ("struct", "map"):
        parts = [
            spark_name(child) if kind.id == "map" else f"{name}:{spark_name(child)}"
            for name, child in kind.children
        ]
        return f"{kind.id}<{','.join(parts)}>"
    return _NAMES.get(str(kind), str(kind).lower())


def _kind(name: str) -> str:
    """A type without what a value does not show: a DECIMAL's precision is left out, its scale (the number of
    digits after the point) is kept."""
    name = re.sub(r"decimal\(\d+", "decimal(", name.lower())
    return re.sub(
        "interval.*", "interval", name.replace("timestamp_ntz", "timestamp").replace("hugeint", "bigint")
    )


def _equal(first: Any, second: Any) -> bool:
    if isinstance(first, list) and isinstance(second, list):
        return len(first) == len(second) and all(map(_equal, first, second))
    if isinstance(first, float) and isinstance(second, float):
        return math.isclose(first, second, rel_tol=4e-15, abs_tol=1e-300)
    return type(first) is type(second) and bool(first == second)


def write(file: Path, answers: Mapping[str, Any]) -> None:
    """Write a JSON object with a line for each answer."""
    lines = [
        f"{json.dumps(name, ensure_ascii=False)}: {json.dumps(answer, ensure_ascii=False)}"
        for name, answer in answers.items()
    ]
    file.write_text("{\n" + ",\n".join(lines) + "\n}\n", "utf-8")


def spark_answers_of(spark: SparkSession, lines: Sequence[str]) -> dict[str, list[Answer]]:
    """Spark's answers to the calls of each template."""
    calls_by_template = {line: [call for call, _ in calls(line)] for line in lines}
    single = [line for line in lines if len(calls_by_template[line]) == 1]
    single_answers = spark_answers(spark, [calls_by_template[line][0] for line in single])
    answers = {line: [answer] for line, answer in zip(single, single_answers, strict=True)}
    return {line: answers.get(line) or spark_answers(spark, calls_by_template[line]) for line in lines}


def main() -> None:
    """Run the calls of the areas that the command line names, or of all areas, on Spark."""
    from lakebackup_jobs.runtime.session import spark_session

    spark = spark_session(app="function-answers")
    areas = templates()
    for area in sys.argv[1:] or areas:
        write(FOLDER / f"{area}.json", spark_answers_of(spark, areas[area]))


if __name__ == "__main__":
    main()
