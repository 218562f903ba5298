"""Finds the schema ids that the keys and values of a block contain, without a Python object per record."""

from __future__ import annotations

from typing import Any

import numpy as np

from lakebackup.rules.schema_ids import Part
from lakebackup_jobs.kafka.format.records import KEY, KEY_LENGTH, VALUE, VALUE_LENGTH, Columns

_HEAD = 5
_COLUMNS: dict[Part, tuple[int, int]] = {"key": (KEY, KEY_LENGTH), "value": (VALUE, VALUE_LENGTH)}


def used_ids(block: Columns, part: Part) -> set[int]:
    """Return the ids at the beginning of a block's keys or values: a byte 0, then four bytes, big endian.

    Ids begin at 1, so 0 is not an id.
    """
    start, length = _COLUMNS[part]
    starts = block.rows[block.rows[:, length] >= _HEAD, start]
    starts = starts[block.data[starts] == 0]
    id_bytes: Any = block.data[starts[:, None] + np.arange(1, _HEAD)]
    ids = np.unique(np.ascontiguousarray(id_bytes).view(">i4"))
    return {int(schema_id) for schema_id in ids if schema_id > 0}
