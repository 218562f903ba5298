"""Records of a change feed's topics as Arrow batches."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from lakebackup_jobs.kafka.format.arrow import binary
from lakebackup_jobs.kafka.format.records import (
    KEY,
    KEY_LENGTH,
    OFFSET,
    TIMESTAMP,
    VALUE,
    VALUE_LENGTH,
)
from lakebackup_jobs.logs.feeds import RECORD_COLUMNS

if TYPE_CHECKING:
    from lakebackup_jobs.kafka.format.records import Block


def records_of(block: Block, where: str) -> pa.RecordBatch:
    """A block's records with the columns RECORD_COLUMNS of feeds, one row each, in order."""
    rows = block.columns(where).rows
    return pa.RecordBatch.from_arrays(
        [
            pa.array(np.ascontiguousarray(rows[:, OFFSET])),
            pa.array(np.ascontiguousarray(rows[:, TIMESTAMP])),
            binary(block.data, rows[:, KEY], rows[:, KEY_LENGTH]),
            binary(block.data, rows[:, VALUE], rows[:, VALUE_LENGTH]),
        ],
        names=list(RECORD_COLUMNS),
    )
