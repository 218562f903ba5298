"""Spark's answers to the SELECTs of tests/sql/selects/selects.yml, and DuckDB's answers to them.

`TZ=UTC python -m tests.support.select_answers` runs all of them on Spark and writes answers.json beside them:
the columns and the rows of each SELECT, or null for an error.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml
from tests.support.function_answers import duckdb_rows, equal_answers, plain, spark_name, write

from lakebackup.sql_engine.guard.check import check_select
from lakebackup.sql_engine.spark import streamed

if TYPE_CHECKING:
    import duckdb
    from pyspark.sql import SparkSession

FOLDER = Path(__file__).parents[1] / "sql" / "selects"
# The columns as [name, type], and the rows; None for an error.
Answer = tuple[list[list[str]], list[list[Any]]] | None


def selects() -> dict[str, str]:
    """Each SELECT as a person writes it -> the SELECT with the tables that it reads."""
    page: dict[str, str] = yaml.safe_load((FOLDER / "selects.yml").read_text("utf-8"))
    return {select: _with_tables(page["tables"].strip(), select) for select in page["selects"].splitlines()}


def _with_tables(tables: str, select: str) -> str:
    for start in ("WITH RECURSIVE ", "WITH "):
        if select.startswith(start):
            return f"{start}{tables}, {select.removeprefix(start)}"
    return f"WITH {tables} {select}"


def recorded() -> dict[str, Answer]:
    """Spark's recorded answer to each SELECT."""
    answers: dict[str, Answer] = json.loads((FOLDER / "answers.json").read_text("utf-8"))
    return answers


def spark_answer(spark: SparkSession, select: str) -> Answer:
    """The columns and rows of a SELECT on Spark; None for an error."""
    try:
        frame = spark.sql(check_select(select, {}).text("spark"))
        rows = streamed(frame, select).read_all()
        values = [column.to_pylist() for column in rows.columns]
    except Exception:  # noqa: BLE001 - any failure is the answer
        return None
    columns = [[field.name, field.dataType.simpleString()] for field in frame.schema]
    return columns, [plain(list(row)) for row in zip(*values, strict=True)]


def duckdb_answer(connection: duckdb.DuckDBPyConnection, select: str) -> Answer | str:
    """The columns and rows of a SELECT on DuckDB; None for an error, "spark" if DuckDB says that Spark
    can."""
    answer = duckdb_rows(connection, select)
    if answer is None or isinstance(answer, str):
        return answer
    columns, rows = answer
    return [[name, spark_name(kind)] for name, kind in columns], [plain(list(row)) for row in rows]


def same_rows(select: str, first: Answer | str, second: Answer | str) -> bool:
    """Whether two answers have the same columns and rows; in the same order if the SELECT has an ORDER BY."""
    if first is None or second is None or isinstance(first, str) or isinstance(second, str):
        return first is second
    (columns, rows), (other_columns, other_rows) = first, second
    if [name for name, _ in columns] != [name for name, _ in other_columns] or len(rows) != len(other_rows):
        return False
    if " ORDER BY " not in select.rpartition(")")[2]:
        rows, other_rows = (sorted(table, key=json.dumps) for table in (rows, other_rows))
    kinds = [[kind for _, kind in answer_columns] for answer_columns in (columns, other_columns)]
    return all(
        equal_answers([kind, value], [other_kind, other_value])
        for row, other_row in zip(rows, other_rows, strict=True)
        for kind, other_kind, value, other_value in zip(*kinds, row, other_row, strict=True)
    )


def main() -> None:
    """Run the SELECTs on Spark, and write a line for each."""
    from lakebackup_jobs.runtime.session import spark_session

    spark = spark_session(app="select-answers")
    write(
        FOLDER / "answers.json",
        {select: spark_answer(spark, text) for select, text in selects().items()},
    )


if __name__ == "__main__":
    main()
