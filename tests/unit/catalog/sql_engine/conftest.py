"""The DuckDB connection of the tests of a person's SQL."""

from __future__ import annotations

from collections.abc import Iterator

import duckdb
import pytest

from lakebackup.sql_engine.guard.macros import all_macros


@pytest.fixture(scope="module")
def connection() -> Iterator[duckdb.DuckDBPyConnection]:
    """DuckDB with the macros of Spark's functions, in UTC."""
    with duckdb.connect() as connection:
        connection.execute("; ".join(f"CREATE MACRO {macro}" for macro in all_macros()))
        connection.execute("SET TimeZone = 'UTC'; SET enable_external_access = false")
        yield connection
