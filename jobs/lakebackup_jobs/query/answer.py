"""The answer to a SELECT: its rows as a table of text, a DataFrame, an Arrow table or dicts."""

from __future__ import annotations

import re
import shutil
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from html import escape
from itertools import chain, count
from typing import Any

import pandas as pd
import polars as pl
import pyarrow as pa
from pyspark.sql import DataFrame

from lakebackup.errors import EnvironmentProblem, UsageProblem
from lakebackup.sql_engine.arrow import python_values
from lakebackup_jobs.query.words import counted
from lakebackup_jobs.runtime.terminal_table import Screen, cut, screen_of, table
from lakebackup_jobs.runtime.terminal_text import visible

_ROWS_OF_REPR = 20
# The most rows that `show` and a notebook print.
_ROWS_OF_TABLE = 100
# The width of a table where there is no terminal, in characters.
_WIDTH = 120
# The most characters in a cell of a notebook's table. Longer texts are cut.
_LONGEST_CELL = 200
# A terminal's escape sequence for a style.
_STYLE = re.compile(r"\x1b\[\d*m")


@dataclass(slots=True)
class Reading:
    """How much one `records(…)` of a SELECT has read so far.

    `stored_files`, `stored_bytes`: the number of the topic's files in the backups, and their bytes.
    `selected`: how many of them the catalog selected. `possible`: how many of these key filters did not rule
    out; None: not counted. `opened`, `opened_bytes`: how many were opened, and their bytes.
    """

    topic: str
    stored_files: int
    stored_bytes: int
    selected: int
    possible: int | None = None
    opened: int = 0
    opened_bytes: int = 0


@dataclass(frozen=True, slots=True)
class Result:
    """A running SELECT: its rows, which are read lazily, what it reads inside the backups, and its DataFrame
    if Spark runs it."""

    rows: pa.RecordBatchReader
    readings: tuple[Reading, ...] = ()
    frame: DataFrame | None = None


@dataclass(frozen=True, slots=True)
class _Preview:
    """The first rows of an answer as texts. `numbers`: which columns have numbers."""

    names: list[str]
    cells: list[list[str]]
    numbers: list[bool]
    has_more: bool

    @property
    def count(self) -> str:
        """The number of rows of the preview, as a sentence or a phrase."""
        rows = counted(len(self.cells), "row")
        if self.has_more:
            return f"The first {'row' if len(self.cells) == 1 else rows}; there are more."
        return rows

    def lines(self, screen: Screen | None) -> Iterator[str]:
        """Yield the lines of the table, and below it the number of rows."""
        yield from table(
            self.names, self.cells, numbers=self.numbers, screen=screen, all_columns=".df() has all"
        )
        yield f"({self.count})\n"


class Answer:
    """The rows of a SELECT.

    An answer that is printed, or is the last line of a notebook's cell, shows a table of its first rows. Take
    all rows in the form that you work with:

        answer = con.sql("SELECT scope, restorable_time FROM rpo")
        answer.df()             # a pandas DataFrame
        answer.arrow()          # a pyarrow Table
        for row in answer: ...  # dicts, which are read lazily

    The first use takes the rows of the run that checked the SELECT. Each later use runs the SELECT again, on
    the catalog as it is at that time: keep the DataFrame to use the same rows twice. Showing the first rows
    does not count as a use.
    """

    def __init__(self, begin: Callable[[], Result]) -> None:
        self._begin = begin
        self._result: Result | None = begin()
        #: What the last run reads inside the backups. It is counted while the rows are read.
        self.readings: tuple[Reading, ...] = ()

    def batches(self) -> pa.RecordBatchReader:
        """Return the rows as Arrow batches that are read lazily, for any number of rows.

        If two columns have the same name, the second becomes `name_1`.
        """
        result, self._result = self._result or self._begin(), None
        self.readings = result.readings
        return _with_distinct_names(result.rows)

    def __iter__(self) -> Iterator[dict[str, Any]]:
        """Yield each row as a dict, column name -> value; the rows are read lazily."""
        for batch in self.batches():
            with python_values():
                rows = batch.to_pylist()
            yield from rows

    def rows(self) -> list[dict[str, Any]]:
        """Return all rows as a list of dicts, column name -> value."""
        return list(self)

    def arrow(self) -> pa.Table:
        """Return all rows as an Arrow table."""
        return self.batches().read_all()

    def df(self) -> pd.DataFrame:
        """Return all rows as a pandas DataFrame."""
        with python_values():
            frame: pd.DataFrame = self.arrow().to_pandas()
        return frame

    def pl(self) -> pl.DataFrame:
        """Return all rows as a Polars DataFrame.

        Raises EnvironmentProblem where Polars is not installed.
        """
        try:
            import polars
        except ModuleNotFoundError:
            raise EnvironmentProblem(
                "Polars is not installed.", hint="Run `pip install polars`, or take .df() or .arrow()."
            ) from None
        frame: pl.DataFrame = polars.from_arrow(self.arrow())
        return frame

    def spark(self) -> DataFrame:
        """Return the rows as a Spark DataFrame, to which no timeout applies.

        Raises UsageProblem if DuckDB ran the SELECT.
        """
        result = self._result or self._begin()
        if result.frame is None:
            raise UsageProblem(
                "The answer is DuckDB's, not Spark's.",
                hint="Connect with engine=spark, or take .df() or .arrow().",
            )
        return result.frame

    def show(self, rows: int = _ROWS_OF_TABLE) -> None:
        """Print the first rows as a table, and their number. Only a terminal limits the table's width."""
        sys.stdout.writelines(self._preview(rows).lines(screen_of(sys.stdout)))

    def __repr__(self) -> str:
        """Return the first rows as a table that fits the terminal."""
        screen = Screen(shutil.get_terminal_size((_WIDTH, 0)).columns, colours=False)
        text = "".join(self._preview(_ROWS_OF_REPR).lines(screen))
        return _STYLE.sub("", text).rstrip()

    def _repr_html_(self) -> str:
        """Return the first rows as a table for a notebook."""
        preview = self._preview(_ROWS_OF_TABLE)
        header = "".join(f"<th>{escape(name)}</th>" for name in preview.names)
        sides = ["right" if number else "left" for number in preview.numbers]

        def line(row: list[str]) -> str:
            cells = zip(sides, (escape(cut(text, _LONGEST_CELL)) for text in row), strict=True)
            return "".join(f'<td style="text-align: {side}">{text}</td>' for side, text in cells)

        body = "\n".join(f"<tr>{line(row)}</tr>" for row in preview.cells)
        return (
            f'<table class="dataframe">\n<thead><tr>{header}</tr></thead>\n<tbody>\n{body}\n</tbody>\n'
            f"</table>\n<p>{preview.count}</p>"
        )

    def _preview(self, rows: int) -> _Preview:
        """Return the first rows. The next use yields them again, without a new run."""
        result, self._result = self._result or self._begin(), None
        self.readings = result.readings
        source = _with_distinct_names(result.rows)
        batches: list[pa.RecordBatch] = []
        while sum(batch.num_rows for batch in batches) <= rows and (batch := next(source, None)) is not None:
            batches.append(batch)
        all_rows = pa.RecordBatchReader.from_batches(source.schema, chain(batches, source))
        self._result = replace(result, rows=all_rows)
        first = pa.Table.from_batches(batches, source.schema)
        with python_values():
            values = [row.values() for row in first.slice(0, rows).to_pylist()]
        return _Preview(
            names=[*map(visible, first.schema.names)],
            cells=[["" if value is None else visible(str(value)) for value in row] for row in values],
            numbers=[
                pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind)
                for kind in first.schema.types
            ],
            has_more=first.num_rows > rows,
        )


def _with_distinct_names(rows: pa.RecordBatchReader) -> pa.RecordBatchReader:
    """Return the rows with a number added to each column name that occurred before."""
    schema_names, names = rows.schema.names, dict[str, None]()
    if len(set(schema_names)) == len(schema_names):
        return rows
    for name in schema_names:
        candidates = (f"{name}_{number}" for number in count(1))
        names[
            name
            if name not in names
            else next(candidate for candidate in candidates if candidate not in {*names, *schema_names})
        ] = None
    schema = pa.schema([field.with_name(name) for field, name in zip(rows.schema, names, strict=True)])
    batches = (pa.RecordBatch.from_arrays(batch.columns, schema=schema) for batch in rows)
    return pa.RecordBatchReader.from_batches(schema, batches)
