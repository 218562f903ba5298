"""The two Avro schemas of data files: version 2, which is written, and version 1, which is read and restored.

Version 1 contains no null values (tombstones), no null header values and no timestamp type. Its headers are a
map, so each name occurs once.
"""

from __future__ import annotations

import json
from functools import lru_cache
from typing import Any

from lakebackup.errors import Damaged

FORMAT_V1 = "kafka-avro-1"
FORMAT_V2 = "kafka-avro-2"

SCHEMA_V1 = """{
  "namespace": "ch.tbd.kafka.backuprestore.model.avro",
  "type": "record",
  "name": "AvroKafkaRecord",
  "fields" : [
    {"name": "topic", "type": "string"},
    {"name": "partition", "type": "int"},
    {"name": "offset", "type": "long"},
    {"name": "timestamp", "type": "long"},
    {"name": "key", "type": [ "bytes", "null" ], "default": "null" },
    {"name": "value", "type": "bytes"},
    {"name": "headers", "type": [ {"type": "map", "values": "bytes"}, "null" ], "default": null}
  ]
}"""

TIMESTAMP_TYPES = ("NOT_AVAILABLE", "CREATE_TIME", "LOG_APPEND_TIME")
SCHEMA_V2 = json.dumps(
    {
        "type": "record",
        "name": "KafkaRecord",
        "namespace": "lakebackup",
        "fields": [
            {"name": "topic", "type": "string"},
            {"name": "partition", "type": "int"},
            {"name": "offset", "type": "long"},
            {"name": "timestamp", "type": "long"},
            {
                "name": "timestamp_type",
                "type": {"type": "enum", "name": "TimestampType", "symbols": list(TIMESTAMP_TYPES)},
            },
            {"name": "key", "type": ["null", "bytes"]},
            {"name": "value", "type": ["null", "bytes"]},
            {
                "name": "headers",
                "type": {
                    "type": "array",
                    "items": {
                        "type": "record",
                        "name": "Header",
                        "fields": [
                            {"name": "key", "type": "string"},
                            {"name": "value", "type": ["null", "bytes"]},
                        ],
                    },
                },
            },
        ],
    },
    separators=(",", ":"),
)


def _shape(schema: Any) -> Any:
    """A schema reduced to what determines the bytes: without names of types, docs, defaults, properties."""
    if isinstance(schema, list):
        return [_shape(branch) for branch in schema]
    if not isinstance(schema, dict):
        return schema
    kind = schema.get("type")
    if kind == "record":
        return [(field["name"], _shape(field["type"])) for field in schema["fields"]]
    if kind == "enum":
        return ("enum", tuple(schema["symbols"]))
    if kind == "array":
        return ("array", _shape(schema["items"]))
    if kind == "map":
        return ("map", _shape(schema["values"]))
    return _shape(kind)


_SHAPES = {fmt: _shape(json.loads(text)) for fmt, text in ((FORMAT_V1, SCHEMA_V1), (FORMAT_V2, SCHEMA_V2))}


def format_of(schema: str | bytes, location: str) -> str:
    """Return FORMAT_V1 or FORMAT_V2 for a file's `avro.schema`.

    Raises Damaged, which names `location`, for any other schema.
    """
    try:
        fmt = _known_format(schema)
    except (ValueError, LookupError, TypeError, RecursionError) as error:
        raise Damaged(f"{location}: its Avro schema cannot be read: {error}.") from None
    if fmt is None:
        raise Damaged(
            f"{location}: its Avro schema is neither version of the Kafka record.",
            hint="Was this file written by another program?",
        )
    return fmt


@lru_cache(maxsize=8)  # thousands of small files have the same schema
def _known_format(schema: str | bytes) -> str | None:
    shape = _shape(json.loads(schema))
    return next((fmt for fmt, format_shape in _SHAPES.items() if shape == format_shape), None)
