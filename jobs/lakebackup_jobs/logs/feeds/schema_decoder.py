"""Decodes the topic of a connector's schema changes into writes that end all rows of a table."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pyarrow as pa

from lakebackup.formats.logs.events import PUT, TRUNCATES, WRITE, captured_schema, marks_schema
from lakebackup_jobs.logs.feeds import Decoded, Range
from lakebackup_jobs.logs.feeds.debezium_decoder import region_of
from lakebackup_jobs.logs.feeds.schema_changes import Emptied, SchemaChanges

# The `sub` of these writes: after all events of a transaction, and after the rows of snapshots that follow
# it.
_LAST = 2**31 - 2


class SchemaDecoder:
    """Decodes the range `of` of the topic; see Decoder. `changes`: the schema changes of this flush."""

    def __init__(self, of: Range, changes: SchemaChanges) -> None:
        self._of = of
        self._placed = {change.offset: change for change in changes.waiting if change.ts is not None}
        # Later flushes capture the changes whose place is not known yet, and those that the plan did not
        # read.
        self._limit = min([changes.next, *(change.offset for change in changes.waiting if change.ts is None)])
        self._up_to = of.end

    def decode(self, records: pa.RecordBatch) -> Decoded:
        """See Decoder."""
        offsets = [offset for offset in records["offset"].to_pylist() if offset < self._limit]
        upto = self._limit if len(offsets) < len(records) else None
        self._up_to = self._of.end if upto is None else upto
        changes = [self._placed[offset] for offset in offsets if offset in self._placed]
        rows = [self._row(change, table) for change in changes for table in change.tables]
        return Decoded(
            pa.RecordBatch.from_pylist(rows, captured_schema()),
            pa.RecordBatch.from_pylist([], marks_schema()),
            upto,
        )

    def skip(self, records: pa.RecordBatch) -> None:
        """Does nothing: the plan of the flush read the topic without skipped messages."""

    def finish(self) -> Mapping[str, Any]:
        """See Decoder. `schema_up_to`: the offset up to which the topic is captured."""
        return {"schema_up_to": self._up_to}

    def _row(self, change: Emptied, table: int) -> dict[str, Any]:
        return {
            "store": self._of.topic,
            "region": region_of(self._of.topic, self._of.partition),
            "table_id": table,
            "cf": WRITE,
            "op": PUT,
            "key": b"",
            "value": None,
            "start_ts": change.ts,
            "commit_ts": change.ts,
            "type": TRUNCATES,
            "seq": change.seq,
            "sub": _LAST,
            "offset": change.offset,
        }
