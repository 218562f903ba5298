"""The rows of a SELECT, in the form that a person wants."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from itertools import count
from typing import TYPE_CHECKING, Any

from lakebackup.errors import EnvironmentProblem, UsageProblem
from lakebackup.sql_engine.arrow import python_values
from lakebackup_jobs.runtime.terminal_table import table
from lakebackup_jobs.runtime.terminal_text import visible

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import pandas as pd
    import polars as pl
    import pyarrow as pa
    from pyspark.sql import DataFrame

    from lakebackup_jobs.query.record_query import Reading

_SHOWN = 100


@dataclass(frozen=True, slots=True)
class Result:
    """A SELECT that runs: its rows as they are read, what it reads inside the backups, and, on Spark, its
    DataFrame."""

    rows: pa.RecordBatchReader
    readings: tuple[Reading, ...] = ()
    frame: DataFrame | None = None


class Answer:
    """The rows of a SELECT. Its first use takes the run that found no mistake in it; each later one runs it
    again, on the catalog as it is by then."""

    def __init__(self, begin: Callable[[], Result]) -> None:
        self._begin = begin
        self._result: Result | None = begin()
        #: What the last run read inside the backups, counted while its rows are taken.
        self.readings: tuple[Reading, ...] = ()

    def batches(self) -> pa.RecordBatchReader:
        """The rows in Arrow batches that are read while they are taken: for any number of them. Of columns
        of one name, the second is `name_1`."""
        result, self._result = self._result or self._begin(), None
        self.readings = result.readings
        return _with_distinct_names(result.rows)

    def __iter__(self) -> Iterator[dict[str, Any]]:
        """The rows, column name -> value, read while they are taken."""
        for batch in self.batches():
            with python_values():
                rows = batch.to_pylist()
            yield from rows

    def rows(self) -> list[dict[str, Any]]:
        """All rows, column name -> value."""
        return list(self)

    def arrow(self) -> pa.Table:
        """All rows as an Arrow table."""
        return self.batches().read_all()

    def df(self) -> pd.DataFrame:
        """All rows as a pandas DataFrame."""
        with python_values():
            found: pd.DataFrame = self.arrow().to_pandas()
        return found

    def pl(self) -> pl.DataFrame:
        """All rows as a Polars DataFrame. Raises EnvironmentProblem where Polars is not installed."""
        try:
            import polars
        except ModuleNotFoundError:
            raise EnvironmentProblem(
                "Polars is not installed.", hint="Run `pip install polars`, or take .df() or .arrow()."
            ) from None
        found: pl.DataFrame = polars.from_arrow(self.arrow())
        return found

    def spark(self) -> DataFrame:
        """The rows as a Spark DataFrame, which no limit of time holds for. Raises UsageProblem on DuckDB."""
        result = self._result or self._begin()
        if result.frame is None:
            raise UsageProblem(
                "The answer is DuckDB's, not Spark's.",
                hint="Connect with engine=spark, or take .df() or .arrow().",
            )
        return result.frame

    def show(self, rows: int = _SHOWN) -> None:
        """Print the first rows as a table, and how many there are where that is more."""
        import pyarrow as pa

        found = self.arrow()
        numbers = [
            pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind)
            for kind in found.schema.types
        ]
        with python_values():
            first = found.slice(0, rows).to_pylist()
        lines = [["" if value is None else visible(str(value)) for value in row.values()] for row in first]
        names = [*map(visible, found.schema.names)]
        sys.stdout.writelines(table(names, lines, numbers=numbers))
        if found.num_rows > rows:
            sys.stdout.write(f"… {rows} of {found.num_rows} rows\n")

    def _repr_html_(self) -> str:
        """A notebook's table."""
        found: str = self.df()._repr_html_()
        return found


def _with_distinct_names(rows: pa.RecordBatchReader) -> pa.RecordBatchReader:
    import pyarrow as pa

    given, names = rows.schema.names, dict[str, None]()
    if len(set(given)) == len(given):
        return rows
    for name in given:
        others = (f"{name}_{number}" for number in count(1))
        names[name if name not in names else next(o for o in others if o not in {*names, *given})] = None
    schema = pa.schema([field.with_name(name) for field, name in zip(rows.schema, names, strict=True)])
    renamed = (pa.RecordBatch.from_arrays(batch.columns, schema=schema) for batch in rows)
    return pa.RecordBatchReader.from_batches(schema, renamed)
