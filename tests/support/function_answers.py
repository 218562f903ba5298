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

if TYPE_CHECKING:
    import duckdb
    from pyspark.sql import SparkSession

FOLDER = Path(__file__).parents[1] / "sql" / "functions"
_NAMES = {
    "VARCHAR": "string",
    "INTEGER": "int",
    "TIMESTAMP WITH TIME ZONE": "timestamp",
    "BLOB": "binary",
    '"NULL"': "void",
}
Answer = list[Any] | None


def templates() -> dict[str, list[str]]:
    """The templates of each area."""
    areas: dict[str, str] = yaml.safe_load((FOLDER / "templates.yml").read_text("utf-8"))
    return {area: [line.strip() for line in text.strip().splitlines()] for area, text in areas.items()}


def recorded() -> dict[str, list[Answer]]:
    """Each template that Spark was asked, with the answers to its calls."""
    found: dict[str, list[Answer]] = {}
    for file in sorted(FOLDER.glob("*.json")):
        found |= json.loads(file.read_text("utf-8"))
    return found


def spark_answer(spark: SparkSession, call: str) -> Answer:
    """The type and the value of a call on Spark; None for an error."""
    try:
        frame = spark.sql(check_select(f"SELECT {call} AS v", {}).text("spark"))
        (row,) = frame.collect()  # Spark folds a constant, and runs no job
    except Exception:  # noqa: BLE001 - any failure is the answer
        return None
    return [frame.schema[0].dataType.simpleString(), plain(row.asDict(recursive=True)["v"])]


def duckdb_answer(connection: duckdb.DuckDBPyConnection, select: str) -> Answer | str:
    """The type and the value of a SELECT of one column on DuckDB; None for an error, "spark" where it says
    that Spark can."""
    import duckdb

    try:
        text = check_select(select, {}).text("duckdb")
    except UsageProblem:
        return "spark"
    try:
        rows = connection.sql(text)
        kind = rows.types[0]
        values = rows.fetchall()
    except (duckdb.BinderException, duckdb.CatalogException, duckdb.ParserException):
        return "spark"
    except (duckdb.Error, UnicodeDecodeError) as error:
        return "spark" if "runs on Spark only" in str(error) else None
    return [_spark_name(kind), plain(values[0][0])]


def same(one: Answer | str, other: Answer | str) -> bool:
    """Whether two answers are of one type and value. The last digit of a DOUBLE may differ."""
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


def _spark_name(kind: Any) -> str:
    if kind.id == "list":
        return f"array<{_spark_name(kind.child)}>"
    if kind.id in ("struct", "map"):
        parts = [
            _spark_name(one) if kind.id == "map" else f"{name}:{_spark_name(one)}"
            for name, one in kind.children
        ]
        return f"{kind.id}<{','.join(parts)}>"
    return _NAMES.get(str(kind), str(kind).lower())


def _kind(name: str) -> str:
    return re.sub(
        "interval.*", "interval", name.replace("timestamp_ntz", "timestamp").replace("hugeint", "bigint")
    ).lower()


def _equal(one: Any, other: Any) -> bool:
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(_equal, one, other))
    if isinstance(one, float) and isinstance(other, float):
        return math.isclose(one, other, rel_tol=4e-15, abs_tol=1e-300)
    return type(one) is type(other) and bool(one == other)


def write(area: str, answers: dict[str, list[Answer]]) -> None:
    """A line for each template."""
    lines = [
        f"{json.dumps(name)}: {json.dumps(given, ensure_ascii=False)}" for name, given in answers.items()
    ]
    (FOLDER / f"{area}.json").write_text("{\n" + ",\n".join(lines) + "\n}\n", "utf-8")


def main() -> None:
    """Ask Spark the calls of the areas that the command line names, or of all."""
    from lakebackup_jobs.runtime.session import spark_session

    spark = spark_session(app="function-answers")
    areas = templates()
    for area in sys.argv[1:] or areas:
        write(area, {line: [spark_answer(spark, call) for call, _ in calls(line)] for line in areas[area]})


if __name__ == "__main__":
    main()
