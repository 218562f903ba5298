"""Decodes keys and values that contain the id of a schema to JSON text.

They begin with a byte 0 and the schema's id in four bytes, big endian, as serializers compatible with
Confluent's write them. A value is read with the schema of its own id, never with a newer one. As JSON:

- Avro records and maps are objects; a record's fields have the schema's order; a union is only its value;
- bytes and fixed are base64; NaN and the infinities are strings;
- decimals are strings with all their digits; UUIDs are strings;
- timestamps are ISO 8601 in UTC, with as many digits as their unit has, and local timestamps lack the Z;
  dates and times of day are ISO 8601 too; values that no calendar has (beyond the year 9999) stay numbers;
- values of a JSON schema are the text after the id, as it was written.
"""

from __future__ import annotations

import base64
import json
import math
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import UTC, date, datetime, timedelta
from functools import partial
from io import BytesIO
from typing import Any

import fastavro
from fastavro import _read_py
from fastavro.read import LOGICAL_READERS

from lakebackup.rules.schema_ids import Meaning, Part, Schema, SchemaIds
from lakebackup_jobs.kafka.format.registry import schema_id_of

#: Longer values are not decoded.
MOST_BYTES = 4 << 20
# Types that are nested at most this deep are read by fastavro's compiled code. Deeper ones, and those that
# contain themselves, could overflow its stack. Its Python code reads those, and Python limits the recursion.
_DEEPEST = 200
_HEAD = 5
_PRIMITIVES = frozenset({"null", "boolean", "int", "long", "float", "double", "bytes", "string"})
_DROPPED = frozenset({"default", "doc", "logicalType"})
_MOST_SCALE = 10_000
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_DAY_S = 86_400


class _Undecodable(Exception):
    """Says why a value cannot be decoded."""


class Decoder:
    """Decodes keys and values with the schemas that their ids name in their topic.

    Each schema is parsed once, at its first use.
    """

    def __init__(self, ids: SchemaIds) -> None:
        self._ids = ids
        self._readers: dict[tuple[int, str, Part], Callable[[bytes], str] | str] = {}

    def __reduce__(self) -> tuple[type[Decoder], tuple[SchemaIds]]:
        return Decoder, (self._ids,)

    def decode(self, data: bytes | None, topic: str, part: Part) -> tuple[str | None, str | None]:
        """Decode the key or value (`part`) of a record of the topic.

        Returns (JSON text, None), or (None, the problem), or (None, None) if the bytes contain no id. Never
        raises.
        """
        number = schema_id_of(data)
        if data is None or number is None:
            return None, None
        if len(data) > MOST_BYTES:
            return None, f"{len(data)} bytes, and no more than {MOST_BYTES} are decoded"
        if (number, topic, part) not in self._readers:
            self._readers[number, topic, part] = _reader(number, self._ids.meaning(number, topic, part))
        reader = self._readers[number, topic, part]
        if isinstance(reader, str):
            return None, reader
        try:
            return reader(data[_HEAD:]), None
        except Exception as error:  # noqa: BLE001 (damaged bytes make a library raise anything)
            return None, f"schema {number}: {_reason(error)}"


def _reader(number: int, meaning: Meaning | str) -> Callable[[bytes], str] | str:
    """Return the function that decodes the bytes after an id, or a text that says why there is none."""
    if isinstance(meaning, str):
        return meaning
    schema = meaning.schema
    if schema.problem:
        return f"schema {number}: {schema.problem}"
    if schema.kind == "JSON":
        return _json_text
    if schema.kind != "AVRO":
        return f"schema {number} is of the kind {schema.kind[:40]}, which is not decoded"
    try:
        return _avro_reader(schema)
    except Exception as error:  # noqa: BLE001 (as above)
        return f"schema {number} cannot be used: {_reason(error)}"


def _reason(error: Exception) -> str:
    text = str(error)[:200]
    if isinstance(error, _Undecodable):
        return text
    if isinstance(error, EOFError):
        return "the bytes end too early"
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


# --- JSON


def _json_text(payload: bytes) -> str:
    text = payload.decode().strip()
    json.loads(text, parse_constant=_no_number)
    return text


def _no_number(name: str) -> None:
    raise _Undecodable(f"{name} is no JSON")


# --- Avro


def _avro_reader(schema: Schema) -> Callable[[bytes], str]:
    types: dict[str, Any] = {}
    for reference in _in_order(schema.references):
        fastavro.parse_schema(_prepared(json.loads(reference.text)), types)
    field = {"name": "value", "type": _prepared(json.loads(schema.text))}
    # fastavro keeps the types that a schema names only in a record. A record adds no bytes to the value.
    root: Any = fastavro.parse_schema(
        {"type": "record", "name": "lakebackup_value", "fields": [field]}, types
    )
    deep = _Shape(types).of(root)[0] > _DEEPEST
    read: Any = _read_py.schemaless_reader if deep else fastavro.schemaless_reader
    return partial(_avro_text, read, root)


def _avro_text(read: Any, root: Any, payload: bytes) -> str:
    stream = BytesIO(payload)
    value = read(stream, root, None)["value"]
    if stream.tell() != len(payload):
        raise _Undecodable(f"{len(payload) - stream.tell()} bytes are left over")
    try:
        return _dumped(value)
    except ValueError:
        return _dumped(_finite(value))


def _dumped(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False, default=_base64)


def _base64(value: bytes) -> str:
    return base64.b64encode(value).decode()


def _finite(value: Any) -> Any:
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    if isinstance(value, dict):
        return {name: _finite(item) for name, item in value.items()}
    return [_finite(item) for item in value] if isinstance(value, list) else value


def _in_order(references: Iterable[Schema], visited: set[Schema] | None = None) -> Iterator[Schema]:
    """Yield the schemas that a schema needs, each once, and each after those that it needs itself."""
    visited = set() if visited is None else visited
    for reference in references:
        if reference not in visited:
            visited.add(reference)
            if reference.problem:
                raise _Undecodable(reference.problem)
            yield from _in_order(reference.references, visited)
            yield reference


def _prepared(schema: Any) -> Any:
    """Return a schema with lakebackup's names of the logical types, and without docs and defaults."""
    if isinstance(schema, list):
        return [_prepared(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    prepared = {name: _prepared(item) for name, item in schema.items() if name not in _DROPPED}
    logical_type = f"lakebackup-{schema.get('logicalType')}"
    if f"{schema.get('type')}-{logical_type}" in LOGICAL_READERS:
        prepared["logicalType"] = logical_type
    return prepared


class _Shape:
    """Finds how deep values of a parsed schema can be nested, and whether they can be empty (zero bytes)."""

    def __init__(self, types: Mapping[str, Any]) -> None:
        self._types = types
        self._shapes: dict[str, tuple[float, bool]] = {}

    def of(self, schema: Any) -> tuple[float, bool]:
        if isinstance(schema, list):
            return 1 + max((self.of(branch)[0] for branch in schema), default=0), False
        kind = schema["type"] if isinstance(schema, dict) else schema
        if kind in _PRIMITIVES:
            return 1, kind == "null"
        if isinstance(schema, dict) and kind in ("array", "map"):
            depth, empty = self.of(schema["items" if kind == "array" else "values"])
            if empty and kind == "array":
                raise _Undecodable(
                    "it has arrays of items that take no bytes, of which any number could follow"
                )
            return 1 + depth, False
        name = schema["name"] if isinstance(schema, dict) and "name" in schema else kind
        if name not in self._shapes:
            self._shapes[name] = math.inf, False  # a type that occurs within itself finds this
            self._shapes[name] = self._of_named_type(self._types.get(name, schema))
        return self._shapes[name]

    def _of_named_type(self, schema: Any) -> tuple[float, bool]:
        if schema["type"] == "enum":
            return 1, False
        if schema["type"] == "fixed":
            return 1, schema["size"] == 0
        fields = [self.of(field["type"]) for field in schema["fields"]]
        return 1 + max((depth for depth, _ in fields), default=0), all(empty for _, empty in fields)


# --- logical types: fastavro's own readers round decimals and support no year after 9999


def _decimal(data: bytes, schema: Any, _reader: Any = None) -> str:
    scale = schema.get("scale", 0)
    if type(scale) is not int or not 0 <= scale <= _MOST_SCALE:
        raise _Undecodable(f"a decimal with the scale {scale!r:.20}")
    number = int.from_bytes(data, signed=True)
    digits = str(abs(number)).rjust(scale + 1, "0")
    text = f"{digits[:-scale]}.{digits[-scale:]}" if scale else digits
    return f"-{text}" if number < 0 else text


def _instant(digits: int, suffix: str) -> Callable[..., str | int]:
    def read(value: int, _schema: Any = None, _reader: Any = None) -> str | int:
        seconds, fraction = divmod(value, 10**digits)
        try:
            instant = _EPOCH + timedelta(seconds=seconds)
        except OverflowError:
            return value
        return f"{instant:%Y-%m-%dT%H:%M:%S}".rjust(19, "0") + f".{fraction:0{digits}d}{suffix}"

    return read


def _date(value: int, _schema: Any = None, _reader: Any = None) -> str | int:
    try:
        return (date(1970, 1, 1) + timedelta(days=value)).isoformat()
    except OverflowError:
        return value


def _time(digits: int) -> Callable[..., str | int]:
    def read(value: int, _schema: Any = None, _reader: Any = None) -> str | int:
        seconds, fraction = divmod(value, 10**digits)
        if not 0 <= seconds < _DAY_S:
            return value
        return f"{seconds // 3600:02d}:{seconds // 60 % 60:02d}:{seconds % 60:02d}.{fraction:0{digits}d}"

    return read


def _uuid(value: bytes, _schema: Any = None, _reader: Any = None) -> str | bytes:
    return str(uuid.UUID(bytes=value)) if len(value) == 16 else value


_READERS: dict[str, Callable[..., Any]] = {
    "bytes-lakebackup-decimal": _decimal,
    "fixed-lakebackup-decimal": _decimal,
    "fixed-lakebackup-uuid": _uuid,
    "int-lakebackup-date": _date,
    "int-lakebackup-time-millis": _time(3),
    "long-lakebackup-time-micros": _time(6),
}
for _unit, _digits in (("millis", 3), ("micros", 6), ("nanos", 9)):
    _READERS[f"long-lakebackup-timestamp-{_unit}"] = _instant(_digits, "Z")
    _READERS[f"long-lakebackup-local-timestamp-{_unit}"] = _instant(_digits, "")
LOGICAL_READERS.update(_READERS)
