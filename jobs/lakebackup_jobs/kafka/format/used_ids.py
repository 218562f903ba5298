"""The ids of schemas that keys and values carry, found in blocks of records without looking at each."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from lakebackup_jobs.kafka.format.records import KEY, KEY_LENGTH, VALUE, VALUE_LENGTH

if TYPE_CHECKING:
    from lakebackup.rules.schema_ids import Part
    from lakebackup_jobs.kafka.format.records import Columns

_HEAD = 5
_COLUMNS: dict[Part, tuple[int, int]] = {"key": (KEY, KEY_LENGTH), "value": (VALUE, VALUE_LENGTH)}


def used_ids(block: Columns, part: Part) -> set[int]:
    """The ids at the beginning of the keys or values of a block: a byte 0, then four bytes, big endian.

    Ids begin with 1, so 0 is none.
    """
    start, length = _COLUMNS[part]
    starts = block.rows[block.rows[:, length] >= _HEAD, start]
    starts = starts[block.data[starts] == 0]
    heads: Any = block.data[starts[:, None] + np.arange(1, _HEAD)]
    numbers = np.unique(np.ascontiguousarray(heads).view(">i4"))
    return {int(number) for number in numbers if number > 0}
