"""Workarounds for pyarrow: it loads pandas for its first array, and has values for which pandas or Python has
none."""

from __future__ import annotations

import importlib
import sys
import threading
from collections.abc import Collection, Iterator
from contextlib import contextmanager, suppress
from typing import Any, cast

import pyarrow as pa

from lakebackup.errors import UsageProblem

# Held while pandas cannot be imported, and while a thread imports it.
_PANDAS = threading.Lock()


def leave_pandas_out() -> None:
    """Keep pyarrow from loading pandas, which takes longer than most queries.

    pyarrow looks for pandas once, when it makes an array. Functions that need pandas, such as `to_pandas`,
    still load it.
    """
    modules = cast("dict[str, Any]", sys.modules)
    with _PANDAS:
        if "pandas" in modules:
            return
        modules["pandas"] = None
        try:
            for _ in range(2):  # pyarrow's Python part looks at the first array, its C++ part at the second
                with suppress(ImportError, AttributeError):
                    pa.array([1])
        finally:
            del modules["pandas"]


def load_pandas() -> None:
    """Load pandas for a library that needs it, while another thread may call `leave_pandas_out`."""
    with _PANDAS, suppress(ImportError):  # the library reports what is missing
        importlib.import_module("pandas")


@contextmanager
def python_values() -> Iterator[None]:
    """Raise UsageProblem if the block converts rows to Python values, and a time is outside of Python's
    range."""
    try:
        yield
    except OverflowError as error:
        raise UsageProblem(
            "A time of the result is outside of the years 1 to 9999.", hint="Cast it to STRING to see it."
        ) from error


def duration_schema(schema: pa.Schema, bigint_columns: Collection[int] = ()) -> pa.Schema:
    """Return the schema of the batches that `as_durations` returns."""
    for number, field in enumerate(schema):
        if number in bigint_columns:
            schema = schema.set(number, field.with_type(pa.int64()))
        if pa.types.is_interval(field.type):
            schema = schema.set(number, field.with_type(pa.duration("us")))
    return schema


def as_durations(batch: pa.RecordBatch, bigint_columns: Collection[int] = ()) -> pa.RecordBatch:
    """Convert intervals to durations, since pandas has no intervals, and the columns at the positions
    `bigint_columns` to BIGINT.

    Raises ValueError for an interval of months, since months differ in length, and for a number that is too
    large.
    """
    schema = duration_schema(batch.schema, bigint_columns)
    if schema is batch.schema:
        return batch

    def duration(value: Any) -> int | None:
        if value is not None and value.months:
            raise ValueError("an interval of months has no length: add it to a time")
        return None if value is None else value.days * 86_400_000_000 + value.nanoseconds // 1000

    columns = [
        pa.array(map(duration, values.to_pylist()), pa.duration("us"))
        if pa.types.is_interval(values.type)
        else values.cast(pa.int64())
        if number in bigint_columns
        else values
        for number, values in enumerate(batch.columns)
    ]
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def type_name(kind: pa.DataType) -> str:
    """Return the name that Spark SQL has for the type of a column: BIGINT, TIMESTAMP, ARRAY<STRING>."""
    types = pa.types
    if types.is_dictionary(kind):
        return type_name(kind.value_type)
    if types.is_decimal(kind):
        return f"DECIMAL({kind.precision}, {kind.scale})"
    if types.is_list(kind) or types.is_large_list(kind):
        return f"ARRAY<{type_name(kind.value_type)}>"
    if types.is_struct(kind):
        return f"STRUCT<{', '.join(f'{field.name}: {type_name(field.type)}' for field in kind)}>"
    if types.is_map(kind):
        return f"MAP<{type_name(kind.key_type)}, {type_name(kind.item_type)}>"
    if types.is_timestamp(kind):
        return "TIMESTAMP"  # in UTC, with a zone or without
    if types.is_duration(kind):
        return "INTERVAL"
    return _SCALAR_NAMES.get(str(kind), str(kind).upper())


_SCALAR_NAMES = {
    "null": "VOID",
    "bool": "BOOLEAN",
    "int8": "TINYINT",
    "int16": "SMALLINT",
    "int32": "INT",
    "int64": "BIGINT",
    "float": "FLOAT",
    "double": "DOUBLE",
    "string": "STRING",
    "large_string": "STRING",
    "binary": "BINARY",
    "large_binary": "BINARY",
    "date32[day]": "DATE",
}
