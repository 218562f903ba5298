"""Reads and checks the rows of an import (JSON lines or Parquet) in Spark tasks.

Rows of an export have all columns. Rows of another program's inventory need only a few columns; the others
are null here, and a later step of the import fills them.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, cached_property, partial
from pathlib import PurePath
from typing import Any, BinaryIO

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructType

from lakebackup.errors import NotFound, UsageProblem
from lakebackup.rows.tables import ARROW_SCHEMAS, Column, columns
from lakebackup.rules.suggestions import similar_names
from lakebackup.sql_engine.worker import PerNumber, in_batches
from lakebackup.storage import Storage, open_storage

#: The name under which rows of manifests are imported, beside the names of tables.
MANIFESTS = "manifests"
#: Columns that rows of other programs must have; the others are optional.
REQUIRED: Mapping[str, tuple[str, ...]] = {
    "backups": ("backup_id", "source", "end_ts"),
    "files": ("backup_id", "path", "bytes"),
    "departures": ("backup_id", "path", "gone_in"),
    MANIFESTS: ("backup_id", "path", "bytes"),
}
# The columns that a row of a manifest may have, of those of `files`.
_MANIFEST_COLUMNS = (
    "backup_id", "scope", "region", "path", "bytes", "raw_bytes", "sha256", "entries", "min_ts", "max_ts",
)  # fmt: skip
# The form of a file by the suffix of its name.
_FORMS = {".jsonl": "jsonl", ".ndjson": "jsonl", ".json": "jsonl", ".parquet": "parquet"}
_LINE_BYTES = 1 << 20
_BATCH = 5_000
_SHA256 = re.compile(r"[0-9a-f]{64}")
# For each type of a column: the type of its values in Python, its name in messages, and the first integer
# that is too large. A bool is an int in Python.
_PYTHON_TYPES: Mapping[str, type] = {"string": str, "int32": int, "int64": int, "bool": bool}
_TYPE_WORDS = {
    "string": "a text",
    "int32": "a whole number",
    "int64": "a whole number",
    "bool": "true or false",
}
_LIMITS: Mapping[str, int] = {"int32": 2**31, "int64": 2**63, "bool": 2}


@dataclass(frozen=True, slots=True)
class ImportFile:
    """A file to import: rows of a table, or of manifests; `form` is jsonl or parquet."""

    table: str
    uri: str
    form: str


def import_files(table: str, path: str) -> list[ImportFile]:
    """Return the file at `path`, or the files in that folder. Names that start with a dot or an underscore
    are skipped. Raises NotFound, UsageProblem (an unknown suffix)."""
    storage = open_storage(path)
    uris = [
        f"{path.rstrip('/')}/{entry.path}"
        for entry in storage.list()
        if not entry.path.startswith((".", "_"))
    ]
    if not uris:
        folder, name = _split_uri(path)
        if not folder.exists(name):
            raise NotFound(
                f"--{table} {path} does not exist.", hint="Name a file, or a folder of such files."
            )
        uris = [path]
    return [ImportFile(table, uri, _form(uri)) for uri in uris]


def _split_uri(path: str) -> tuple[Storage, str]:
    """Return the storage of the folder of a file, and the file's name in it."""
    folder, _, name = path.rpartition("/")
    if not name:
        raise NotFound(f"{path} holds no file.")
    return open_storage(folder or ("/" if path.startswith("/") else ".")), name


def _form(path: str) -> str:
    form = _FORMS.get(PurePath(path).suffix.lower())
    if form is None:
        raise UsageProblem(
            f"The name of {path} does not end in {', '.join(_FORMS)}.",
            hint="Name JSON lines .jsonl and Parquet files .parquet; other formats cannot be imported.",
        )
    return form


@cache
def importable_columns(table: str) -> tuple[Column, ...]:
    """The columns that rows of a table, or of manifests, may have."""
    if table != MANIFESTS:
        return columns(table)
    columns_by_name = {column.name: column for column in columns("files")}
    return tuple(columns_by_name[name] for name in _MANIFEST_COLUMNS)


@cache
def import_schema(table: str) -> pa.Schema:
    """Return the schema of the rows that `ImportRows` yields: the importable columns and three more.

    `row_file` is the index of the file, `row_number` the line or row in it, from 1, and `row_problem` what is
    wrong with the row.
    """
    schema = ARROW_SCHEMAS["files" if table == MANIFESTS else table]
    fields = [schema.field(column.name).with_nullable(True) for column in importable_columns(table)]
    return pa.schema(
        [*fields, ("row_file", pa.int32()), ("row_number", pa.int64()), ("row_problem", pa.string())]
    )


def import_spark_schema(table: str) -> StructType:
    """`import_schema` for Spark."""
    return from_arrow_schema(import_schema(table))


@dataclass(frozen=True)
class ImportRows(PerNumber):
    """Reads files of one table. Task `number` reads the rows of `files[number]`.

    In rows of an export (`is_export`), no column is optional. `backups` has the valid backup ids; None: any.
    """

    table: str
    files: tuple[ImportFile, ...]
    is_export: bool
    backups: frozenset[str] | None = None

    def rows(self, number: int) -> Iterator[pa.RecordBatch]:
        return in_batches(self.read(number), import_schema(self.table), _BATCH)

    def read(self, number: int) -> Iterator[dict[str, Any]]:
        """Yield the rows of a file. Each has its file, its number and its problem, if any."""
        for row_number, row, problem in _numbered_rows(
            self.files[number], partial(self.with_counter, number)
        ):
            values = dict.fromkeys(self._columns_by_name)
            if row is not None:
                problem = self._row_problem(row, values)
            yield {**values, "row_file": number, "row_number": row_number, "row_problem": problem}

    def with_counter(self, number: int, stream: BinaryIO) -> BinaryIO:  # noqa: ARG002 (a subclass does)
        """Return the stream itself. A subclass wraps it into a stream that counts the bytes it reads."""
        return stream

    @cached_property
    def _columns_by_name(self) -> dict[str, Column]:
        return {column.name: column for column in importable_columns(self.table)}

    @cached_property
    def _required_columns(self) -> Sequence[str]:
        if self.is_export:
            return [column.name for column in importable_columns(self.table) if not column.nullable]
        return REQUIRED[self.table]

    def _row_problem(self, row: Mapping[str, Any], values: dict[str, Any]) -> str | None:
        """Copy the values of a row to `values`. Return the row's problem; None if it has none."""
        for name, value in row.items():
            column = self._columns_by_name.get(name)
            if column is None:
                similar = similar_names(name, self._columns_by_name)
                meant = f"; did you mean {similar[0]}?" if similar else ""
                return f"there is no column {name[:60]}{meant}"
            if value is None:
                continue
            if type(value) is not _PYTHON_TYPES[column.type]:
                return f"{name} is {value!r:.60}, {_TYPE_WORDS[column.type]} is expected"
            if isinstance(value, int) and not -_LIMITS[column.type] <= value < _LIMITS[column.type]:
                return f"{name} is {value}, which is too large"
            if column.choices and value not in column.choices:
                return f"{name} is {value!r:.60}, one of {', '.join(column.choices)} is expected"
            values[name] = value
        missing = [name for name in self._required_columns if values[name] is None]
        if missing:
            return f"{', '.join(missing)} must be given"
        return self._value_problem(values)

    def _value_problem(self, row: dict[str, Any]) -> str | None:
        """Return the problem of a row whose values have valid types; None if it has none. Removes slashes at
        the start of another program's paths."""
        if (
            self.backups is not None
            and row.get("backup_id") is not None
            and row["backup_id"] not in self.backups
        ):
            return f"there is no backup {row['backup_id']!r:.80}: give its row too"
        if not self.is_export and row.get("path") is not None:
            row["path"] = row["path"].lstrip("/")
        path = row.get("path")
        if path is not None and (path.startswith("/") or ".." in path or not path or "\0" in path):
            return f"path {path!r:.80} is not relative, or holds '..': escape it, such as %2E%2E"
        if not self.is_export and row.get("sha256") and not _SHA256.fullmatch(row["sha256"]):
            return (
                f"sha256 is {row['sha256']!r:.80}, 64 lower hex digits are expected; leave out other digests"
            )
        if self.table == MANIFESTS and not row["sha256"] and row["max_ts"] is None:
            return "sha256 or max_ts (the last change, ms) must be given, to detect later changes"
        start_ts = row.get("start_ts")
        if not self.is_export and start_ts is not None and row["end_ts"] < start_ts:
            return f"end_ts {row['end_ts']} is before start_ts {start_ts}"
        return _bounds_problem(row)


def _bounds_problem(row: Mapping[str, Any]) -> str | None:
    """Return what is wrong with a row's numbers: one is negative, or a range ends before it starts."""
    for name in ("bytes", "raw_bytes", "entries", "files", "level", "chain_position"):
        if (row.get(name) or 0) < 0:
            return f"{name} is {row[name]}, which is below 0"
    for low_name, high_name in (
        ("min_ts", "max_ts"),
        ("start_position", "end_position"),
        ("added_in", "gone_in"),
    ):
        low, high = row.get(low_name), row.get(high_name)
        strict = low_name == "added_in" or (low_name == "start_position" and "path" in row)
        if low is not None and high is not None and (low > high or (strict and low == high)):
            return f"{low_name} {low} is not before {high_name} {high}"
    if row.get("number") is not None and row["number"] < 1:
        return f"number is {row['number']}; numbers start at 1"
    return None


def _numbered_rows(
    file: ImportFile, with_counter: Callable[[BinaryIO], BinaryIO]
) -> Iterator[tuple[int, dict[str, Any] | None, str | None]]:
    """Yield the number, from 1, and the values of each row of a file. Where a row cannot be read, yield its
    number, None and the problem."""
    folder, name = _split_uri(file.uri)
    with folder.open(name) as opened:
        stream = with_counter(opened)
        yield from _json_lines(stream) if file.form == "jsonl" else _parquet(stream)


def _json_lines(stream: Any) -> Iterator[tuple[int, dict[str, Any] | None, str | None]]:
    number = 0
    while line := stream.readline(_LINE_BYTES):
        number += 1
        if len(line) == _LINE_BYTES:
            yield number, None, f"the line has more than {_LINE_BYTES} bytes"
            return
        if not line.strip():
            continue
        try:
            row = json.loads(line)
        except (ValueError, RecursionError) as error:
            yield number, None, f"it is not JSON: {error}"
            continue
        if isinstance(row, dict):
            yield number, row, None
        else:
            yield number, None, "it is not a JSON object"


def _parquet(stream: Any) -> Iterator[tuple[int, dict[str, Any] | None, str | None]]:
    number = 0
    try:
        file = pq.ParquetFile(stream, page_checksum_verification=True)
        for batch in file.iter_batches(_BATCH):
            for row in batch.to_pylist():
                number += 1
                yield number, row, None
    except (pa.ArrowException, OSError) as error:
        yield number + 1, None, f"it is not a valid Parquet file: {error}"
