"""Expected errors of Spark tasks: they go to the driver as rows, so that their types survive."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache
from typing import Any

import pyarrow as pa

from lakebackup import errors
from lakebackup.errors import LakebackupError
from lakebackup.sql_engine.worker import trim_worker

# The columns of the row that a task of a restore reports for each partition.
RESTORED = "scope STRING, region STRING, entries BIGINT, bytes BIGINT, position BIGINT, error STRING"
_ARROW = {"INT": "int32", "BIGINT": "int64", "STRING": "string", "BOOLEAN": "bool", "BINARY": "binary"}


@cache
def arrow_schema(columns: str) -> pa.Schema:
    """The Arrow schema for a list of Spark columns of plain types, with the exact widths that Spark
    expects."""
    pairs = [column.split() for column in columns.split(", ")]
    return pa.schema([pa.field(name, pa.type_for_alias(_ARROW[kind])) for name, kind in pairs])


def guarded(columns: str, work: Callable[[], Mapping[str, Any]]) -> pa.RecordBatch:
    """The result of `work` as one row; see `guarded_rows`."""
    return guarded_rows(columns, lambda: [work()])


def guarded_rows(columns: str, work: Callable[[], Sequence[Mapping[str, Any]]]) -> pa.RecordBatch:
    """The rows that `work` returns. When it fails with an expected error, one row that holds only the error.

    `columns` must have a column `error STRING`. Unexpected errors are raised to Spark.
    """
    schema = arrow_schema(columns)
    try:
        rows = work()
    except LakebackupError as error:
        rows = [{"error": encode_error(error)}]
    finally:
        trim_worker()
    return pa.RecordBatch.from_pylist(
        [{name: row.get(name) for name in schema.names} for row in rows], schema
    )


def encode_error(error: LakebackupError) -> str:
    """An error as one line of text, for `raise_first` in another process."""
    # An error that another module defines is encoded as its base class in `lakebackup.errors`.
    kind = next(k for k in type(error).__mro__ if k.__module__ == errors.__name__)
    return json.dumps({"kind": kind.__name__, "message": error.message, "hint": error.hint})


def raise_first(texts: Iterable[str | None]) -> None:
    """Raise the first error that tasks reported, with its own type."""
    for text in texts:
        if text:
            error = json.loads(text)
            kind: type[LakebackupError] = getattr(errors, error["kind"], LakebackupError)
            raise kind(error["message"], hint=error["hint"])
