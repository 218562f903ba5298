"""Decodes records of a schema registry's topic (`_schemas`) into rows, and reads the schema id in a value.

Keys and values are JSON, as registries compatible with Confluent's write them. A key's `keytype` is its kind.
"""

from __future__ import annotations

import json
from typing import Any

SCHEMAS_TOPIC = "_schemas"

# A value begins with this byte and the four bytes of its schema's id.
_MAGIC = 0
_HEAD_BYTES = 5
_SCHEMA_FIELDS = frozenset({"subject", "version", "id", "schemaType", "schema", "references", "deleted"})


class _Malformed(Exception):
    """The bytes are not what a registry writes."""


def schema_id_of(value: bytes | None) -> int | None:
    """Return the schema id at the beginning of a record's value: a byte 0, then four bytes, big endian.

    None if the value does not begin like this.
    """
    if value is None or len(value) < _HEAD_BYTES or value[0] != _MAGIC:
        return None
    schema_id = int.from_bytes(value[1:_HEAD_BYTES], signed=True)
    return schema_id if schema_id >= 0 else None


def decode(key: bytes | None, value: bytes | None) -> dict[str, Any]:
    """Decode a record's bytes into columns of `schemas`. Columns that are missing are null.

    `kind` is the key's type in lower case (schema, config, mode, delete_subject, ...), or unknown. `erased`
    tells whether the record has no value, or an empty one. Never raises: `problem` says what cannot be
    decoded.
    """
    row: dict[str, Any] = {"kind": "unknown", "deleted": False, "erased": not value}
    try:
        key_fields = _object(key, "key")
        row["kind"] = (_text(key_fields, "keytype") or "unknown").lower()
        # A record that creates a context names no subject. The context's prefix serves as its subject.
        context = _text(key_fields, "context") if row["kind"] == "context" else None
        row["subject"] = f":{context}:" if context else _text(key_fields, "subject")
        row["version"] = _number(key_fields, "version")
        if value:
            row |= _schema(_object(value, "value")) if row["kind"] == "schema" else _other_value(value)
    except _Malformed as error:
        row["problem"] = str(error)
    return row


def _schema(value: dict[str, Any]) -> dict[str, Any]:
    other_fields = {name: field for name, field in value.items() if name not in _SCHEMA_FIELDS}
    references = value.get("references")
    return {
        "schema_id": _number(value, "id"),
        "schema_type": _text(value, "schemaType") or "AVRO",
        "schema_text": _text(value, "schema"),
        "schema_references": json.dumps(references) if references else None,
        "deleted": value.get("deleted") is True,
        "detail": json.dumps(other_fields) if other_fields else None,
    }


def _other_value(value: bytes) -> dict[str, Any]:
    content = _object(value, "value")
    # The record of a deleted subject names the subject's last version.
    version = {"version": _number(content, "version")} if "version" in content else {}
    return {"detail": json.dumps(content), **version}


def _object(data: bytes | None, part: str) -> dict[str, Any]:
    if not data:
        raise _Malformed(f"{part}: there is none")
    try:
        content = strict_json(data.decode())
    except (ValueError, RecursionError) as error:
        raise _Malformed(f"{part}: it is not JSON: {str(error)[:200]}") from None
    if not isinstance(content, dict):
        raise _Malformed(f"{part}: it is JSON, but no object")
    return content


def strict_json(text: str) -> Any:
    """Parse a JSON text. Raises ValueError, also for NaN and the infinities, and RecursionError."""

    def refuse(name: str) -> None:
        raise ValueError(f"{name} is no JSON")

    return json.loads(text, parse_constant=refuse)


def _text(fields: dict[str, Any], name: str) -> str | None:
    text = fields.get(name)
    if text is None:
        return None
    if not isinstance(text, str):
        raise _Malformed(f"{name} is no text")
    try:
        text.encode()
    except UnicodeEncodeError:  # half of a surrogate pair, which JSON can write
        raise _Malformed(f"{name} is no valid text") from None
    return text


def _number(fields: dict[str, Any], name: str) -> int | None:
    number = fields.get(name)
    if number is None:
        return None
    if type(number) is not int or not -(2**31) <= number < 2**31:
        raise _Malformed(f"{name} is no number of 32 bits")
    return number
