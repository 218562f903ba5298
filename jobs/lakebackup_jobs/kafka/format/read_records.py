"""Reads records from data files as rows of `records(…)`: only matching records, and only selected columns.

A file is opened unless its key filter excludes all wanted keys. It is verified before its first record is
used, and read block by block.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from hashlib import blake2b, sha256
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakebackup.errors import EnvironmentProblem
from lakebackup.plan.records import RecordFilter, Span
from lakebackup.rules.schema_ids import Part
from lakebackup.rules.times import LAST_MS
from lakebackup.sql_engine.guard.records import COLUMNS
from lakebackup.sql_engine.worker import trim_worker
from lakebackup.store.roots import Roots
from lakebackup_jobs.kafka.format import arrow, key_filter
from lakebackup_jobs.kafka.format.container import FileReader
from lakebackup_jobs.kafka.format.records import HEADER_COUNT, KEY_LENGTH, OFFSET, TIMESTAMP, Columns
from lakebackup_jobs.kafka.format.registry import strict_json
from lakebackup_jobs.kafka.format.stored import StoredFile, open_verified
from lakebackup_jobs.kafka.format.values import Decoder
from lakebackup_jobs.kafka.memory import Longs

_BATCH_ROWS = 10_000
# A block of at least this size is converted row by row: hex doubles the bytes, and a batch's text has 32-bit
# offsets.
_LARGE_BLOCK = 256 << 20
_MOST_TEXT = 2**31 - 1
#: Columns that only record_diff has: a digest of the value, "" for a tombstone.
OWN = {"value_digest": "STRING"}
_COLUMNS = COLUMNS | OWN
_TYPES = {"STRING": pa.string(), "INT": pa.int32(), "BIGINT": pa.int64(), "TIMESTAMP": pa.timestamp("us")}
_BY_HEADER = (None, "its schema is named by a header, which is not read")
_HEX: Any = np.frombuffer("".join(f"{byte:02x}" for byte in range(256)).encode(), np.uint8).reshape(256, 2)


@dataclass(frozen=True, slots=True)
class RecordFile(StoredFile):
    """A row of the query record_files. Offsets from `to_position` on are read from another file."""

    backup_id: str
    source: str
    null_keys: int
    start_key: str | None
    end_key: str | None
    key_id: str | None
    keys_path: str | None
    keys_start: int | None
    keys_blocks: int | None
    to_position: int


def spark_schema(columns: Iterable[str]) -> str:
    """Return the schema of some columns of records(…) as text for Spark."""
    return ", ".join(f"{name} {_COLUMNS[name]}" for name in columns)


def schema_of(columns: Iterable[str], zone: str | None = None) -> pa.Schema:
    """Return the Arrow schema of some columns of records(…). Times have the time zone `zone`, if any."""
    return pa.schema(
        [
            (name, pa.timestamp("us", zone) if _COLUMNS[name] == "TIMESTAMP" else _TYPES[_COLUMNS[name]])
            for name in columns
        ]
    )


@dataclass(frozen=True, slots=True)
class ReadRecords:
    """Reads the records that match `criteria`, with `columns`: a function for `mapInArrow` over record_files.

    `to_ts`: later records (ms) are left out. `exact`: key and value are texts of all their bytes, also of
    those that are not UTF-8, which Spark does not change. `counters`: returns, for a task's name, the
    function that counts the task's files and their bytes. Raises Damaged for a file that differs from the
    catalog.
    """

    columns: tuple[str, ...]
    criteria: RecordFilter
    to_ts: int | None
    roots: Roots
    decoder: Decoder | None = None
    zone: str | None = "UTC"
    exact: bool = False
    counters: Callable[[str], Callable[[int, int], None]] | None = None

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        count = None
        for batch in batches:
            for row in batch.to_pylist():
                file = RecordFile(**row)
                if self.counters and not count:
                    count = self.counters(sha256(file.path.encode()).hexdigest()[:16])
                reader = self.open(file)
                if reader is not None:
                    yield from self.read(file, reader)
                if count:
                    count(1, file.bytes)
        trim_worker()

    def may_hold(self, file: RecordFile) -> bool:
        """Return whether a file can contain a matching record, by its bounds of keys and its key filter."""
        if self.criteria.keys is None:
            return True
        keys = [key for key in self.criteria.keys if _is_in_key_range(file, key.hex())]
        if not keys:
            return False
        storage = self.roots.open(file.destination)
        return key_filter.may_hold(storage, file, keys, data_keys=self.roots.keys)

    def open(self, file: RecordFile) -> FileReader | None:
        """Return the reader of a verified file; None when it cannot contain a matching record."""
        return open_verified(self.roots, file) if self.may_hold(file) else None

    def read(self, file: RecordFile, reader: FileReader) -> Iterator[pa.RecordBatch]:
        """Yield the matching records of a file."""
        schema = schema_of(self.columns, self.zone)
        for block in reader:
            matching_rows = self._matching_rows(file, block)
            step = _BATCH_ROWS if block.data.shape[0] < _LARGE_BLOCK else 1
            for start in range(0, len(matching_rows), step):
                part = replace(block, rows=matching_rows[start : start + step])
                rows = _Rows(file, part, self.decoder, self.zone, exact=self.exact)
                yield pa.RecordBatch.from_arrays([rows.column(name) for name in self.columns], schema=schema)

    def _matching_rows(self, file: RecordFile, block: Columns) -> Longs:
        """Return the rows of a block's matching records."""
        criteria, rows = self.criteria, block.rows
        mask = rows[:, OFFSET] < file.to_position
        if self.to_ts is not None:
            mask &= rows[:, TIMESTAMP] <= self.to_ts
        mask &= _is_in_span(rows[:, OFFSET], criteria.offset) & _is_in_span(rows[:, TIMESTAMP], criteria.ts)
        if criteria.no_key:
            mask &= rows[:, KEY_LENGTH] < 0
        matching_rows = rows if mask.all() else rows[mask]
        if criteria.keys is not None and len(matching_rows):
            keys = arrow.keys(replace(block, rows=matching_rows))
            key_mask = pc.is_in(keys, value_set=pa.array(list(criteria.keys), pa.binary()))
            matching_rows = matching_rows[key_mask.to_numpy(zero_copy_only=False)]
        return matching_rows


def _is_in_span(numbers: Longs, span: Span) -> Any:
    least, greatest = span.least, span.greatest
    mask = np.ones(len(numbers), bool)
    if least is not None:
        mask &= numbers >= least
    if greatest is not None:
        mask &= numbers <= greatest
    return mask


def _is_in_key_range(file: RecordFile, key: str) -> bool:
    """Return whether a key, in hex, is within a file's inclusive bounds of keys. A bound may be missing."""
    return (file.start_key is None or file.start_key <= key) and (file.end_key is None or key <= file.end_key)


class _Rows:
    """Converts some records of a block to Arrow arrays, one per column. Arrays used twice are cached."""

    def __init__(
        self, file: RecordFile, block: Columns, decoder: Decoder | None, zone: str | None, *, exact: bool
    ) -> None:
        self._file, self._block, self._decoder, self._zone = file, block, decoder, zone
        self._exact = exact
        self._cache: dict[str, Any] = {}

    def column(self, name: str) -> Any:
        """Return the array of a column."""
        getters: dict[str, Callable[[], Any]] = {
            "partition": lambda: self._constant(int(self._file.region), pa.int32()),
            "kafka_offset": lambda: pa.array(np.ascontiguousarray(self._block.rows[:, OFFSET])),
            "ts": lambda: pa.array(np.ascontiguousarray(self._block.rows[:, TIMESTAMP])),
            "time": self._time,
            "key": lambda: self._text("key"),
            "value": lambda: self._text("value"),
            "key_hex": lambda: _hex(self._bytes("key")),
            "value_hex": lambda: _hex(self._bytes("value")),
            "key_json": lambda: self._json("key")[0],
            "value_json": lambda: self._json("value")[0],
            "problem": self._problem,
            "headers": self._headers,
            "value_digest": self._digests,
        }
        return getters[name]() if name in getters else self._constant(getattr(self._file, name), pa.string())

    def _constant(self, value: Any, kind: pa.DataType) -> Any:
        return pa.repeat(pa.scalar(value, kind), len(self._block.rows))

    def _text(self, part: str) -> Any:
        data = self._bytes(part)
        return data.view(pa.string()) if self._exact else arrow.as_text(data, _utf8)

    def _bytes(self, part: str) -> Any:
        if part not in self._cache:
            self._cache[part] = (arrow.keys if part == "key" else arrow.values)(self._block)
        return self._cache[part]

    def _time(self) -> Any:
        ts = np.ascontiguousarray(self._block.rows[:, TIMESTAMP])
        valid = (ts >= 0) & (ts <= LAST_MS)
        micros = pa.array(np.where(valid, ts, 0) * 1000, mask=~valid)
        return micros.cast(pa.timestamp("us", self._zone))

    def _json(self, part: Part) -> tuple[Any, list[str | None]]:
        cache_key = f"{part}_json"
        if cache_key not in self._cache:
            header_rows = self._named_by_header(part)
            pairs = [
                _BY_HEADER if row in header_rows else self._decoded(data, part)
                for row, data in enumerate(self._bytes(part).to_pylist())
            ]
            self._cache[cache_key] = (
                pa.array([text for text, _ in pairs], pa.string()),
                [problem for _, problem in pairs],
            )
        result: tuple[Any, list[str | None]] = self._cache[cache_key]
        return result

    def _named_by_header(self, part: Part) -> set[int]:
        """Return the rows whose schema a header names: their bytes do not begin with an id."""
        block, name = self._block, f"__{part}_schema_id".encode()
        headers = block.headers()
        if not len(headers):
            return set()
        owners = np.repeat(np.arange(len(block.rows)), block.rows[:, HEADER_COUNT])
        candidates = np.flatnonzero(headers[:, 1] == len(name))
        starts = headers[candidates, 0]
        return {
            int(owners[index])
            for index, start in zip(candidates, starts, strict=True)
            if bytes(block.data[start : start + len(name)]) == name
        }

    def _decoded(self, data: bytes | None, part: Part) -> tuple[str | None, str | None]:
        decoder, topic = self._decoder, self._file.scope
        text, problem = decoder.decode(data, topic, part) if decoder else (None, None)
        return (text if text or problem else _text_if_json(data)), problem

    def _problem(self) -> Any:
        pairs = zip(self._json("key")[1], self._json("value")[1], strict=True)
        return pa.array(
            [
                "; ".join(
                    f"{part}: {problem}" for part, problem in (("key", key), ("value", value)) if problem
                )
                or None
                for key, value in pairs
            ],
            pa.string(),
        )

    def _digests(self) -> Any:
        values = self._bytes("value").to_pylist()
        return pa.array(
            ["" if v is None else blake2b(v, digest_size=16).hexdigest() for v in values], pa.string()
        )

    def _headers(self) -> Any:
        headers, block, start = self._block.headers(), self._block.data, 0
        if not len(headers):
            return self._constant("[]", pa.string())
        texts = []
        for count in self._block.rows[:, HEADER_COUNT].tolist():
            pairs = [
                [
                    text_or_hex(bytes(block[key : key + key_length])),
                    None if length < 0 else text_or_hex(bytes(block[value : value + length])),
                ]
                for key, key_length, value, length in headers[start : start + count].tolist()
            ]
            texts.append(json.dumps(pairs, ensure_ascii=False))
            start += count
        return pa.array(texts, pa.string())


def _text_if_json(data: bytes | None) -> str | None:
    """Return the bytes as text if that is JSON."""
    try:
        text = "" if data is None else data.decode()
        strict_json(text)
    except (ValueError, RecursionError):
        return None
    return text


def text_or_hex(data: bytes) -> str | dict[str, str]:
    """Return a header's bytes for JSON: a text, or an object with their hex if they are not UTF-8."""
    try:
        return data.decode()
    except UnicodeDecodeError:
        return {"hex": data.hex()}


def _utf8(piece: bytes) -> str | None:
    try:
        return piece.decode()
    except UnicodeDecodeError:
        return None


def _hex(array: Any) -> Any:
    """Convert a binary array to lower hex. The array must begin where its buffers begin."""
    valid, offsets, data = array.buffers()
    if 2 * (data.size if data else 0) > _MOST_TEXT:
        raise EnvironmentProblem(
            f"A record of {data.size} bytes cannot be shown as hex.", hint="Ask for other columns."
        )
    ends = np.frombuffer(offsets, np.int32)[: len(array) + 1] * np.int32(2)
    pieces = _HEX[np.frombuffer(data, np.uint8)] if data is not None and data.size else np.empty(0, np.uint8)
    return pa.Array.from_buffers(
        pa.string(), len(array), [valid, pa.py_buffer(ends), pa.py_buffer(np.ascontiguousarray(pieces))]
    )
