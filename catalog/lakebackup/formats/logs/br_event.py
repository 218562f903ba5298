"""The wire format of the key-value change feed: each record is one version byte and one Avro datum.

docs/change-logs-feed.md says what each field means and what a producer promises.
"""

from __future__ import annotations

from typing import Any

#: The first byte of a record's value, before the datum. (0 would mean a message of a schema registry.)
VERSION = 1
#: The symbols of the Avro enums, in the order of their numbers.
KINDS = ("put", "delete", "resolved", "closed")
FAMILIES = ("default", "write", "lock")
#: The region without keys. Its `closed` events list all regions that exist, so that none is missed.
ROOT_REGION = 0

SCHEMA: dict[str, Any] = {
    "type": "record",
    "name": "Event",
    "namespace": "lakebackup.changelog",
    "fields": [
        {"name": "kind", "type": {"type": "enum", "name": "Kind", "symbols": list(KINDS)}},
        {"name": "region", "type": "long"},
        {"name": "store", "type": "string"},
        {"name": "table_id", "type": "long", "default": 0},
        {
            "name": "cf",
            "type": ["null", {"type": "enum", "name": "Family", "symbols": list(FAMILIES)}],
            "default": None,
        },
        {"name": "key", "type": ["null", "bytes"], "default": None},
        {"name": "value", "type": ["null", "bytes"], "default": None},
        {"name": "start_ts", "type": ["null", "long"], "default": None},
        {"name": "commit_ts", "type": ["null", "long"], "default": None},
        {"name": "resolved_ts", "type": ["null", "long"], "default": None},
        {"name": "successors", "type": {"type": "array", "items": "long"}, "default": []},
    ],
}
