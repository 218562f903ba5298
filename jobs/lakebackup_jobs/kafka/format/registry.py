"""Records of a schema registry's topic (`_schemas`) as rows, and the id that a value carries.

Keys and values are JSON, as registries of Confluent's form write them. A key's `keytype` gives its kind.
"""

from __future__ import annotations

import json
from typing import Any

SCHEMAS_TOPIC = "_schemas"

_MAGIC = 0
_HEAD = 5
_KNOWN = frozenset({"subject", "version", "id", "schemaType", "schema", "references", "deleted"})


class _Wrong(Exception):
    """Not what a registry writes."""


def schema_id_of(value: bytes | None) -> int | None:
    """The schema id at the beginning of a record's value: a byte 0, then four bytes, big endian.

    None when the value does not begin so.
    """
    if value is None or len(value) < _HEAD or value[0] != _MAGIC:
        return None
    found = int.from_bytes(value[1:_HEAD], signed=True)
    return found if found >= 0 else None


def decode(key: bytes | None, value: bytes | None) -> dict[str, Any]:
    """The columns of `schemas` that a record's bytes give; those that are missing are null.

    `kind` is the key's type in lower case (schema, config, mode, delete_subject, ...), or unknown. A record
    without a value, or with an empty one, has `erased`. Never raises: what cannot be decoded is named in
    `problem`.
    """
    row: dict[str, Any] = {"kind": "unknown", "deleted": False, "erased": not value}
    try:
        name = _object(key, "key")
        row["kind"] = (_text(name, "keytype") or "unknown").lower()
        # A record that creates a context names no subject; as its prefix the context is told from others.
        context = _text(name, "context") if row["kind"] == "context" else None
        row["subject"] = f":{context}:" if context else _text(name, "subject")
        row["version"] = _number(name, "version")
        if value:
            row |= _schema(_object(value, "value")) if row["kind"] == "schema" else _other(value)
    except _Wrong as wrong:
        row["problem"] = str(wrong)
    return row


def _schema(value: dict[str, Any]) -> dict[str, Any]:
    more = {name: field for name, field in value.items() if name not in _KNOWN}
    references = value.get("references")
    return {
        "schema_id": _number(value, "id"),
        "schema_type": _text(value, "schemaType") or "AVRO",
        "schema_text": _text(value, "schema"),
        "schema_references": json.dumps(references) if references else None,
        "deleted": value.get("deleted") is True,
        "detail": json.dumps(more) if more else None,
    }


def _other(value: bytes) -> dict[str, Any]:
    found = _object(value, "value")
    # A deletion of a subject names its last version.
    version = {"version": _number(found, "version")} if "version" in found else {}
    return {"detail": json.dumps(found), **version}


def _object(data: bytes | None, what: str) -> dict[str, Any]:
    if not data:
        raise _Wrong(f"{what}: there is none")
    try:
        found = strict_json(data.decode())
    except (ValueError, RecursionError) as error:
        raise _Wrong(f"{what}: it is not JSON: {str(error)[:200]}") from None
    if not isinstance(found, dict):
        raise _Wrong(f"{what}: it is JSON, but no object")
    return found


def strict_json(text: str) -> Any:
    """What a JSON text holds; raises ValueError also for NaN and the infinities, RecursionError."""

    def refuse(name: str) -> None:
        raise ValueError(f"{name} is no JSON")

    return json.loads(text, parse_constant=refuse)


def _text(found: dict[str, Any], name: str) -> str | None:
    text = found.get(name)
    if text is None:
        return None
    if not isinstance(text, str):
        raise _Wrong(f"{name} is no text")
    try:
        text.encode()
    except UnicodeEncodeError:  # half of a surrogate pair, which JSON can write
        raise _Wrong(f"{name} is no valid text") from None
    return text


def _number(found: dict[str, Any], name: str) -> int | None:
    number = found.get(name)
    if number is None:
        return None
    if type(number) is not int or not -(2**31) <= number < 2**31:
        raise _Wrong(f"{name} is no number of 32 bits")
    return number
