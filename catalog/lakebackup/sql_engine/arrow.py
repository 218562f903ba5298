"""What is particular about pyarrow: pandas, which it would load to make its first array, and values that
neither pandas nor JSON has."""

from __future__ import annotations

import sys
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, cast

from lakebackup.errors import UsageProblem

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

    import pyarrow as pa


def leave_pandas_out() -> None:
    """Let pyarrow look for pandas where there is none: loading it takes longer than most questions.

    pyarrow looks once, when it makes an array. What needs pandas, such as `to_pandas`, loads it all the same.
    """
    import pyarrow as pa

    modules = cast("dict[str, Any]", sys.modules)
    if "pandas" in modules:
        return
    modules["pandas"] = None
    try:
        for _ in range(2):  # its Python part looks first, its C++ part when that has looked
            with suppress(ImportError, AttributeError):
                pa.array([1])
    finally:
        del modules["pandas"]


@contextmanager
def python_values() -> Iterator[None]:
    """Around what makes Python's values of rows. Raises UsageProblem for a time that it has none for."""
    try:
        yield
    except OverflowError as error:
        raise UsageProblem(
            "A time of the result is outside of the years 1 to 9999.", hint="Cast it to STRING to see it."
        ) from error


def durations(schema: pa.Schema, whole: Collection[int] = ()) -> pa.Schema:
    """A schema with durations in the place of intervals, see `as_durations`, and BIGINT for the columns whose
    numbers are in `whole`."""
    import pyarrow as pa

    for number, field in enumerate(schema):
        if number in whole:
            schema = schema.set(number, field.with_type(pa.int64()))
        if pa.types.is_interval(field.type):
            schema = schema.set(number, field.with_type(pa.duration("us")))
    return schema


def as_durations(batch: pa.RecordBatch, whole: Collection[int] = ()) -> pa.RecordBatch:
    """A batch with durations in the place of intervals: pandas knows no others; and with BIGINT in the
    columns whose numbers are in `whole`.

    Raises ValueError for an interval of months, which differ, and for a number that is too large.
    """
    import pyarrow as pa

    schema = durations(batch.schema, whole)
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
        if number in whole
        else values
        for number, values in enumerate(batch.columns)
    ]
    return pa.RecordBatch.from_arrays(columns, schema=schema)
